"""Server process and client of `serve_check`; requests are timed and compared."""

import collections
import contextlib
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Any, ClassVar

import grpc
import numpy as np
import serve_check_requests as requests
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its operations)
from serve_check_server import EXPAND, read_signatures
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from electra_tf.serving.validate import TOLERANCE, max_difference

SERVER = pathlib.Path(__file__).with_name("serve_check_server.py")
DEADLINE = 60.0
# Statuses of an invalid request; others mean that the server failed, hung or ended.
CLIENT_ERRORS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
}
_SAMPLE_SECONDS = 0.002
Compare = Callable[[requests.Case, requests.Arrays], str]


class Server:
    """Server process, with its standard error in a file."""

    def __init__(self, process: subprocess.Popen[str], errors: Any):
        self.process, self._errors = process, errors
        line = process.stdout.readline()
        if not line:
            process.wait()
            sys.exit(self.last_errors() or "error: the server ended without a message")
        self.info = json.loads(line)

    def last_errors(self) -> str:
        """Return the last lines of standard error."""
        self._errors.seek(0)
        return "".join(self._errors.readlines()[-5:]).strip()

    def memory(self) -> float:
        """Return resident MiB; NaN on systems without /proc."""
        path = pathlib.Path(f"/proc/{self.process.pid}/status")
        if not path.exists():
            return float("nan")
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
        return float(lines.get("VmRSS", "nan").split()[0]) / 1024

    @contextlib.contextmanager
    def sampled_memory(self) -> Iterator[list[float]]:
        """Yield samples of resident MiB, which are taken until the block ends."""
        samples, stop = [self.memory()], threading.Event()

        def sample() -> None:
            while not stop.wait(_SAMPLE_SECONDS):
                samples.append(self.memory())

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            yield samples
        finally:
            stop.set()
            sampler.join()


@contextlib.contextmanager
def run_server(model: str, threads: int) -> Iterator[Server]:
    """Run a server until the block ends."""
    command = [sys.executable, SERVER, f"--model={model}", f"--threads={threads}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stderr=errors, text=True, **pipes) as process,
    ):
        try:
            yield Server(process, errors)
        finally:
            process.stdin.close()  # ends the server
            try:
                process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()


class Client:
    """Client of TF Serving's `Predict` at a local port."""

    def __init__(self, port: int):
        size = [("grpc.max_receive_message_length", -1)]
        channel = grpc.insecure_channel(f"localhost:{port}", options=size)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def predict(self, case: requests.Case) -> requests.Arrays:
        """Return the response, or raise `grpc.RpcError`."""
        request = predict_pb2.PredictRequest()
        request.model_spec.signature_name = case.signature.name
        for key, message in case.tensors.items():
            request.inputs[key].CopyFrom(message)
        metadata = [EXPAND] if case.expand else []
        response = self._stub.Predict(request, timeout=DEADLINE, metadata=metadata)
        return {
            name: tf.make_ndarray(array) for name, array in response.outputs.items()
        }


def signatures_of(folder: str) -> list[requests.Signature]:
    """Return the signatures of a SavedModel."""
    signatures = []
    for name, item in read_signatures(pathlib.Path(folder)).items():
        outputs = {
            key: (
                np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype),
                tuple(dim.size for dim in info.tensor_shape.dim),
            )
            for key, info in item.outputs.items()
        }
        strings = {tf.as_dtype(info.dtype) for info in item.inputs.values()}
        signatures.append(
            requests.Signature(
                name, tuple(sorted(item.inputs)), strings == {tf.string}, outputs
            )
        )
    return signatures


class Direct:
    """Outputs of the SavedModel, called in this process without a server."""

    def __init__(self, folder: str, cases: list[requests.Case]):
        loaded = tf.saved_model.load(folder)
        self._expected = {}
        for case in cases:
            inputs = {
                name: tf.constant(tf.make_ndarray(message), message.dtype)
                for name, message in case.tensors.items()
            }
            outputs = loaded.signatures[case.signature.name](**inputs)
            self._expected[id(case)] = {
                name: tensor.numpy() for name, tensor in outputs.items()
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
        f"{'':14}{'requests':>9}{'responses':>10}{'errors':>8}{'failures':>9}"
        f"{'p50 ms':>9}{'p99 ms':>9}{'req/s':>10}"
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
        p50, p99 = np.percentile(self.latencies or [np.nan], [50, 99])
        codes = ", ".join(
            f"{n} {code}" for code, n in collections.Counter(self.errors).most_common()
        )
        return (
            f"{self.name:14}{count:9,}{responses:10,}{errors:8,}"
            f"{len(self.failures):9,}{p50:9.1f}{p99:9.1f}"
            f"{count / max(self.seconds, 1e-9):10,.0f}  {codes}"
        )


def send(client: Client, case: requests.Case, compare: Compare, tally: Tally) -> str:
    """Send one request, count its result, and return a description of it."""
    start = time.perf_counter()
    try:
        response = client.predict(case)
    except grpc.RpcError as error:
        code, message = error.code(), (error.details() or "").strip()
        result = f"{code.name}: {' '.join(message.split())[:150]}"
        unexpected = case.expected == requests.RESPONSE or code not in CLIENT_ERRORS
        if unexpected or not message:
            tally.failures.append(f"{case.name}: {result}")
        else:
            tally.errors.append(code.name)
        return result
    milliseconds = (time.perf_counter() - start) * 1e3
    failure = case.validate(response) or compare(case, response)
    if failure:
        tally.failures.append(f"{case.name}: {failure}")
        return failure
    tally.latencies.append(milliseconds)
    return f"a response of {case.rows} rows"


def send_all(
    client: Client,
    cases: Iterable[requests.Case],
    threads: int,
    tally: Tally,
    compare: Compare = lambda case, response: "",
) -> None:
    """Send requests from several threads."""
    start = time.perf_counter()
    with futures.ThreadPoolExecutor(threads) as pool:
        sent = pool.map(lambda case: send(client, case, compare, tally), cases)
        collections.deque(sent, maxlen=0)  # raises exceptions of the threads
    tally.seconds += time.perf_counter() - start
