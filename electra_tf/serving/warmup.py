"""Write the requests that TF Serving replays while it loads a version.

The first requests of a graph are slow, as they allocate memory and start threads. TF
Serving replays the records of `assets.extra/tf_serving_warmup_requests` before a
version becomes available. A version whose warm-up fails is not loaded, so write only
requests that succeed.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.serving.export_spec import IDS, Request

FILE = pathlib.PurePath("assets.extra", "tf_serving_warmup_requests")
"""Path of the file below the folder of a version."""
MAX_REQUESTS = 1000
"""Records that TF Serving accepts. It does not load a version with more."""


def warmup_requests(names: Sequence[str], lengths: Sequence[int]) -> list[Request]:
    """Return requests of one row that are valid for any exported model.

    Returns:
        One request for each length: int32 [1, L], or bytes [1].
    """
    if set(names) == set(IDS):
        # Id 0 is in every vocabulary.
        return [
            {
                name: np.full([1, length], name == "padding_mask", np.int32)
                for name in IDS
            }
            for length in lengths
        ]
    return [
        {name: np.array([b" ".join([b"a"] * length)], object) for name in names}
        for length in lengths
    ]


def write_warmup(
    folder: str | pathlib.Path,
    requests: Mapping[str, Sequence[Request]],
    name: str = "model",
) -> pathlib.Path:
    """Write the warm-up requests of a version, and replace an older file."""
    log = _import_prediction_log()
    count = sum(map(len, requests.values()))
    if not 1 <= count <= MAX_REQUESTS:
        raise InputError(
            f"A version must have 1 to {MAX_REQUESTS:,} warm-up requests",
            f"{count:,}",
            "Pass a few of each length",
        )
    path = pathlib.Path(folder) / FILE
    path.parent.mkdir(exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        with tf.io.TFRecordWriter(str(partial)) as writer:
            for signature, signature_requests in requests.items():
                for arrays in signature_requests:
                    record = log.PredictionLog()
                    request = record.predict_log.request
                    request.model_spec.name = name
                    request.model_spec.signature_name = signature
                    for key, array in arrays.items():
                        request.inputs[key].CopyFrom(_tensor_proto(array))
                    writer.write(record.SerializeToString())
        durable_files.publish(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _tensor_proto(array: np.ndarray) -> Any:
    # TensorFlow cannot infer the type of an empty array of objects.
    dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
    return tf.make_tensor_proto(array, dtype, array.shape)


def _import_prediction_log() -> Any:
    """Return TF Serving's module of the messages."""
    try:
        from tensorflow_serving.apis import prediction_log_pb2
    except ImportError as error:
        raise InputError(
            "tensorflow-serving-api must be installed to write warm-up requests",
            str(error),
            "Install the extra: tools/install serving",
        ) from error
    return prediction_log_pb2
