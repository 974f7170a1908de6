"""A server in a thread of this process, and requests to it."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time

from aiohttp import web

from electra_tf.serving import http_server
from electra_tf.serving.export_options import ServerLimits


class Client:
    """Client of a server at a local port."""

    def __init__(self, port, name="model"):
        self.port, self.name = port, name

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def send(self, method, path, body=None, headers=(), timeout=60):
        """Return status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def json(self, method, path, body=None, headers=()):
        """Return status and the value of the body."""
        status, _, content = self.send(method, path, body, headers)
        return status, json.loads(content)

    def predict(self, body, headers=()):
        """Return status and answer of a request."""
        if not isinstance(body, bytes):
            body = json.dumps(body)
        return self.json("POST", f"/v1/models/{self.name}:predict", body, headers)

    def wait(self, body, status, headers=()):
        """Send a request until the answer has a status."""
        deadline = time.monotonic() + 60
        while self.predict(body, headers)[0] != status:
            assert time.monotonic() < deadline, status

    def raw(self, content, timeout=60):
        """Send bytes and return what the server answers until it closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout) as connection:
            connection.sendall(content)
            return b"".join(iter(lambda: connection.recv(2**16), b""))


@contextlib.contextmanager
def running(servable, **limits):
    """Run a server in a thread."""
    loop, port = asyncio.new_event_loop(), []
    started = threading.Event()

    async def main():
        app = http_server.RestServer(servable, ServerLimits(**limits)).app()
        # Seconds for the rest of a refused request; aiohttp's default is ten.
        runner = web.AppRunner(app, lingering_time=0.5, **http_server.CONNECTIONS)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port.append(runner.addresses[0][1])
        stop.set_result(asyncio.Event())
        started.set()
        await stop.result().wait()
        await runner.cleanup()

    stop = loop.create_future()
    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    try:
        assert started.wait(60)
        yield Client(port[0], servable.name)
    finally:
        loop.call_soon_threadsafe(stop.result().set)
        thread.join(60)
        loop.close()
