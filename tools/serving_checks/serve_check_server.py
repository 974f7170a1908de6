"""A stand-in for TF Serving: its gRPC protocol over a SavedModel, in Python.

Of what is installed it imports TensorFlow, tensorflow-text, gRPC and TF Serving's
messages, nothing of this project. It follows TF Serving's sources: the newest version
is served, the warm-up requests run before anybody is answered, errors have the same
codes. Two ways to run a model:

  session    the graph with its feeds and fetches, as TF Serving does
  function   `tf.saved_model.load` and its functions

In both, nothing looks at shapes but the graph itself.

It says on standard output, as a line of JSON, where it listens, and stops when its
standard input ends. It has no batching, no REST and no other versions.
"""

import argparse
import contextlib
import json
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
MOST_WARMUP, LONGEST_MESSAGE = 1000, 1024
CODES = {code.value[0]: code for code in grpc.StatusCode}
INVALID = grpc.StatusCode.INVALID_ARGUMENT


class RefusedError(Exception):
    """An error that the client is told with its gRPC code."""

    def __init__(self, code: grpc.StatusCode, words: str):
        super().__init__(words)
        self.code = code


def newest(model: str) -> tuple[int, pathlib.Path]:
    """The greatest of the numbers that folders of a model are named by."""
    found = {
        int(path.name): path
        for path in pathlib.Path(model).glob("*")
        if path.name.isdecimal() and path.is_dir()
    }
    if not found:
        sys.exit(f"error: {model} has no folder named by a number, such as 1")
    return max(found.items())


def signatures_of(folder: pathlib.Path) -> dict[str, Any]:
    """The signatures as they are written, by name."""
    text = (folder / "saved_model.pb").read_bytes()
    (graph,) = saved_model_pb2.SavedModel.FromString(text).meta_graphs
    return dict(graph.signature_def)


class Session:
    """Runs signatures as TF Serving does."""

    def __init__(self, folder: pathlib.Path, signatures: dict[str, Any]):
        graph, feeds = tf.Graph(), {}
        with graph.as_default():
            # Python compares a feed with its placeholder's shape, TF Serving does not:
            # placeholders of any shape stand in their place.
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
        """Arrays by name."""
        signature = self._signatures[name]
        fed = {
            self._feeds[signature.inputs[key].name]: of.numpy()
            for key, of in inputs.items()
        }
        fetched = {key: signature.outputs[key].name for key in outputs}
        return self._session.run(fetched, fed)


class Function:
    """Runs signatures as `tf.saved_model.load` gives them."""

    def __init__(self, folder: pathlib.Path, signatures: dict[str, Any]):
        del signatures
        self._loaded = tf.saved_model.load(str(folder))

    def run(
        self, name: str, inputs: dict[str, tf.Tensor], outputs: list[str]
    ) -> dict[str, Any]:
        """Arrays by name."""
        found = self._loaded.signatures[name](**inputs)
        return {key: found[key].numpy() for key in outputs}


RUNTIMES = {"session": Session, "function": Function}


class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict and GetModelMetadata; what they refuse and how is TF Serving's."""

    def __init__(self, name: str, version: int, folder: pathlib.Path, runtime: str):
        self._name, self._version, self._folder = name, version, folder
        self._signatures = signatures_of(folder)
        self._runtime = RUNTIMES[runtime](folder, self._signatures)

    def warm_up(self) -> int:
        """Runs the requests that the version brings along; returns how many."""
        path, count = self._folder / WARMUP, 0
        if not path.exists():
            return 0
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            if log.WhichOneof("log_type") != "predict_log":
                raise RefusedError(INVALID, "a warm-up request that is no PredictLog")
            self._answer(log.predict_log.request)
            count += 1
            if count > MOST_WARMUP:
                raise RefusedError(INVALID, f"more than {MOST_WARMUP} warm-up requests")
        return count

    def Predict(self, request: Any, context: grpc.ServicerContext):  # noqa: N802
        """Runs a signature."""
        with _told(context):
            self._find(request.model_spec)
            return self._answer(request)

    def GetModelMetadata(  # noqa: N802
        self, request: Any, context: grpc.ServicerContext
    ) -> Any:
        """Tells the signatures."""
        with _told(context):
            self._find(request.model_spec)
            if list(request.metadata_field) != ["signature_def"]:
                raise RefusedError(
                    INVALID, "metadata_field is signature_def and no other"
                )
            found = get_model_metadata_pb2.SignatureDefMap()
            for name, signature in self._signatures.items():
                found.signature_def[name].CopyFrom(signature)
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            response.model_spec.name = self._name
            response.model_spec.version.value = self._version
            response.metadata["signature_def"].Pack(found)
            return response

    def _absent(self, request: Any, context: grpc.ServicerContext) -> Any:
        words = "This stand-in has Predict and GetModelMetadata alone"
        context.abort(grpc.StatusCode.UNIMPLEMENTED, words)

    Classify = Regress = MultiInference = _absent

    def _find(self, spec: Any) -> None:
        named = spec.WhichOneof("version_choice")
        if spec.name != self._name or (
            named and (named, spec.version.value) != ("version", self._version)
        ):
            words = f"Servable not found for request: {str(spec).strip()!r}"
            raise RefusedError(grpc.StatusCode.NOT_FOUND, words)

    def _answer(self, request: Any) -> Any:
        name = request.model_spec.signature_name or DEFAULT
        signature = self._signatures.get(name)
        if signature is None:
            words = f'Serving signature key "{name}" not found.'
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, words)
        wanted, given = set(signature.inputs), set(request.inputs)
        if wanted != given:
            words = f"Sent extra: {given - wanted}. Missing: {wanted - given}."
            raise RefusedError(INVALID, f"inputs do not match the signature. {words}")
        inputs = {
            key: _tensor(key, of, signature.inputs[key].dtype)
            for key, of in request.inputs.items()
        }
        outputs = list(request.output_filter) or list(signature.outputs)
        if not set(outputs) <= set(signature.outputs):
            raise RefusedError(INVALID, f"outputs are {sorted(signature.outputs)}")
        response = predict_pb2.PredictResponse()
        for key, of in self._runtime.run(name, inputs, outputs).items():
            dtype = tf.as_dtype(signature.outputs[key].dtype)
            array = np.asarray(of, object if dtype == tf.string else None)
            message = tf.make_tensor_proto(array, dtype, array.shape)
            response.outputs[key].CopyFrom(message)
        response.model_spec.name = request.model_spec.name
        response.model_spec.signature_name = name
        response.model_spec.version.value = self._version
        return response


def _tensor(name: str, message: Any, dtype: int) -> tf.Tensor:
    if message.dtype != dtype:
        wanted, given = (tf.dtypes.as_dtype(of).name for of in (dtype, message.dtype))
        raise RefusedError(
            INVALID, f"Expects {name} to be {wanted} but {given} is provided"
        )
    # Parsed by TensorFlow's own code, as in TF Serving.
    return tf.io.parse_tensor(message.SerializeToString(), dtype)


@contextlib.contextmanager
def _told(context: grpc.ServicerContext) -> Iterator[None]:
    """Turns what is raised into a gRPC status; a fault of this file stays UNKNOWN."""
    try:
        yield
    except RefusedError as error:
        code, words = error.code, str(error)
    except tf.errors.OpError as error:
        code, words = CODES[error.error_code], error.message
    except (TypeError, ValueError) as error:
        code, words = INVALID, str(error)  # Python refused it before TensorFlow did
    else:
        return
    context.abort(code, words[:LONGEST_MESSAGE])


def main() -> None:
    """Serves until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", default="model")
    parser.add_argument("--runtime", choices=RUNTIMES, default="session")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    start = time.perf_counter()
    version, folder = newest(options.model)
    service = Service(options.name, version, folder, options.runtime)
    loaded = time.perf_counter()
    try:
        warmed = service.warm_up()
    except (RefusedError, tf.errors.OpError, ValueError) as error:
        sys.exit(f"error: a warm-up request of {folder} failed: {error}")
    pool = futures.ThreadPoolExecutor(options.threads)
    any_size = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
    ]
    server = grpc.server(pool, options=any_size)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    found = {
        "port": server.add_insecure_port(f"localhost:{options.port}"),
        "version": version,
        "folder": str(folder),
        "warmed": warmed,
        "load_s": loaded - start,
        "warmup_s": time.perf_counter() - loaded,
        "ours": sorted(name for name in sys.modules if name.startswith("electra_tf")),
    }
    server.start()
    print(json.dumps(found), flush=True)
    sys.stdin.read()
    server.stop(1).wait()


if __name__ == "__main__":
    main()
