"""Write a SavedModel and validate it in a fresh process; write files for servers.

TF Serving replays the warm-up requests before a version becomes available, because the
first requests of a graph allocate memory and start threads. It does not load a version
whose warm-up fails, so they must succeed.
"""

import importlib.util
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.serving import validate
from electra_tf.serving.export_options import IDS
from electra_tf.serving.signatures import ExportSpec, Request, select_signatures
from electra_tf.text.huggingface_tokenizer import TOKENIZER, write_json
from electra_tf.text.records import VOCABULARY

ASSETS_EXTRA = "assets.extra"
"""Folder of files that are not part of the graph: vocabulary, labels, warm-up."""
ABOUT = "about.json"
WARMUP = pathlib.PurePath(ASSETS_EXTRA, "tf_serving_warmup_requests")
"""Path of the file below the folder of a version."""
_WARMUP_LENGTHS = 16, 64, 128, 256, 512
_REPORT = "nothing was exported, report it"


def write(spec: ExportSpec, folder: str, kinds: Sequence[str]) -> Iterator[str]:
    """Write a SavedModel and validate it in a fresh process; yield lines to print."""
    signatures = select_signatures(spec, kinds)
    cases = [(name, *case) for name, of in signatures.items() for case in of.cases()]
    functions = {name: item.function for name, item in signatures.items()}
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(spec.module, folder, functions, options)
    yield from write_metadata(spec, os.path.join(folder, ASSETS_EXTRA))
    report = _validate(folder, cases)
    _check_report(report, spec.module)
    for name, difference in report["differences"].items():
        if not name.endswith(validate.ROWS):
            yield f"{name} differs by {difference:.1e} from Keras"
    yield f"{report['numbers']:,} numbers in {report['variables']} variables"
    if importlib.util.find_spec("tensorflow_serving") is None:
        yield "no warm-up requests: the extra `serving` is not installed"
        return
    max_length = spec.metadata["max_length"]
    lengths = sorted({min(length, max_length) for length in _WARMUP_LENGTHS})
    requests = {}
    for name in signatures:
        *probes, _ = (case[1] for case in cases if case[0] == name)  # the last is empty
        axes = {key: array.ndim for key, array in probes[0].items()}
        requests[name] = [*probes, *warmup_requests(axes, lengths)]
    write_warmup(folder, requests)
    yield f"warm-up requests of up to {lengths[-1]} positions"


def write_metadata(spec: ExportSpec, folder: str) -> list[str]:
    """Write the files of every format: vocabulary, tokenizer settings, labels.

    Return a line for each file that the model cannot have.
    """
    path = pathlib.Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    spec.tokenizer.save(path / VOCABULARY)
    about = {
        "kind": spec.kind,
        **spec.metadata,
        "tokenization": spec.tokenizer.identity(),
    }
    text = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    (path / ABOUT).write_text(text, encoding="utf-8")
    if "labels" in spec.metadata:
        lines = "".join(f"{label}\n" for label in spec.metadata["labels"])
        (path / "labels.txt").write_text(lines, encoding="utf-8")
    try:
        write_json(spec.tokenizer, os.path.join(folder, TOKENIZER))
    except InputError as error:
        return [f"no {TOKENIZER}: {error}"]
    return []


def _validate(folder: str, cases: list[tuple]) -> dict[str, Any]:
    """Compare a SavedModel in a fresh process with the Keras model in this one."""
    with tempfile.TemporaryDirectory() as temporary:
        file = pathlib.Path(temporary, "cases")
        file.write_bytes(pickle.dumps(cases))
        # Python puts a script's folder first in the import path. A copy without other
        # modules beside it cannot shadow a package.
        script = shutil.copy(validate.__file__, temporary)
        result = subprocess.run(
            [sys.executable, script, folder, file], capture_output=True, text=True
        )
    if result.returncode:
        reason = result.stderr.strip().splitlines() or [f"exit {result.returncode}"]
        raise InputError(
            f"the SavedModel fails in a fresh process: {reason[-1][:500]}; {_REPORT}"
        )
    return json.loads(result.stdout.splitlines()[-1])


def _check_report(report: Mapping[str, Any], module: tf.Module) -> None:
    numbers = sum(int(np.prod(variable.shape)) for variable in module.variables)
    problems = [
        f"{name} differs by {difference:.2g} from Keras"
        for name, difference in report["differences"].items()
        if difference > validate.TOLERANCE
    ]
    problems += [
        f"a stock TF Serving has no operation {name}"
        for name in report["unknown_operations"]
    ]
    if report["numbers"] != numbers:
        problems.append(f"{report['numbers']:,} numbers, not each of {numbers:,} once")
    if problems:
        raise InputError(f"the SavedModel is wrong: {'; '.join(problems)}; {_REPORT}")


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

    path = pathlib.Path(folder) / WARMUP
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


def write_server_files(folder: str) -> list[str]:
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
