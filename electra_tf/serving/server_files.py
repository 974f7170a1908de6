"""Write files for servers beside the versions of a model: settings and examples."""

import os
import pathlib

from electra_tf import durable_files

_BATCHING = """\
# For --enable_batching --batching_parameters_file=batching.txt: joins requests of
# several clients. The graph pads a joined request to its longest text. Its limits apply
# to it as a whole. Never set pad_variable_length_inputs: it pads padding_mask with 1,
# and the answers to ids are wrong.
max_batch_size { value: 32 }
batch_timeout_micros { value: 1000 }
max_enqueued_batches { value: 64 }
num_batch_threads { value: 2 }
"""
_MONITORING = """\
# For --monitoring_config_file=monitoring.config: metrics for Prometheus.
prometheus_config {
  enable: true
  path: "/monitoring/prometheus/metrics"
}
"""
_MODELS = """\
# For --model_config_file=models.config, with the folder mounted at /models/{name}.
model_config_list {{
  config {{
    name: "{name}"
    base_path: "/models/{name}"
    model_platform: "tensorflow"
    model_version_policy {{ latest {{ num_versions: 1 }} }}
  }}
}}
"""
_KSERVE = """\
# kubectl apply -f kserve.yaml, after the folder was copied to STORAGE.
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: {name}
spec:
  predictor:
    model:
      modelFormat:
        name: tensorflow
      storageUri: STORAGE/{name}
      resources:
        limits:
          cpu: "2"
          memory: 2Gi
"""
_TRITON = """\
# For Triton up to 25.02; later releases have no TensorFlow backend, so export with
# --format=onnx for them, which needs no such file. Copy the versions to
# MODELS/{name}/VERSION/model.savedmodel, and this file to MODELS/{name}/config.pbtxt.
# Triton reads inputs and outputs from the SavedModel.
# Its TensorFlow lacks the tokenizer's operation: export with --signatures=tokens, or
# load the library of tensorflow-text.
name: "{name}"
platform: "tensorflow_savedmodel"
max_batch_size: 0
instance_group [ {{ kind: KIND_CPU, count: 1 }} ]
"""


def write(folder: str) -> list[str]:
    """Write settings and examples unless files of these names exist; return names."""
    name = os.path.basename(os.path.abspath(folder)).replace("_", "-").lower()
    model = os.path.basename(os.path.abspath(folder))
    texts = {
        "batching.txt": _BATCHING,
        "monitoring.config": _MONITORING,
        "models.config": _MODELS.format(name=model),
        "kserve.yaml": _KSERVE.format(name=name),
        "triton.pbtxt": _TRITON.format(name=model),
    }
    new = [file for file in texts if not pathlib.Path(folder, file).exists()]
    for file in new:  # people change the others
        durable_files.write(pathlib.Path(folder, file), texts[file])
    return new
