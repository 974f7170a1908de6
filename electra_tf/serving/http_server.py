"""HTTP server with TF Serving's REST API and a page, for one machine."""

import asyncio
import html
import ipaddress
import json
import logging
import pathlib
import re
import shlex
import socket
import sys
from collections.abc import Mapping
from concurrent import futures
from typing import Any

import tensorflow as tf
from aiohttp import web
from aiohttp.typedefs import Handler

from electra_tf import compat
from electra_tf.errors import InputError
from electra_tf.serving import http_json
from electra_tf.serving.export_options import ServerLimits
from electra_tf.serving.http_servable import Servable
from electra_tf.serving.signatures import error_message

_logger = logging.getLogger(__name__)
_http_logger = logging.getLogger(f"{__name__}.http")
_http_logger.setLevel(logging.CRITICAL)  # requests that are no HTTP are no errors
BODY_SECONDS = 10.0  # in which the body of a request must arrive
ANSWER_SECONDS = 30.0  # in which a client must read a response, except for buffers
CONNECTIONS: dict[str, Any] = {
    "logger": _http_logger,
    "access_log": None,
    "handler_cancellation": True,  # of clients that have gone
    "keepalive_timeout": 30.0,  # seconds in which the header of a request must arrive
    "shutdown_timeout": 30.0,  # seconds for requests to end after SIGTERM
}
_PAGE = pathlib.Path(__file__).with_name("page")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src "
    "'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
_LOCAL = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)?", re.IGNORECASE)


class RestServer:
    """Handlers of the server's URLs. With `local`, a page of another site cannot reach
    them by a name that it controls: requests must name this machine as their host."""

    def __init__(self, servable: Servable, limits: ServerLimits, local: bool = True):
        self._servable, self._limits, self._local = servable, limits, local
        self._pool = futures.ThreadPoolExecutor(limits.threads, "predict")
        self._unanswered = 0

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(
            middlewares=[self._errors], client_max_size=self._limits.bytes
        )
        app.on_response_prepare.append(_add_headers)
        app.router.add_get("/", self._page)
        app.router.add_static("/page", _PAGE)
        model = f"/v1/models/{self._servable.name}"
        for prefix in (model, f"{model}/versions/{self._servable.version}"):
            app.router.add_get(prefix, self._status)
            app.router.add_get(f"{prefix}/metadata", self._metadata)
            app.router.add_post(f"{prefix}:predict", self._predict)
        return app

    @web.middleware
    async def _errors(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        """Return errors as TF Serving's JSON."""
        try:
            self._check_origin(request)
            return await handler(request)
        except web.HTTPException as error:
            refusal = error
        except ConnectionError:
            raise
        except Exception:
            _logger.exception("a request failed")
            refusal = web.HTTPInternalServerError(text="Internal error; see the log")
        if refusal.status == 404:
            refusal.text = f"Servable not found for request: {request.path[:200]}"
        refusal.text = json.dumps({"error": refusal.text})
        refusal.content_type = "application/json"
        raise refusal

    def _check_origin(self, request: web.Request) -> None:
        """Refuse requests that a page of another site sends from a browser here."""
        headers = request.headers
        if self._local and not _LOCAL.fullmatch(headers.get("Host", "localhost")):
            raise web.HTTPForbidden(text="Host must be this machine: localhost")
        if request.method == "POST" and headers.get("Sec-Fetch-Site") == "cross-site":
            raise web.HTTPForbidden(text="A page of another site sent the request")

    async def _page(self, request: web.Request) -> web.Response:
        facts = {"name": self._servable.name, **self._servable.about}
        text = (_PAGE / "page.html").read_text(encoding="utf-8")
        text = text.replace("{facts}", html.escape(json.dumps(facts)))
        return web.Response(text=text, content_type="text/html")

    async def _status(self, request: web.Request) -> web.Response:
        status = {
            "version": str(self._servable.version),
            "state": "AVAILABLE",
            "status": {"error_code": "OK", "error_message": ""},
        }
        return web.json_response({"model_version_status": [status]})

    async def _metadata(self, request: web.Request) -> web.Response:
        name, version = self._servable.name, str(self._servable.version)
        signatures = {
            key: {
                "inputs": _infos(signature.inputs),
                "outputs": _infos(signature.outputs),
                "method_name": "tensorflow/serving/predict",
            }
            for key, signature in self._servable.signatures.items()
        }
        about = self._servable.about
        names = {key: about[key] for key in ("columns", "labels") if key in about}
        answer = {
            "model_spec": {"name": name, "signature_name": "", "version": version},
            "metadata": {"signature_def": {"signature_def": signatures}, **names},
        }
        return web.json_response(answer)

    async def _predict(self, request: web.Request) -> web.Response:
        if self._unanswered >= self._limits.waiting:
            raise web.HTTPServiceUnavailable(
                text="The server has too many requests", headers={"Retry-After": "1"}
            )
        self._unanswered += 1
        try:
            body, loop = await self._body(request), asyncio.get_running_loop()
            answer = await loop.run_in_executor(
                self._pool, predict, self._servable, body
            )
            response = web.Response(body=answer, content_type="application/json")
            await response.prepare(request)
            try:
                await asyncio.wait_for(response.write_eof(), ANSWER_SECONDS)
            except TimeoutError:
                if request.transport:
                    request.transport.abort()
            return response
        finally:
            self._unanswered -= 1

    async def _body(self, request: web.Request) -> bytes:
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise web.HTTPUnsupportedMediaType(text="A request must not be compressed")
        if (size := request.content_length or 0) > self._limits.bytes:
            raise web.HTTPRequestEntityTooLarge(self._limits.bytes, size)
        # `wait_for` of Python 3.11 may lose the cancellation of a client that has gone.
        late = asyncio.get_running_loop().call_later(
            BODY_SECONDS, request.content.set_exception, TimeoutError()
        )
        try:
            return await request.read()
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(text="The body is too slow") from error
        except web.RequestPayloadError as error:
            raise web.HTTPBadRequest(text="The chunks are invalid") from error
        finally:
            late.cancel()


def predict(servable: Servable, body: bytes) -> bytes:
    """Return the response to the body of a request."""
    inputs_of = {name: of.inputs for name, of in servable.signatures.items()}
    about = servable.about
    try:
        call = http_json.decode(body, inputs_of, about.get("columns", {}))
        outputs = servable.signatures[call.signature](call.arrays)
        if call.by_name:
            return http_json.encode_by_name(outputs, call.arrays, about)
        return http_json.encode(outputs, call.by_rows)
    except tf.errors.InvalidArgumentError as error:
        raise web.HTTPBadRequest(text=error_message(error)) from error
    except InputError as error:
        raise web.HTTPBadRequest(text=str(error)) from error


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def _infos(specs: Mapping[str, tf.TensorSpec]) -> dict[str, Any]:
    """Return types and shapes as TF Serving writes them."""
    return {
        name: {
            "dtype": compat.dtype_name(spec.dtype),
            "tensor_shape": {
                "dim": [{"size": str(n or -1), "name": ""} for n in spec.shape],
                "unknown_rank": False,
            },
            "name": name,
        }
        for name, spec in specs.items()
    }


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0: any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError(
            f"--host={host} --port={port}: {error.strerror or error}; pass another "
            "--port, or --port=0 for any free one"
        ) from error


def _example_body(servable: Servable) -> str:
    """Return the body of a request, with the columns of training if each is a text."""
    signatures, columns = servable.signatures, servable.about.get("columns", {})
    # A tagger's default signature takes words that spaces divide.
    name = "entities" if "entities" in signatures else http_json.DEFAULT
    is_default = name == http_json.DEFAULT
    if not is_default or any(len(names) != 1 for names in columns.values()):
        columns = {}
    row = {
        columns.get(key, [key])[0]: "A text." if len(spec.shape) == 1 else ["a", "b"]
        for key, spec in signatures[name].inputs.items()
    }
    other = {} if is_default else {"signature_name": name}
    return json.dumps(other | {"instances": [row]})


def serve(servable: Servable, listener: socket.socket, limits: ServerLimits) -> None:
    """Serve a model until SIGTERM or SIGINT; requests that run are then answered."""
    address, port = listener.getsockname()[:2]
    local = ipaddress.ip_address(address).is_loopback
    if not local:
        print(
            "warning: other machines can reach this server, which has no passwords and "
            "no encryption; use --host=127.0.0.1, or a proxy with both",
            file=sys.stderr,
        )
    body = shlex.quote(_example_body(servable))
    url = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
    print(
        f"Serving {servable.name}, version {servable.version}, for one machine; for "
        "more, export the model for TF Serving, Triton or KServe.\n"
        f"  page     {url}/\n"
        f"  predict  curl {url}/v1/models/{servable.name}:predict -d {body}\n"
        "Ctrl-C or SIGTERM stops it.",
        flush=True,
    )
    app = RestServer(servable, limits, local).app()
    web.run_app(app, sock=listener, print=None, **CONNECTIONS)
    print("stopped", flush=True)
