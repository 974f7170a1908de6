"""The client of `serve_check`: sends, times, compares, takes note."""

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

NAME, DEADLINE, TOLERANCE = "model", 60.0, 1e-5
# What says that the request is wrong, not that the server is.
POLITE = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
}
Compare = Callable[[requests.Case, requests.Inputs], str]


@dataclasses.dataclass
class Tally:
    """What became of a series of requests."""

    name: str
    seconds: float = 0.0
    answers: list[float] = dataclasses.field(default_factory=list)
    """Milliseconds of each."""
    errors: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )
    faults: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        count = len(self.answers) + self.errors.total() + len(self.faults)
        p50, p99 = np.percentile(self.answers or [np.nan], [50, 99])
        errors = ", ".join(f"{of} {name}" for name, of in self.errors.most_common())
        return (
            f"{self.name:14}{count:9,}{len(self.answers):9,}{self.errors.total():8,}"
            f"{len(self.faults):8,}{p50:9.1f}{p99:9.1f}"
            f"{count / max(self.seconds, 1e-9):10,.0f}  {errors}"
        )


class Client:
    """Speaks TF Serving's protocol with the server at a port."""

    def __init__(self, port: int):
        size = [("grpc.max_receive_message_length", -1)]
        self._channel = grpc.insecure_channel(f"localhost:{port}", options=size)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)

    def signatures(self) -> list[requests.Signature]:
        """What the server tells of itself."""
        request = get_model_metadata_pb2.GetModelMetadataRequest()
        request.model_spec.name = NAME
        request.metadata_field.append("signature_def")
        response = self._stub.GetModelMetadata(request, timeout=DEADLINE)
        found = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(found)
        return [
            requests.Signature(name, _described(of.inputs, len), _described(of.outputs))
            for name, of in sorted(found.signature_def.items())
            if not name.startswith("__")
        ]

    def predict(self, case: requests.Case) -> requests.Inputs:
        """The answer; `grpc.RpcError` where there is none."""
        request = predict_pb2.PredictRequest()
        request.model_spec.name = NAME
        request.model_spec.signature_name = case.asked or case.signature.name
        for name, array in case.inputs.items():
            dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
            message = tf.make_tensor_proto(array, dtype, array.shape)
            request.inputs[name].CopyFrom(message)
        response = self._stub.Predict(request, timeout=DEADLINE)
        return {name: tf.make_ndarray(of) for name, of in response.outputs.items()}

    def refuses_classify(self) -> bool:
        """Whether it says that it has no Classify."""
        try:
            request = classification_pb2.ClassificationRequest()
            self._stub.Classify(request, timeout=DEADLINE)
        except grpc.RpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED
        return False


def _described(infos: Any, of_shape: Callable[..., Any] = tuple) -> dict[str, Any]:
    return {
        name: (
            np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype),
            of_shape([dim.size for dim in info.tensor_shape.dim]),
        )
        for name, info in sorted(infos.items())
    }


class Direct:
    """The SavedModel called in this process, without a server."""

    def __init__(self, folder: str, cases: list[requests.Case]):
        loaded = tf.saved_model.load(folder)
        self._said = {}
        for case in cases:
            run = loaded.signatures[case.signature.name]
            inputs = {
                name: tf.constant(array, tf.string if array.dtype == object else None)
                for name, array in case.inputs.items()
            }
            found = {name: of.numpy() for name, of in run(**inputs).items()}
            self._said[id(case)] = found

    def differs(self, case: requests.Case, answer: requests.Inputs) -> str:
        """Where an answer is another, in words."""
        for name, said in self._said[id(case)].items():
            array = answer[name]
            if array.shape != said.shape:
                return f"{name} is {array.shape}, directly {said.shape}"
            if array.dtype.kind != "f":
                if not np.array_equal(array, said):
                    return f"{name} is {array}, directly {said}"
            elif not np.allclose(array, said, rtol=TOLERANCE, atol=TOLERANCE):
                far = np.abs(array - said).max()
                return f"{name} differs from the direct call's by up to {far:.2g}"
        return ""


def send(client: Client, case: requests.Case, compare: Compare, tally: Tally) -> str:
    """Sends one request and takes note; returns how it ended."""
    start = time.perf_counter()
    try:
        answer = client.predict(case)
    except grpc.RpcError as error:
        code, words = error.code(), (error.details() or "").strip()
        ended = f"{code.name}: {' '.join(words.split())[:150]}"
        if case.wanted == requests.ANSWER or code not in POLITE or not words:
            tally.faults.append(f"{case.name}: {ended}")
        else:
            tally.errors[code.name] += 1
        return ended
    milliseconds = (time.perf_counter() - start) * 1e3
    fault = case.fault_of(answer) or compare(case, answer)
    if fault:
        tally.faults.append(f"{case.name}: {fault}")
        return fault
    tally.answers.append(milliseconds)
    return f"an answer of {case.rows} rows"


def send_all(
    client: Client,
    count: int,
    threads: int,
    tally: Tally,
    case_of: Callable[[int], requests.Case],
    compare: Compare = lambda case, answer: "",
) -> None:
    """Sends the requests 0 to `count` - 1 from several threads."""
    parts = [Tally(tally.name) for _ in range(threads)]

    def work(thread: int) -> None:
        for number in range(thread, count, threads):
            send(client, case_of(number), compare, parts[thread])

    start = time.perf_counter()
    with futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))  # which raises what a thread raised
    tally.seconds += time.perf_counter() - start
    for part in parts:
        tally.answers += part.answers
        tally.errors += part.errors
        tally.faults += part.faults
