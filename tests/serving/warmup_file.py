"""Parse warm-up files."""

import pathlib

import tensorflow as tf

from electra_tf.serving import warmup


def read_warmup(folder):
    """Return the requests of each signature, in order."""
    from tensorflow_serving.apis import prediction_log_pb2

    requests = {}
    path = pathlib.Path(folder) / warmup.FILE
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        requests.setdefault(request.model_spec.signature_name, []).append(
            {name: tf.make_ndarray(array) for name, array in request.inputs.items()}
        )
    return requests
