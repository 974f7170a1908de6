"""Write the requests that TF Serving replays while it loads a version.

The first requests of a graph are slow, as they allocate memory and start threads. TF
Serving replays the records of `assets.extra/tf_serving_warmup_requests` before a
version becomes available. A version whose warm-up fails is not loaded, so write only
requests that succeed.
"""

import pathlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from electra_tf.serving.signatures import IDS, Request

FILE = pathlib.PurePath("assets.extra", "tf_serving_warmup_requests")
"""Path of the file below the folder of a version."""


def warmup_requests(inputs: Mapping[str, int], lengths: Sequence[int]) -> list[Request]:
    """Return requests of one item that are valid for any exported model.

    Args:
        inputs: Names of the inputs, each with its number of axes.
        lengths: Positions, or words, of each request.

    Returns:
        One request for each length: int32 [1, L], or bytes [1] or [1, 2].
    """
    if set(inputs) == set(IDS):
        # Id 0 is in every vocabulary.
        return [
            {name: np.full([1, n], name == "padding_mask", np.int32) for name in IDS}
            for n in lengths
        ]
    return [
        {
            name: np.full([1, 2][:axes], b" ".join([b"a"] * n), object)
            for name, axes in inputs.items()
        }
        for n in lengths
    ]


def write_warmup(
    folder: str | pathlib.Path, requests: Mapping[str, Iterable[Request]]
) -> None:
    """Write the warm-up requests of a version, by signature.

    TF Serving accepts 1,000 of them. The extra `serving` must be installed.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    path = pathlib.Path(folder) / FILE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, of_signature in requests.items():
            for arrays in of_signature:
                record = prediction_log_pb2.PredictionLog()
                request = record.predict_log.request
                request.model_spec.name = "model"
                request.model_spec.signature_name = signature
                for key, array in arrays.items():
                    dtype = tf.string if array.dtype == object else tf.int32
                    message = tf.make_tensor_proto(array, dtype, array.shape)
                    request.inputs[key].CopyFrom(message)
                writer.write(record.SerializeToString())
