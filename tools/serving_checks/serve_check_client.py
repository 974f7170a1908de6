"""Client of `serve_check`: sends and times requests, compares responses."""

import collections
import dataclasses
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc
import numpy as np
import serve_check_requests as requests
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its operations)
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

EXPAND = ("expand", "1")  # metadata of serve_check_server.py
NAME, DEADLINE, TOLERANCE = "model", 60.0, 1e-5
# Statuses of an invalid request; others mean a failure of the server.
CLIENT_ERRORS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
}
Compare = Callable[[requests.Case, requests.Arrays], str]


@dataclasses.dataclass
class Tally:
    """Results of a series of requests."""

    name: str
    seconds: float = 0.0
    latencies: list[float] = dataclasses.field(default_factory=list)
    """Milliseconds of each correct response."""
    errors: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )
    failures: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        responses, errors = len(self.latencies), self.errors.total()
        count = responses + errors + len(self.failures)
        p50, p99 = np.percentile(self.latencies or [np.nan], [50, 99])
        codes = ", ".join(f"{n} {code}" for code, n in self.errors.most_common())
        return (
            f"{self.name:14}{count:9,}{responses:10,}{errors:8,}"
            f"{len(self.failures):9,}{p50:9.1f}{p99:9.1f}"
            f"{count / max(self.seconds, 1e-9):10,.0f}  {codes}"
        )


class Client:
    """Client of TF Serving's gRPC protocol at a local port."""

    def __init__(self, port: int):
        size = [("grpc.max_receive_message_length", -1)]
        self._channel = grpc.insecure_channel(f"localhost:{port}", options=size)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._send_bytes = self._channel.unary_unary(
            "/tensorflow.serving.PredictionService/Predict"
        )

    def signatures(self) -> list[requests.Signature]:
        """Return the signatures in the server's metadata."""
        request = get_model_metadata_pb2.GetModelMetadataRequest()
        request.model_spec.name = NAME
        request.metadata_field.append("signature_def")
        response = self._stub.GetModelMetadata(request, timeout=DEADLINE)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        return [
            requests.Signature(name, _specs(item.inputs, len), _specs(item.outputs))
            for name, item in sorted(signatures.signature_def.items())
            if not name.startswith("__")
        ]

    def predict(self, case: requests.Case) -> requests.Arrays:
        """Return the response, or raise `grpc.RpcError`."""
        request = predict_pb2.PredictRequest()
        request.model_spec.name = NAME
        request.model_spec.signature_name = (
            case.requested_signature or case.signature.name
        )
        for name, array in case.inputs.items():
            dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
            message = tf.make_tensor_proto(array, dtype, array.shape)
            request.inputs[name].CopyFrom(message)
        response = self._stub.Predict(request, timeout=DEADLINE)
        return {
            name: tf.make_ndarray(array) for name, array in response.outputs.items()
        }

    def send_message(
        self, signature: str, tensors: dict[str, Any], expand: bool, deadline: float
    ) -> None:
        """Send tensors as they are, or raise `grpc.RpcError`.

        Args:
            signature: Name of the signature.
            tensors: Messages by input.
            expand: Whether the server skips its check of declared shapes.
            deadline: Seconds.
        """
        request = predict_pb2.PredictRequest()
        request.model_spec.name = NAME
        request.model_spec.signature_name = signature
        for name, message in tensors.items():
            request.inputs[name].CopyFrom(message)
        metadata = [EXPAND] if expand else []
        self._stub.Predict(request, timeout=deadline, metadata=metadata)

    def send_bytes(self, request: bytes, deadline: float) -> None:
        """Send bytes in place of a request, or raise `grpc.RpcError`.

        Args:
            request: Any bytes.
            deadline: Seconds.
        """
        self._send_bytes(request, timeout=deadline)

    def classify_is_unimplemented(self) -> bool:
        """Return whether Classify returns UNIMPLEMENTED."""
        try:
            request = classification_pb2.ClassificationRequest()
            self._stub.Classify(request, timeout=DEADLINE)
        except grpc.RpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED
        return False


def _specs(infos: Any, convert_shape: Callable[..., Any] = tuple) -> dict[str, Any]:
    """Return types and shapes by name."""
    return {
        name: (
            np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype),
            convert_shape([dim.size for dim in info.tensor_shape.dim]),
        )
        for name, info in sorted(infos.items())
    }


class Direct:
    """Outputs of the SavedModel, called in this process without a server."""

    def __init__(self, folder: str, cases: list[requests.Case]):
        loaded = tf.saved_model.load(folder)
        self._expected = {}
        for case in cases:
            run = loaded.signatures[case.signature.name]
            inputs = {
                name: tf.constant(array, tf.string if array.dtype == object else None)
                for name, array in case.inputs.items()
            }
            outputs = {name: tensor.numpy() for name, tensor in run(**inputs).items()}
            self._expected[id(case)] = outputs

    def compare(self, case: requests.Case, response: requests.Arrays) -> str:
        """Return a description of the first difference, or an empty string."""
        for name, expected in self._expected[id(case)].items():
            array = response[name]
            if array.shape != expected.shape:
                return f"{name} is {array.shape}, directly {expected.shape}"
            if array.dtype.kind != "f":
                if not np.array_equal(array, expected):
                    return f"{name} is {array}, directly {expected}"
            elif not np.allclose(array, expected, rtol=TOLERANCE, atol=TOLERANCE):
                difference = np.abs(array - expected).max()
                return f"{name} differs from the direct call by up to {difference:.2g}"
        return ""


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
            tally.errors[code.name] += 1
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
    count: int,
    threads: int,
    tally: Tally,
    make_case: Callable[[int], requests.Case],
    compare: Compare = lambda case, response: "",
) -> None:
    """Send the requests 0 to `count` - 1 from several threads."""
    tallies = [Tally(tally.name) for _ in range(threads)]

    def send_share(thread: int) -> None:
        for number in range(thread, count, threads):
            send(client, make_case(number), compare, tallies[thread])

    start = time.perf_counter()
    with futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(send_share, range(threads)))  # raises exceptions of the threads
    tally.seconds += time.perf_counter() - start
    for thread_tally in tallies:
        tally.latencies += thread_tally.latencies
        tally.errors += thread_tally.errors
        tally.failures += thread_tally.failures
