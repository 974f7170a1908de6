"""Server process and clients of `serve_check`; requests are timed and compared."""

import base64
import collections
import contextlib
import dataclasses
import http.client
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, ClassVar

import grpc
import numpy as np
import serve_check_requests as requests
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its operations)
from google.protobuf import json_format
from serve_check_server import EXPAND, read_signatures
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from electra_tf.serving.validate import TOLERANCE, max_difference

DEADLINE = 60.0
# Statuses of an invalid request; others mean that the server failed, hung or ended.
_INVALID_GRPC = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE"}
_INVALID_HTTP = {400, 413}
Compare = Callable[[requests.Case, requests.Arrays], str]


class RejectedError(Exception):
    """A request without a response.

    Args:
        code: Its status, or the type of another error.
        message: The reason.
        is_invalid: Whether the request is at fault, not the server.
    """

    def __init__(self, code: str, message: str, is_invalid: bool):
        self.code, self.message, self.is_invalid = code, message, is_invalid


class Server:
    """Server process, with its standard error in a file."""

    def __init__(self, process: subprocess.Popen[str], errors: Any):
        self.process, self._errors = process, errors
        for line in process.stdout:
            if found := re.search(r"[\w.]+:\d+", line):
                self.address, self.started = found[0], line.strip()
                return
        sys.exit(self.last_errors() or "error: the server ended without a message")

    def last_errors(self) -> str:
        self._errors.seek(0)
        return "".join(self._errors.readlines()[-5:]).strip()

    def memory(self, key: str = "VmRSS") -> float:
        """Return resident MiB, or with VmHWM their peak."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        if found := re.search(rf"^{key}:\s+(\d+) kB", status, re.MULTILINE):
            return int(found[1]) / 1024
        sys.exit(f"error: the server ended: {self.last_errors()}")

    def reset_peak(self) -> None:
        """Let the peak of memory begin again, where the kernel allows it."""
        with contextlib.suppress(OSError):
            pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


@contextlib.contextmanager
def run_server(command: Sequence[str]) -> Iterator[Server]:
    """Run a server until the block ends."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stderr=errors, text=True, **pipes) as process,
    ):
        try:
            yield Server(process, errors)
        finally:
            process.terminate()
            try:
                process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()


class GrpcClient:
    """Client of TF Serving's `Predict` for a SavedModel."""

    def __init__(self, address: str, folder: pathlib.Path):
        size = [("grpc.max_receive_message_length", -1)]
        channel = grpc.insecure_channel(address, options=size)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self._folder = folder

    def signatures(self) -> list[requests.Signature]:
        return _signatures(read_signatures(self._folder))

    def can_send(self, case: requests.Case) -> bool:
        """Return whether the protocol can express a case."""
        return True

    def predict(self, case: requests.Case) -> requests.Arrays:
        request = predict_pb2.PredictRequest()
        request.model_spec.signature_name = case.signature.name
        for key, message in case.tensors.items():
            request.inputs[key].CopyFrom(message)
        metadata = [EXPAND] if case.expand else []
        try:
            response = self._stub.Predict(request, timeout=DEADLINE, metadata=metadata)
        except grpc.RpcError as error:
            code = error.code().name
            message = error.details() or ""
            raise RejectedError(code, message, code in _INVALID_GRPC) from error
        return {
            name: tf.make_ndarray(array) for name, array in response.outputs.items()
        }


class HttpClient:
    """Client of `electra-tf serve`, with a connection for each thread."""

    def __init__(self, address: str, name: str):
        self._address, self._path = address, f"/v1/models/{name}"
        self._local = threading.local()

    def signatures(self) -> list[requests.Signature]:
        _, answer = self._call(f"{self._path}/metadata")
        self._local.connection.close()
        definition = answer["metadata"]["signature_def"]
        message = get_model_metadata_pb2.SignatureDefMap()
        return _signatures(json_format.ParseDict(definition, message).signature_def)

    def can_send(self, case: requests.Case) -> bool:
        """Return whether JSON can express a case."""
        return all(_to_json(message) is not None for message in case.tensors.values())

    def predict(self, case: requests.Case) -> requests.Arrays:
        inputs = {key: _to_json(message) for key, message in case.tensors.items()}
        body = {"signature_name": case.signature.name, "inputs": inputs}
        try:
            status, answer = self._call(f"{self._path}:predict", json.dumps(body))
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._local.connection.close()
            raise RejectedError(type(error).__name__, repr(error), False) from error
        if status != 200:
            is_invalid = status in _INVALID_HTTP
            raise RejectedError(str(status), answer["error"], is_invalid)
        outputs, expected = answer["outputs"], case.signature.outputs
        if len(expected) == 1:
            outputs = dict.fromkeys(expected, outputs)
        return {name: _from_json(outputs[name], *expected[name]) for name in outputs}

    def _call(self, path: str, body: str | None = None) -> tuple[int, Any]:
        """Return the status and the value of a response; a body is posted."""
        if not hasattr(self._local, "connection"):
            self._local.connection = http.client.HTTPConnection(
                self._address, timeout=DEADLINE
            )
        self._local.connection.request("POST" if body else "GET", path, body)
        response = self._local.connection.getresponse()
        return response.status, json.loads(response.read())


def _signatures(definitions: Mapping[str, Any]) -> list[requests.Signature]:
    """Return signatures from TensorFlow's messages."""
    signatures = []
    for name, item in definitions.items():
        outputs = {
            key: (
                np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype),
                tuple(dim.size for dim in info.tensor_shape.dim),
            )
            for key, info in item.outputs.items()
        }
        types = {info.dtype for info in item.inputs.values()}
        takes_strings = types == {types_pb2.DT_STRING}
        inputs = tuple(sorted(item.inputs))
        signatures.append(requests.Signature(name, inputs, takes_strings, outputs))
    return signatures


def _to_json(message: requests.Message) -> Any:
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


def _from_json(values: list, dtype: np.dtype, shape: Sequence[int]) -> np.ndarray:
    """Return an output as an array; an empty one has 0 in its dynamic axes."""
    array = np.array(values, dtype)
    if not array.size:
        return array.reshape(len(values), *(max(0, size) for size in shape[1:]))
    return np.vectorize(str.encode, [object])(array) if dtype.kind == "O" else array


class Direct:
    """Outputs of the SavedModel, called in this process without a server."""

    def __init__(self, folder: pathlib.Path, cases: Iterable[requests.Case]):
        functions = tf.saved_model.load(str(folder)).signatures
        self._expected = {
            id(case): requests.call(functions[case.signature.name], case)
            for case in cases
        }

    def compare(self, case: requests.Case, response: requests.Arrays) -> str:
        """Return a description of the first difference, or an empty string."""
        for name, expected in self._expected[id(case)].items():
            difference = max_difference(response[name], expected)
            if difference > TOLERANCE:
                return f"{name} differs from the direct call by {difference:.2g}"
        return ""


@dataclasses.dataclass
class Tally:
    """Results of a series of requests."""

    HEADER: ClassVar[str] = (
        f"{'':10}{'requests':>10}{'responses':>10}{'errors':>8}{'failures':>9}"
        f"{'p50 ms':>9}{'p90':>8}{'p99':>8}{'max':>9}{'req/s':>9}"
    )
    name: str
    seconds: float = 0.0
    latencies: list[float] = dataclasses.field(default_factory=list)
    """Milliseconds of each correct response."""
    errors: list[str] = dataclasses.field(default_factory=list)
    """Status of each invalid request."""
    failures: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        responses, errors = len(self.latencies), len(self.errors)
        count = responses + errors + len(self.failures)
        points = np.percentile(self.latencies or [np.nan], [50, 90, 99, 100])
        p50, p90, p99, largest = points
        codes = ", ".join(
            f"{n} {code}" for code, n in collections.Counter(self.errors).most_common()
        )
        return (
            f"{self.name:10}{count:10,}{responses:10,}{errors:8,}"
            f"{len(self.failures):9,}{p50:9.1f}{p90:8.1f}{p99:8.1f}{largest:9.1f}"
            f"{count / max(self.seconds, 1e-9):9,.0f}  {codes}"
        )


def send(
    client: GrpcClient | HttpClient,
    case: requests.Case,
    tally: Tally,
    compare: Compare = lambda case, response: "",
) -> str:
    """Send one request, count its result, and return a description of it."""
    start = time.perf_counter()
    try:
        response = client.predict(case)
    except RejectedError as error:
        result = f"{error.code}: {' '.join(error.message.split())[:150]}"
        is_expected = error.is_invalid and case.expected != requests.RESPONSE
        if is_expected and error.message:
            tally.errors.append(error.code)
        else:
            tally.failures.append(f"{case.name}: {result}")
        return result
    milliseconds = (time.perf_counter() - start) * 1e3
    if failure := case.validate(response) or compare(case, response):
        tally.failures.append(f"{case.name}: {failure}")
        return failure
    tally.latencies.append(milliseconds)
    return f"a response of {case.rows} rows"


def send_all(
    client: GrpcClient | HttpClient,
    cases: Iterable[requests.Case],
    threads: int,
    tally: Tally,
    compare: Compare = lambda case, response: "",
) -> None:
    """Send requests from several threads."""
    start = time.perf_counter()
    with futures.ThreadPoolExecutor(threads) as pool:
        sent = pool.map(lambda case: send(client, case, tally, compare), cases)
        collections.deque(sent, maxlen=0)  # raises exceptions of the threads
    tally.seconds += time.perf_counter() - start
