"""A headless Chromium, driven by its WebDriver over HTTP."""

import base64
import contextlib
import json
import re
import shutil
import subprocess
import urllib.request

import pytest

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # of the WebDriver standard


class Browser:
    """Commands of a session."""

    def __init__(self, url):
        self._url = url

    def _call(self, method, path, **body):
        data = json.dumps(body).encode() if method == "POST" else None
        request = urllib.request.Request(f"{self._url}{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["value"]

    def open(self, url):
        self._call("POST", "/url", url=url)

    def script(self, text, *arguments):
        """Run JavaScript and return its result."""
        return self._call("POST", "/execute/sync", script=text, args=arguments)

    def find(self, selector):
        """Return the path of an element, when it is there."""
        found = self._call("POST", "/element", using="css selector", value=selector)
        return f"/element/{found[_ELEMENT]}"

    def text(self, selector):
        return self._call("GET", f"{self.find(selector)}/text")

    def type(self, selector, text):
        # Keys of the driver are those of a keyboard, which has no emoji.
        self.script(f"document.querySelector({selector!r}).value = arguments[0]", text)

    def click(self, selector):
        self._call("POST", f"{self.find(selector)}/click")

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def log(self):
        """Return the messages of the console."""
        return self._call("POST", "/se/log", type="browser")


@contextlib.contextmanager
def chromium(folder):
    """Start a browser, or skip the test."""
    driver = shutil.which("chromedriver")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if not (driver and program):
        pytest.skip("no chromium and chromedriver (Debian: chromium-driver)")
    options = {
        "binary": program,
        "args": ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                 "--disable-dev-shm-usage", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", "--disable-quic",
                 "--window-size=900,800", f"--user-data-dir={folder}"],
    }  # fmt: skip
    wanted = {"goog:chromeOptions": options, "timeouts": {"implicit": 20_000}}
    with subprocess.Popen(
        [driver, "--port=0"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            lines = iter(process.stdout.readline, "")
            ports = (re.search(r"successfully on port (\d+)", line) for line in lines)
            port = next(match[1] for match in ports if match)
            base = f"http://127.0.0.1:{port}"
            capabilities = {"alwaysMatch": {"browserName": "chrome", **wanted}}
            call = Browser(base)._call
            session = call("POST", "/session", capabilities=capabilities)["sessionId"]
            browser = Browser(f"{base}/session/{session}")
            yield browser
            browser._call("DELETE", "")
        finally:
            process.terminate()
