"""Export a trained model as a versioned folder, completely or not at all.

TF Serving replays the warm-up requests before a version becomes available, because the
first requests of a graph allocate memory and start threads. It does not load a version
whose warm-up fails, so they must succeed.
"""

import importlib.util
import json
import logging
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf import backend, durable_files
from electra_tf.errors import InputError
from electra_tf.serving import validate
from electra_tf.serving.export_options import (
    FORMAT_NAMES,
    IDS,
    SAVED_MODEL,
    SIGNATURES,
    check_arguments,
    check_export,
    converter,
)
from electra_tf.serving.served_tasks import task_export
from electra_tf.serving.signatures import (
    ExportSpec,
    Request,
    Runtime,
    select_signatures,
)
from electra_tf.text.huggingface_tokenizer import TOKENIZER, write_json
from electra_tf.text.records import VOCABULARY
from electra_tf.training.disk_errors import reraise_full_disk

_logger = logging.getLogger(__name__)

ASSETS_EXTRA = "assets.extra"  # folder of vocabulary, labels, warm-up
ABOUT = "about.json"
WARMUP = pathlib.PurePath(ASSETS_EXTRA, "tf_serving_warmup_requests")
"""Path of the file below the folder of a version."""
_WARMUP_LENGTHS = 16, 64, 128, 256, 512
_REPORT = "nothing was exported, report it"


def export(
    spec: ExportSpec,
    output: str,
    version: int = 1,
    signatures: Sequence[str] = SIGNATURES,
    export_format: str = SAVED_MODEL,
    log: Callable[[str], None] = print,
) -> str:
    """Write a version of a model."""
    final = check_arguments(output, version, signatures, export_format)
    _write(spec, final, signatures, export_format, log)
    return final


def _write(
    spec: ExportSpec,
    final: str,
    signatures: Sequence[str],
    export_format: str,
    log: Callable[[str], None],
) -> None:
    """Write an export under a temporary name, validate it, then rename it."""
    output, version = os.path.split(os.path.abspath(final))
    is_new = not os.path.exists(output)
    os.makedirs(output, exist_ok=True)
    partial = tempfile.mkdtemp(prefix=f".{version}.partial.", dir=output)
    os.chmod(partial, 0o755)  # the server often runs as another user
    try:
        with reraise_full_disk(
            output, "Free space, then run the same command again; nothing was exported"
        ):
            if export_format == SAVED_MODEL:
                lines = _write_saved_model(spec, partial, signatures)
            else:
                lines = _write_converted(spec, partial, export_format)
            for line in lines:
                log(f"  {line}")
            walked = (
                (root, name) for root, _, names in os.walk(partial) for name in names
            )
            files = [os.path.relpath(os.path.join(*one), partial) for one in walked]
            durable_files.publish(partial, final)
            log(f"  files in {os.path.basename(final)}: {', '.join(sorted(files))}")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if is_new and not os.listdir(output):
            os.rmdir(output)


def export_model(
    model: Any, folder: str | os.PathLike, format: str, verbose: bool | None
) -> str:
    """Write a `TextModel` and its tokenizer to a new folder; its method `export`."""
    final = check_export(folder, format)
    log = print if verbose else _logger.info
    format = FORMAT_NAMES.get(format, format)
    _write(task_export(model), final, SIGNATURES, format, log)
    return os.fspath(folder)


def _write_converted(
    spec: ExportSpec, folder: str, export_format: str
) -> Iterator[str]:
    """Write files of a format of ids and compare their outputs with Keras's."""
    signature, module = spec.tokens["tokens"], converter(export_format)
    cases = [*signature.cases()]
    yield from write_metadata(spec, folder)
    with backend.held_back_stderr():  # the converters write notes
        paths = module.write(signature.unchunked, folder)
    for path in paths:
        name, run = os.path.basename(path), module.load(path)
        yield f"{name}: {os.path.getsize(path) / 1e6:.1f} MB"
        for output, difference in _differences(run, cases).items():
            yield f"{name}: {output} differs by {difference:.1e} from Keras"
            if "int8" not in name and difference > validate.TOLERANCE:
                raise InputError(
                    f"{output} of {name} differs by {difference:.2g} from Keras, more "
                    f"than {validate.TOLERANCE:g}; nothing was exported, report it"
                )


def _differences(run: Runtime, cases: list[tuple]) -> dict[str, float]:
    """Return the largest difference of each output of numbers, over all requests."""
    largest: dict[str, float] = {}
    for request, expected in cases:
        for output, array in run(request).items() if expected else ():
            # Rounding decides between two nearly equal candidates for an answer.
            if array.dtype.kind == "f":
                difference = validate.max_difference(array, expected[output])
                largest[output] = max(largest.get(output, 0.0), difference)
    return largest


def _write_saved_model(
    spec: ExportSpec, folder: str, kinds: Sequence[str]
) -> Iterator[str]:
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
    """Return a request of one item for each length, by the axes of each input.

    Ids are int32 [1, L]; strings are bytes [1], or [1, 2] for two axes.
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
    """Write the warm-up requests of a version, at most 1,000, by signature."""
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
