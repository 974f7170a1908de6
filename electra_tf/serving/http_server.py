"""HTTP server with TF Serving's REST API, metrics and a page, for one machine."""

import asyncio
import errno
import functools
import html
import importlib.resources
import ipaddress
import json
import logging
import re
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import prometheus_client
import tensorflow as tf
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from tensorflow.core.framework import types_pb2

from electra_tf.errors import InputError
from electra_tf.serving import http_json
from electra_tf.serving.http_batching import Batcher
from electra_tf.serving.http_json import RequestError
from electra_tf.serving.http_servable import Servable
from electra_tf.serving.request_limits import ServerLimits

_logger = logging.getLogger(__name__)
_http_logger = _logger.getChild("http")
# A line for each request that is no HTTP would fill the log.
_http_logger.addFilter(
    lambda record: not isinstance((record.exc_info or "  ")[1], HttpProcessingError)
)
BODY_SECONDS = 10.0
"""Time in which the body of a request must arrive."""
ANSWER_SECONDS = 30.0
"""Time in which a client must read a response, up to a buffer of the connection."""
CONNECTIONS: dict[str, Any] = {
    "logger": _http_logger,
    "handler_cancellation": True,  # of clients that have gone
    "keepalive_timeout": 30.0,  # seconds in which the header of a request must arrive
    "shutdown_timeout": 30.0,  # seconds for requests to end after SIGTERM
}
_PAGE = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src "
    "'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Server": "electra_tf",
}
_LOCAL = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")
_MODEL = "/v1/models/{name:[^/:]+}"
_VERSION = "/versions/{version:[0-9]{1,18}}"


class RestServer:
    """Handlers of the server's URLs.

    With `local`, requests must name this machine as their host, so that a page of
    another site cannot reach the server by a name that it controls.
    """

    def __init__(
        self,
        servable: Servable,
        limits: ServerLimits = ServerLimits(),
        local: bool = True,
    ):
        self._servable, self._limits, self._local = servable, limits, local
        self._inputs = {
            name: signature.inputs for name, signature in servable.signatures.items()
        }
        self._unanswered = 0
        self._metrics = _Metrics(lambda: self._unanswered)

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(
            middlewares=[self._errors], client_max_size=self._limits.bytes
        )
        app.on_startup.append(_log_accept_errors_once)
        app.on_response_prepare.append(_add_headers)
        app.cleanup_ctx.append(self._batching)
        for path in _PAGE:
            app.router.add_get(path, self._page)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/metrics", self._show_metrics)
        for prefix in (_MODEL, _MODEL + _VERSION):
            app.router.add_get(prefix, self._status)
            app.router.add_get(f"{prefix}/metadata", self._metadata)
            app.router.add_post(f"{prefix}:predict", self._counted_predict)
        return app

    async def _batching(self, app: web.Application) -> AsyncIterator[None]:
        self._batcher = Batcher(
            self._servable.signatures,
            self._limits.threads,
            self._limits.batch_rows,
            self._metrics.batches.observe,
        )
        yield
        self._batcher.close()

    @web.middleware
    async def _errors(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Return errors as TF Serving's JSON."""
        headers = {}
        try:
            self._check_origin(request)
            return await handler(request)
        except RequestError as error:
            status, message = error.status, error.message
        except web.HTTPException as error:
            status = error.status
            message = f"{error.reason}: {request.method} {request.path[:200]}"
            headers = {k: v for k, v in error.headers.items() if k == "Allow"}
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            _logger.exception("a request failed")
            status, message = 500, "Internal error; the server's log has the reason"
        if status == 503:
            headers["Retry-After"] = "1"
        return web.json_response({"error": message}, status=status, headers=headers)

    def _check_origin(self, request: web.Request) -> None:
        """Refuse requests that a page of another site sends from a browser here."""
        headers = request.headers
        if self._local and not _LOCAL.fullmatch(headers.get("Host", "localhost")):
            raise RequestError("Host must be this machine, such as localhost", 403)
        if request.method == "POST" and headers.get("Sec-Fetch-Site") == "cross-site":
            raise RequestError("A page of another site must not send requests", 403)

    async def _page(self, request: web.Request) -> web.Response:
        name, content_type = _PAGE[request.path]
        facts = {"name": self._servable.name, **self._servable.about}
        text = _page_file(name)
        if content_type == "text/html":
            facts = json.dumps(facts, ensure_ascii=False)
            text = text.replace("{facts}", html.escape(facts))
        return web.Response(text=text, content_type=content_type)

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _show_metrics(self, request: web.Request) -> web.Response:
        body = prometheus_client.generate_latest(self._metrics.registry)
        content_type = prometheus_client.CONTENT_TYPE_LATEST
        return web.Response(body=body, headers={"Content-Type": content_type})

    def _check_model(self, request: web.Request) -> None:
        name, version = (request.match_info.get(k) for k in ("name", "version"))
        servable = self._servable
        if name != servable.name or int(version or servable.version) != (
            servable.version
        ):
            asked = f"Specific({name}, {version})" if version else f"Latest({name})"
            raise RequestError(f"Servable not found for request: {asked}", 404)

    async def _status(self, request: web.Request) -> web.Response:
        self._check_model(request)
        status = {
            "version": str(self._servable.version),
            "state": "AVAILABLE",
            "status": {"error_code": "OK", "error_message": ""},
        }
        return web.json_response({"model_version_status": [status]})

    async def _metadata(self, request: web.Request) -> web.Response:
        self._check_model(request)
        signatures = {
            name: {
                "inputs": _tensor_infos(signature.inputs),
                "outputs": _tensor_infos(signature.outputs),
                "method_name": "tensorflow/serving/predict",
            }
            for name, signature in self._servable.signatures.items()
        }
        version = str(self._servable.version)
        spec = {"name": self._servable.name, "signature_name": "", "version": version}
        definition = {"signature_def": {"signature_def": signatures}}
        return web.json_response({"model_spec": spec, "metadata": definition})

    async def _counted_predict(self, request: web.Request) -> web.Response:
        """Predict, and count the result in the metrics."""
        start, code = time.perf_counter(), 499  # unless the client reads the response
        self._unanswered += 1
        try:
            response = await self._predict(request)
            await response.prepare(request)
            try:
                await asyncio.wait_for(response.write_eof(), ANSWER_SECONDS)
                code = response.status
            except asyncio.TimeoutError:
                if request.transport:
                    request.transport.abort()
            return response
        except RequestError as error:
            code = error.status
            raise
        finally:
            self._unanswered -= 1
            self._metrics.requests.labels(code).inc()
            self._metrics.seconds.observe(time.perf_counter() - start)

    async def _predict(self, request: web.Request) -> web.Response:
        self._check_model(request)
        if self._unanswered > self._limits.waiting:
            raise RequestError("The server has too many requests. Send it again", 503)
        if "Content-Encoding" in request.headers:
            raise RequestError("A request must not be compressed", 415)
        if (request.content_length or 0) > self._limits.bytes:
            raise self._too_large()
        try:
            body = await asyncio.wait_for(request.read(), BODY_SECONDS)
        except asyncio.TimeoutError as error:
            raise RequestError("The body must arrive in 10 seconds", 408) from error
        except web.HTTPRequestEntityTooLarge as error:
            raise self._too_large() from error
        except web.RequestPayloadError as error:
            raise RequestError("The chunks of the body are invalid") from error
        decoded = http_json.decode(body, self._inputs)
        response = await self._batcher.predict(
            decoded.signature,
            decoded.arrays,
            functools.partial(http_json.encode, by_rows=decoded.by_rows),
        )
        return web.Response(body=response, content_type="application/json")

    def _too_large(self) -> RequestError:
        return RequestError(
            f"A request must have at most {self._limits.bytes} bytes. Send it in parts",
            413,
        )


class _Metrics:
    """Metrics of requests of `:predict` and of the process."""

    def __init__(self, unanswered: Callable[[], int]):
        self.registry = registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=registry)
        self.requests = prometheus_client.Counter(
            "electra_tf_requests",
            "Requests by HTTP status; 499: the client did not wait for the response.",
            ["code"],
            registry=registry,
        )
        self.seconds = prometheus_client.Histogram(
            "electra_tf_request_seconds",
            "Time from a request's header to its response.",
            registry=registry,
        )
        self.batches = prometheus_client.Histogram(
            "electra_tf_batch_requests",
            "Requests that were computed together.",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=registry,
        )
        prometheus_client.Gauge(
            "electra_tf_unanswered_requests",
            "Requests that are not answered yet.",
            registry=registry,
        ).set_function(unanswered)


async def _log_accept_errors_once(app: web.Application) -> None:
    """Shorten the log while a process has too many connections: asyncio tries to accept
    another one hundreds of times a second."""
    logged = False

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal logged
        if getattr(context.get("exception"), "errno", None) != errno.EMFILE:
            loop.default_exception_handler(context)
        elif not logged:
            logged = True
            _logger.warning("too many open connections; others have to wait")

    asyncio.get_running_loop().set_exception_handler(handle)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def _tensor_infos(specs: Mapping[str, tf.TensorSpec]) -> dict[str, Any]:
    """Return types and shapes as TF Serving writes them."""
    return {
        name: {
            "dtype": types_pb2.DataType.Name(spec.dtype.as_datatype_enum),
            "tensor_shape": {
                "dim": [
                    {"size": str(-1 if size is None else size), "name": ""}
                    for size in spec.shape
                ],
                "unknown_rank": False,
            },
            "name": name,
        }
        for name, spec in specs.items()
    }


@functools.cache
def _page_file(name: str) -> str:
    folder = importlib.resources.files("electra_tf.serving")
    return (folder / "page" / name).read_text(encoding="utf-8")


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that does not listen yet; port 0: any free one."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise InputError(
            "--host must be an address of this machine, and --port a free port",
            f"--host={host} --port={port}: {error.strerror or error}",
            "Pass another --port, or --port=0 for any free one",
        ) from error
    return listener


def serve(servable: Servable, listener: socket.socket, limits: ServerLimits) -> None:
    """Serve a model until SIGTERM or SIGINT; requests that run are then answered."""
    listener.listen()
    address, port = listener.getsockname()[:2]
    local = ipaddress.ip_address(address).is_loopback
    host = f"[{address}]" if ":" in address else address
    _announce(servable, f"http://{host}:{port}", local)
    web.run_app(
        RestServer(servable, limits, local).app(),
        sock=listener,
        print=None,
        access_log=None,
        **CONNECTIONS,
    )
    print("stopped", flush=True)


def _announce(servable: Servable, url: str, local: bool) -> None:
    """Print how to use the server."""
    if not local:
        print(
            "warning: other machines can reach this server, which has no passwords and "
            "no encryption; use --host=127.0.0.1, or a proxy with both",
            file=sys.stderr,
        )
    print(
        f"Serving {servable.name}, version {servable.version}, for one machine; for "
        "more, export the model for TF Serving, Triton or KServe.\n"
        f"  page     {url}/"
    )
    name = "entities" if "entities" in servable.signatures else http_json.DEFAULT
    signature = servable.signatures[name]
    if signature.takes_texts:
        request = {"instances": [{n: "A text." for n in signature.inputs}]}
        if name != http_json.DEFAULT:
            request["signature_name"] = name
        body = json.dumps(request)
        print(f"  predict  curl {url}/v1/models/{servable.name}:predict -d '{body}'")
    print(f"  metrics  {url}/metrics\nCtrl-C or SIGTERM stops it.", flush=True)
