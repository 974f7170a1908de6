"""Serve a SavedModel with TF Serving's gRPC protocol, in Python.

Imports only TensorFlow, tensorflow-text, gRPC and TF Serving's messages, nothing of
this project. As TF Serving, it serves the newest version, runs the warm-up requests
before it accepts others, runs the graph with feeds and fetches, and returns the same
error codes. It implements `Predict` only.

Only the graph validates shapes, with one exception. A message of a kilobyte can declare
a shape of millions and hold one value, which is repeated before the graph runs. This
server compares the declared sizes with the limits in `about.json` and rejects larger
ones; TF Serving does not, so a proxy before it must. A request with the metadata
`expand: 1` skips this check.

Prints a line with its port, and stops when its standard input ends.
"""

import argparse
import contextlib
import json
import math
import pathlib
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its operations)
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)

WARMUP = pathlib.PurePath("assets.extra", "tf_serving_warmup_requests")
ABOUT = pathlib.PurePath("assets.extra", "about.json")
EXPAND = ("expand", "1")
MAX_MESSAGE_LENGTH = 1024
CODES = {code.value[0]: code for code in grpc.StatusCode}


def newest_version(model: str) -> pathlib.Path:
    folders = [path for path in pathlib.Path(model).glob("*") if path.name.isdecimal()]
    if not folders:
        sys.exit(f"error: {model} must contain a folder named by a number, such as 1")
    return max(folders, key=lambda path: int(path.name))


def read_signatures(folder: pathlib.Path) -> dict[str, Any]:
    message = (folder / "saved_model.pb").read_bytes()
    (graph,) = saved_model_pb2.SavedModel.FromString(message).meta_graphs
    names = (name for name in graph.signature_def if not name.startswith("__"))
    return {name: graph.signature_def[name] for name in sorted(names)}


def read_about(folder: pathlib.Path) -> dict[str, Any]:
    """Return the facts of an export; empty for another SavedModel."""
    path = folder / ABOUT
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict with TF Serving's errors."""

    def __init__(self, folder: pathlib.Path):
        self._warmup = folder / WARMUP
        self._signatures = read_signatures(folder)
        self._limits = read_about(folder).get("limits", {})
        self._feeds = {}
        with tf.Graph().as_default():
            # Python compares a feed with its placeholder's shape, TF Serving does not,
            # so placeholders of unknown shape replace those of the graph.
            for signature in self._signatures.values():
                for info in signature.inputs.values():
                    name = "any_shape/" + info.name.split(":")[0]
                    dtype = tf.as_dtype(info.dtype)
                    self._feeds[info.name] = tf.compat.v1.placeholder(dtype, name=name)
            self._session = tf.compat.v1.Session()
            tf.compat.v1.saved_model.load(
                self._session, ["serve"], str(folder), input_map=self._feeds
            )

    def warm_up(self) -> int:
        if not self._warmup.exists():
            return 0
        records = [*tf.data.TFRecordDataset(str(self._warmup)).as_numpy_iterator()]
        for record in records:
            log = prediction_log_pb2.PredictionLog.FromString(record)
            self._predict(log.predict_log.request)
        return len(records)

    def Predict(self, request: Any, context: grpc.ServicerContext):  # noqa: N802
        with _abort_on_error(context):
            if EXPAND not in context.invocation_metadata():
                _check_declared_sizes(request.inputs, self._limits)
            return self._predict(request)

    def _predict(self, request: Any) -> Any:
        signature = self._signatures[request.model_spec.signature_name]
        feeds = {}
        for key, info in signature.inputs.items():
            message = request.inputs[key].SerializeToString()
            feeds[self._feeds[info.name]] = tf.io.parse_tensor(message, info.dtype)
        feeds = {placeholder: tensor.numpy() for placeholder, tensor in feeds.items()}
        fetches = {key: info.name for key, info in signature.outputs.items()}
        response = predict_pb2.PredictResponse()
        for key, array in self._session.run(fetches, feeds).items():
            dtype = tf.as_dtype(signature.outputs[key].dtype)
            array = np.asarray(array, object if dtype == tf.string else None)
            message = tf.make_tensor_proto(array, dtype, array.shape)
            response.outputs[key].CopyFrom(message)
        return response


def _check_declared_sizes(inputs: Any, limits: dict[str, int]) -> None:
    """Reject what the graph would reject after expanding it to the declared shape."""
    for name, message in inputs.items():
        values = message.string_val
        limit = "rows" if message.dtype == tf.string.as_datatype_enum else "positions"
        shape = [dim.size for dim in message.tensor_shape.dim]
        count = math.prod(shape)
        # The last value is repeated.
        size = sum(map(len, values))
        size += max(0, count - len(values)) * len(values[-1]) if values else 0
        for key, number in ((limit, count), ("bytes", size)):
            if number > limits.get(key, number):
                raise ValueError(
                    f"{name} must have at most {limits[key]} {key}. Received: a "
                    f"message that declares the shape {shape[:8]}. Send it in parts."
                )


@contextlib.contextmanager
def _abort_on_error(context: grpc.ServicerContext) -> Iterator[None]:
    """Convert errors to gRPC statuses. A bug of this file has the status UNKNOWN."""
    try:
        yield
    except tf.errors.OpError as error:
        code, message = CODES[error.error_code], error.message
    except (TypeError, ValueError) as error:
        # Rejected by Python, before TensorFlow.
        code, message = grpc.StatusCode.INVALID_ARGUMENT, str(error)
    else:
        return
    context.abort(code, message[:MAX_MESSAGE_LENGTH])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    start, folder = time.perf_counter(), newest_version(options.model)
    service = Service(folder)
    loaded = time.perf_counter() - start
    count = service.warm_up()
    seconds = time.perf_counter() - start - loaded
    unlimited = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
    ]
    server = grpc.server(futures.ThreadPoolExecutor(options.threads), options=unlimited)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    print(
        f"localhost:{port}: loaded in {loaded:.1f} s; {count} warm-up requests in "
        f"{seconds:.1f} s",
        flush=True,
    )
    sys.stdin.read()
    server.stop(1).wait()


if __name__ == "__main__":
    main()
