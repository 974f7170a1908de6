"""Server process and clients of `serve_check`."""

import base64
import collections
import contextlib
import dataclasses
import http.client
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from typing import Any, ClassVar

import grpc
import numpy as np
import serve_check_requests as requests
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its operations)
from serve_check_server import EXPAND
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

DEADLINE = 60.0
# Statuses of an invalid request; others mean that the server failed, hung or ended.
_INVALID_GRPC = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE"}
_INVALID_HTTP = {400, 413}
Compare = Callable[[requests.Case, requests.Arrays], str]


class RejectedError(Exception):
    """A request without a response; `is_invalid` if it is at fault, not the server."""

    def __init__(self, code: str, message: str, is_invalid: bool):
        self.code, self.message, self.is_invalid = code, message, is_invalid


class Server:
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
    def __init__(self, address: str):
        size = [("grpc.max_receive_message_length", -1)]
        channel = grpc.insecure_channel(address, options=size)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

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
            code, message = error.code().name, error.details() or ""
            raise RejectedError(code, message, code in _INVALID_GRPC) from error
        return {name: tf.make_ndarray(x) for name, x in response.outputs.items()}


class HttpClient:
    def __init__(self, address: str, name: str):
        self._address, self._path = address, f"/v1/models/{name}:predict"
        self._local = threading.local()

    def can_send(self, case: requests.Case) -> bool:
        """Return whether JSON can express a case."""
        return all(_to_json(message) is not None for message in case.tensors.values())

    def predict(self, case: requests.Case) -> requests.Arrays:
        inputs = {key: _to_json(message) for key, message in case.tensors.items()}
        body = {"signature_name": case.signature.name, "inputs": inputs}
        try:
            status, answer = self._call(json.dumps(body))
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

    def _call(self, body: str) -> tuple[int, Any]:
        """Return the status and the value of a response."""
        if not hasattr(self._local, "connection"):
            connection = http.client.HTTPConnection(self._address, timeout=DEADLINE)
            self._local.connection = connection
        self._local.connection.request("POST", self._path, body)
        response = self._local.connection.getresponse()
        return response.status, json.loads(response.read())


def _to_json(message: requests.Message) -> Any:
    """Return a message as nested lists; None if JSON has no such value."""
    shape = requests.shape_of(message)
    if not requests.is_complete(message) or (0 in shape and len(shape) > 1):
        return None
    array = tf.make_ndarray(message)
    return (
        np.vectorize(_text, [object])(array) if message.string_val else array
    ).tolist()


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


@dataclasses.dataclass
class Tally:
    HEADER: ClassVar[str] = (
        f"{'':10}{'requests':>10}{'responses':>10}{'errors':>8}{'failures':>9}"
    )
    name: str
    responses: list[str] = dataclasses.field(default_factory=list)  # names
    errors: list[str] = dataclasses.field(default_factory=list)  # statuses
    failures: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        sizes = [*map(len, (self.responses, self.errors, self.failures))]
        codes = collections.Counter(self.errors).most_common()
        return (
            f"{self.name:10}{sum(sizes):10,}{sizes[0]:10,}{sizes[1]:8,}{sizes[2]:9,}  "
            + ", ".join(f"{number} {code}" for code, number in codes)
        )


def send(
    client: GrpcClient | HttpClient,
    case: requests.Case,
    tally: Tally,
    compare: Compare = lambda case, response: "",
) -> str:
    """Send one request, count its result, and return a description of it."""
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
    if failure := case.validate(response) or compare(case, response):
        tally.failures.append(f"{case.name}: {failure}")
        return failure
    tally.responses.append(case.name)
    return f"a response of {case.rows} rows"


def send_all(
    client: GrpcClient | HttpClient,
    cases: Iterable[requests.Case],
    threads: int,
    tally: Tally,
    compare: Compare = lambda case, response: "",
) -> None:
    with futures.ThreadPoolExecutor(threads) as pool:
        sent = pool.map(lambda case: send(client, case, tally, compare), cases)
        collections.deque(sent, maxlen=0)  # raises exceptions of the threads
