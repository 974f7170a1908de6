"""Serve a SavedModel with TF Serving's gRPC protocol, in Python.

Imports only TensorFlow, tensorflow-text, gRPC and TF Serving's messages, nothing of
this project. As TF Serving, it serves the newest version, runs the warm-up requests
before it accepts others, and returns the same error codes. Runtimes:

  session    the graph with feeds and fetches, as in TF Serving
  function   the functions of `tf.saved_model.load`

With both, only the graph validates shapes, with one exception. A message of a kilobyte
can declare a shape of millions and hold one value, which is repeated before the graph
runs. This server compares the declared sizes with the limits in `about.json` and
rejects larger ones; TF Serving does not, so a proxy before it must. A request with the
metadata `expand: 1` skips this check.

Prints a line of JSON with its port, and stops when its standard input ends. It has no
batching, no REST API and no older versions.
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
    get_model_metadata_pb2,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)

DEFAULT = "serving_default"
WARMUP = pathlib.PurePath("assets.extra", "tf_serving_warmup_requests")
ABOUT = pathlib.PurePath("assets.extra", "about.json")
EXPAND = ("expand", "1")
MAX_WARMUP_REQUESTS, MAX_MESSAGE_LENGTH = 1000, 1024
CODES = {code.value[0]: code for code in grpc.StatusCode}
INVALID = grpc.StatusCode.INVALID_ARGUMENT


class StatusError(Exception):
    """Error that is returned to the client with a gRPC code."""

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code


def newest_version(model: str) -> tuple[int, pathlib.Path]:
    """Return the largest version number of a model, and its folder."""
    versions = {
        int(path.name): path
        for path in pathlib.Path(model).glob("*")
        if path.name.isdecimal() and path.is_dir()
    }
    if not versions:
        sys.exit(f"error: {model} must contain a folder named by a number, such as 1")
    return max(versions.items())


def read_signatures(folder: pathlib.Path) -> dict[str, Any]:
    """Return the signature messages of a SavedModel by name."""
    message = (folder / "saved_model.pb").read_bytes()
    (graph,) = saved_model_pb2.SavedModel.FromString(message).meta_graphs
    return dict(graph.signature_def)


def read_limits(folder: pathlib.Path) -> dict[str, int]:
    """Return the limits of a request in `about.json`; empty without this file."""
    path = folder / ABOUT
    return (
        json.loads(path.read_text("utf-8")).get("limits", {}) if path.exists() else {}
    )


class Session:
    """Runtime with feeds and fetches, as in TF Serving."""

    def __init__(self, folder: pathlib.Path, signatures: dict[str, Any]):
        graph, feeds = tf.Graph(), {}
        with graph.as_default():
            # Python compares a feed with its placeholder's shape, TF Serving does not,
            # so placeholders of unknown shape replace those of the graph.
            for signature in signatures.values():
                for info in signature.inputs.values():
                    name = "any_shape/" + info.name.split(":")[0]
                    dtype = tf.as_dtype(info.dtype)
                    feeds[info.name] = tf.compat.v1.placeholder(dtype, name=name)
            self._session = tf.compat.v1.Session()
            tf.compat.v1.saved_model.load(
                self._session, ["serve"], str(folder), input_map=feeds
            )
        self._feeds, self._signatures = feeds, signatures

    def run(
        self, name: str, inputs: dict[str, tf.Tensor], outputs: list[str]
    ) -> dict[str, Any]:
        """Return outputs by name."""
        signature = self._signatures[name]
        feeds = {
            self._feeds[signature.inputs[key].name]: tensor.numpy()
            for key, tensor in inputs.items()
        }
        fetches = {key: signature.outputs[key].name for key in outputs}
        return self._session.run(fetches, feeds)


class Function:
    """Runtime with the functions of `tf.saved_model.load`."""

    def __init__(self, folder: pathlib.Path, signatures: dict[str, Any]):
        del signatures
        self._loaded = tf.saved_model.load(str(folder))

    def run(
        self, name: str, inputs: dict[str, tf.Tensor], outputs: list[str]
    ) -> dict[str, Any]:
        """Return outputs by name."""
        tensors = self._loaded.signatures[name](**inputs)
        return {key: tensors[key].numpy() for key in outputs}


RUNTIMES = {"session": Session, "function": Function}


class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict and GetModelMetadata with TF Serving's errors."""

    def __init__(self, name: str, version: int, folder: pathlib.Path, runtime: str):
        self._name, self._version, self._folder = name, version, folder
        self._signatures, self.limits = read_signatures(folder), read_limits(folder)
        self._runtime = RUNTIMES[runtime](folder, self._signatures)

    def warm_up(self) -> int:
        """Run the warm-up requests of the version, and return their number."""
        path, count = self._folder / WARMUP, 0
        if not path.exists():
            return 0
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            if log.WhichOneof("log_type") != "predict_log":
                raise StatusError(INVALID, "a warm-up request is not a PredictLog")
            self._predict(log.predict_log.request)
            count += 1
            if count > MAX_WARMUP_REQUESTS:
                raise StatusError(
                    INVALID, f"more than {MAX_WARMUP_REQUESTS} warm-up requests"
                )
        return count

    def Predict(self, request: Any, context: grpc.ServicerContext):  # noqa: N802
        """Run a signature."""
        with _abort_on_error(context):
            self._check_model(request.model_spec)
            if EXPAND not in context.invocation_metadata():
                _check_declared_sizes(request.inputs, self.limits)
            return self._predict(request)

    def GetModelMetadata(  # noqa: N802
        self, request: Any, context: grpc.ServicerContext
    ) -> Any:
        """Return the signatures."""
        with _abort_on_error(context):
            self._check_model(request.model_spec)
            if list(request.metadata_field) != ["signature_def"]:
                raise StatusError(INVALID, "metadata_field must be only signature_def")
            signatures = get_model_metadata_pb2.SignatureDefMap()
            for name, signature in self._signatures.items():
                signatures.signature_def[name].CopyFrom(signature)
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            response.model_spec.name = self._name
            response.model_spec.version.value = self._version
            response.metadata["signature_def"].Pack(signatures)
            return response

    def _unimplemented(self, request: Any, context: grpc.ServicerContext) -> Any:
        message = "This server implements only Predict and GetModelMetadata"
        context.abort(grpc.StatusCode.UNIMPLEMENTED, message)

    Classify = Regress = MultiInference = _unimplemented

    def _check_model(self, spec: Any) -> None:
        choice = spec.WhichOneof("version_choice")
        if spec.name != self._name or (
            choice and (choice, spec.version.value) != ("version", self._version)
        ):
            message = f"Servable not found for request: {str(spec).strip()!r}"
            raise StatusError(grpc.StatusCode.NOT_FOUND, message)

    def _predict(self, request: Any) -> Any:
        name = request.model_spec.signature_name or DEFAULT
        signature = self._signatures.get(name)
        if signature is None:
            message = f'Serving signature key "{name}" not found.'
            raise StatusError(grpc.StatusCode.FAILED_PRECONDITION, message)
        expected, received = set(signature.inputs), set(request.inputs)
        if expected != received:
            raise StatusError(
                INVALID,
                "inputs do not match the signature. Sent extra: "
                f"{received - expected}. Missing: {expected - received}.",
            )
        inputs = {
            key: _parse_tensor(key, message, signature.inputs[key].dtype)
            for key, message in request.inputs.items()
        }
        outputs = list(request.output_filter) or list(signature.outputs)
        if not set(outputs) <= set(signature.outputs):
            raise StatusError(INVALID, f"outputs are {sorted(signature.outputs)}")
        response = predict_pb2.PredictResponse()
        for key, array in self._runtime.run(name, inputs, outputs).items():
            dtype = tf.as_dtype(signature.outputs[key].dtype)
            array = np.asarray(array, object if dtype == tf.string else None)
            message = tf.make_tensor_proto(array, dtype, array.shape)
            response.outputs[key].CopyFrom(message)
        response.model_spec.name = request.model_spec.name
        response.model_spec.signature_name = name
        response.model_spec.version.value = self._version
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
                raise StatusError(
                    INVALID,
                    f"{name} must have at most {limits[key]} {key}. Received: a "
                    f"message that declares the shape {shape[:8]}. Send it in parts.",
                )


def _parse_tensor(name: str, message: Any, dtype: int) -> tf.Tensor:
    if message.dtype != dtype:
        expected, received = (
            tf.dtypes.as_dtype(number).name for number in (dtype, message.dtype)
        )
        raise StatusError(
            INVALID, f"Expects {name} to be {expected} but {received} is provided"
        )
    return tf.io.parse_tensor(message.SerializeToString(), dtype)


@contextlib.contextmanager
def _abort_on_error(context: grpc.ServicerContext) -> Iterator[None]:
    """Convert errors to gRPC statuses. A bug of this file has the status UNKNOWN."""
    try:
        yield
    except StatusError as error:
        code, message = error.code, str(error)
    except tf.errors.OpError as error:
        code, message = CODES[error.error_code], error.message
    except (TypeError, ValueError) as error:
        code, message = INVALID, str(error)  # rejected by Python, before TensorFlow
    else:
        return
    context.abort(code, message[:MAX_MESSAGE_LENGTH])


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", default="model")
    parser.add_argument("--runtime", choices=RUNTIMES, default="session")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    start = time.perf_counter()
    version, folder = newest_version(options.model)
    service = Service(options.name, version, folder, options.runtime)
    loaded = time.perf_counter()
    try:
        warmup_requests = service.warm_up()
    except (StatusError, tf.errors.OpError, ValueError) as error:
        sys.exit(f"error: a warm-up request of {folder} failed: {error}")
    pool = futures.ThreadPoolExecutor(options.threads)
    unlimited = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
    ]
    server = grpc.server(pool, options=unlimited)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    info = {
        "port": server.add_insecure_port(f"localhost:{options.port}"),
        "version": version,
        "folder": str(folder),
        "warmup_requests": warmup_requests,
        "limits": service.limits,
        "load_s": loaded - start,
        "warmup_s": time.perf_counter() - loaded,
        "project_modules": sorted(
            name for name in sys.modules if name.startswith("electra_tf")
        ),
    }
    server.start()
    print(json.dumps(info), flush=True)
    sys.stdin.read()
    server.stop(1).wait()


if __name__ == "__main__":
    main()
