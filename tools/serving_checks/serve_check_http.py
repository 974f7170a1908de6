"""Send real, hostile and random requests to `electra-tf serve`, then a load.

python tools/serving_checks/serve_check_http.py --model=served --attack --minutes=10

The hostile requests are those of `serve_check`, as JSON, which cannot declare a shape
that its values do not have. It needs the extras `http` and `serving`.
"""

import argparse
import base64
import contextlib
import http.client
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent import futures
from typing import Any

import numpy as np
import serve_check_requests as requests
from tensorflow.core.framework import types_pb2

_ROOT = pathlib.Path(__file__).parents[2]
_SECONDS = 60  # of a request, at most
_REFUSALS = (400, 413)


def call(url: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Return the status and the value of the response; a body is posted."""
    host = urllib.parse.urlsplit(url).netloc
    with contextlib.closing(http.client.HTTPConnection(host, timeout=_SECONDS)) as one:
        content = None if body is None else json.dumps(body)
        one.request("POST" if content else "GET", path, content)
        response = one.getresponse()
        return response.status, json.loads(response.read())


def signatures_of(url: str, name: str) -> list[requests.Signature]:
    """Return the signatures that a server describes."""
    _, answer = call(url, f"/v1/models/{name}/metadata")
    return [
        requests.Signature(
            key,
            tuple(item["inputs"]),
            {info["dtype"] for info in item["inputs"].values()} == {"DT_STRING"},
            dict.fromkeys(item["outputs"], (np.dtype(object), ())),
        )
        for key, item in answer["metadata"]["signature_def"]["signature_def"].items()
    ]


def hostile(url: str, name: str, fuzz: int = 20, attack: bool = False) -> Iterator[str]:
    """Send requests; yield a description of each unexpected result."""
    signatures = signatures_of(url, name)
    for signature in signatures:
        cases = [*requests.hostile(signature)]
        if attack:
            limits = {"rows": 4096, "bytes": 2**21, "positions": 2**16}
            cases += requests.attacks(signature, limits, 128)
        yield from _problems(url, name, cases)
    random = (requests.random_case(signatures, 0, number) for number in range(fuzz))
    yield from _problems(url, name, random)


def _problems(url: str, name: str, cases: Iterable[requests.Case]) -> Iterator[str]:
    for case in cases:
        inputs = {key: _value(message) for key, message in case.tensors.items()}
        if None in inputs.values():
            continue
        body = {"signature_name": case.signature.name, "inputs": inputs}
        try:
            status, answer = call(url, f"/v1/models/{name}:predict", body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            yield f"{case.name}: {error!r}"
            continue
        if status == 200:
            counts = {len(values) for values in answer["outputs"].values()}
            if case.expected == requests.ERROR or counts != {case.rows}:
                yield f"{case.name}: a response of {counts} rows"
        elif status not in _REFUSALS or case.expected == requests.RESPONSE:
            yield f"{case.name}: {status} {answer}"
        elif not answer["error"]:
            yield f"{case.name}: an error without a reason"


def _value(message: requests.Message) -> Any:
    """Return a message as nested lists; None if JSON has no such value."""
    shape = [dim.size for dim in message.tensor_shape.dim]
    if message.dtype == types_pb2.DT_STRING:
        values = [_text(text) for text in message.string_val]
    else:
        content = np.frombuffer(message.tensor_content, np.int32)
        values = [*message.int_val, *content.tolist()]
    if len(values) != math.prod(shape) or (0 in shape and len(shape) > 1):
        return None
    for size in reversed(shape[1:]):
        values = [values[i : i + size] for i in range(0, len(values), size)]
    return values if shape else values[0]


def _text(text: bytes) -> Any:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(text).decode()}


class Load:
    """Clients that send one text after another over connections that stay open."""

    def __init__(self, url: str, name: str):
        self._host = urllib.parse.urlsplit(url).netloc
        (first,) = (s for s in signatures_of(url, name) if s.name == "serving_default")
        self._inputs, self._path = first.inputs, f"/v1/models/{name}:predict"
        self.results: Counter[str] = Counter()
        self.milliseconds: list[float] = []
        self._lock = threading.Lock()

    def run(self, clients: int, seconds: float) -> None:
        """Send requests until the time is over."""
        end = time.monotonic() + seconds
        with futures.ThreadPoolExecutor(clients) as pool:
            for done in [pool.submit(self._client, n, end) for n in range(clients)]:
                done.result()

    def _client(self, number: int, end: float) -> None:
        connection = http.client.HTTPConnection(self._host, timeout=_SECONDS)
        rng = np.random.default_rng(number)
        while (start := time.monotonic()) < end:
            text = requests.TEXTS[rng.integers(len(requests.TEXTS))]
            body = json.dumps({"instances": [dict.fromkeys(self._inputs, text)]})
            try:
                connection.request("POST", self._path, body)
                response = connection.getresponse()
                response.read()
                result = str(response.status)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                result = type(error).__name__
            with self._lock:
                self.results[result] += 1
                self.milliseconds.append((time.monotonic() - start) * 1e3)

    def __str__(self) -> str:
        points = np.percentile(self.milliseconds, [50, 90, 99, 100])
        counts = ", ".join(f"{n:,} {name}" for name, n in self.results.items())
        times = ", ".join(f"{point:.1f}" for point in points)
        return f"{counts}; p50, p90, p99, maximum: {times} ms"


@contextlib.contextmanager
def run_server(model: str) -> Iterator[tuple[str, int]]:
    """Run the command; yield its URL and the id of the process."""
    command = ["-m", "electra_tf", "serve", f"--model={model}", "--name=m", "--port=0"]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            process.stdout.readline()
            line = process.stdout.readline().split()
            if not line:
                sys.exit("error: the server did not start")
            yield line[-1].rstrip("/"), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            print(f"SIGTERM: exit status {process.wait(_SECONDS)}")


def memory(process: int, key: str = "VmRSS") -> float:
    """Return resident MiB of a process, or with VmHWM the peak."""
    lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    return float(dict(line.split(":", 1) for line in lines)[key].split()[0]) / 1024


def main() -> None:
    """Check a model's server, and exit with 1 if a request had another result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--fuzz", type=int, default=200)
    parser.add_argument("--attack", action="store_true")
    parser.add_argument("--minutes", type=float, default=0.1)
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    with run_server(options.model) as (url, process):
        Load(url, "m").run(options.clients, min(10, 60 * options.minutes))
        before = memory(process)
        problems = [*hostile(url, "m", options.fuzz, options.attack)]
        peak = memory(process, "VmHWM")
        print(f"memory: {before:.0f} MiB, peak of hostile requests {peak:.0f} MiB")
        if peak > 2 * before:
            problems.append("the peak of memory is more than twice the memory before")
        before, load = memory(process), Load(url, "m")
        load.run(options.clients, 60 * options.minutes)
        print(f"{options.clients} clients, {options.minutes:g} minutes: {load}")
        print(f"memory: {before:.0f} MiB before, {memory(process):.0f} MiB after")
        problems += [key for key in load.results if key != "200"]
    print("\n".join(problems) or "every request had an expected result")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
