"""Requests that TF Serving sends to itself before a version answers anybody.

The first requests of a graph are slow: memory and threads are got then. TF Serving
replays the records of `assets.extra/tf_serving_warmup_requests` while it loads a
version, which becomes available afterwards. One that fails keeps the version from
loading, so only requests that were answered should be written.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving.export_spec import IDS, Request

FILE = pathlib.PurePath("assets.extra", "tf_serving_warmup_requests")
"""Where TF Serving looks, below the folder of a version."""
MAX_REQUESTS = 1000
"""Records that TF Serving takes; with more it refuses the version."""


def warmup_requests(names: Sequence[str], lengths: Sequence[int]) -> list[Request]:
    """Makes requests of one row that a signature of ours answers, whatever it learnt.

    Args:
        names: The signature's inputs: the three of ids, or names of strings.
        lengths: Positions of ids, or words of each string.

    Returns:
        One request for each length: int32 [1, L], or bytes [1].
    """
    if set(names) == set(IDS):
        # Id 0 stands in every vocabulary; the mask says that all positions are real.
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
    """Writes requests for TF Serving to begin with, in place of any that were there.

    Args:
        folder: Of a version, the one with `saved_model.pb`.
        requests: For each signature what it is sent, in this order.
        name: The model's, as in a client's request; TF Serving does not compare it.

    Returns:
        The file.

    Raises:
        InputError: The extra `serving` is not installed, or there are no requests or
            too many.
    """
    log = _protocol()
    count = sum(map(len, requests.values()))
    if not 1 <= count <= MAX_REQUESTS:
        raise InputError(
            f"A version is warmed up with 1 to {MAX_REQUESTS:,} requests",
            f"{count:,}",
            "Keep a few of each length",
        )
    path = pathlib.Path(folder) / FILE
    path.parent.mkdir(exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        with tf.io.TFRecordWriter(str(partial)) as writer:
            for signature, several in requests.items():
                for one in several:
                    record = log.PredictionLog()
                    request = record.predict_log.request
                    request.model_spec.name = name
                    request.model_spec.signature_name = signature
                    for key, array in one.items():
                        request.inputs[key].CopyFrom(_tensor(array))
                    writer.write(record.SerializeToString())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _tensor(array: np.ndarray) -> Any:
    # An array of objects without rows does not tell that it would hold strings.
    dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
    return tf.make_tensor_proto(array, dtype, array.shape)


def _protocol() -> Any:
    """TF Serving's module of PredictionLog, and so of PredictRequest."""
    try:
        from tensorflow_serving.apis import prediction_log_pb2
    except ImportError as error:
        raise InputError(
            "Warm-up requests are written with the package tensorflow-serving-api",
            str(error),
            "Install the extra that has it: tools/install serving",
        ) from error
    return prediction_log_pb2
