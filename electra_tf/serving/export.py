"""Export a trained model as a versioned folder, completely or not at all.

TF Serving replays the warm-up requests before a version becomes available, because the
first requests of a graph allocate memory and start threads. It does not load a version
whose warm-up fails, so they must succeed.
"""

import importlib.util
import json
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf import backend, durable_files
from electra_tf.errors import InputError
from electra_tf.serving.export_options import (
    FORMAT_NAMES,
    IDS,
    SAVED_MODEL,
    SIGNATURES,
    converter,
)
from electra_tf.serving.served_tasks import task_export
from electra_tf.serving.signatures import (
    Request,
    Response,
    ServedModel,
    arrays,
    error_message,
)
from electra_tf.storage.mirror import files_in
from electra_tf.text.tokenizer_files import TOKENIZER, VOCABULARY, write_json
from electra_tf.training.disk_errors import reraise_full_disk

ASSETS_EXTRA = "assets.extra"  # folder of vocabulary, labels, warm-up
ABOUT = "about.json"
WARMUP = pathlib.PurePath(ASSETS_EXTRA, "tf_serving_warmup_requests")
"""Path of the file below the folder of a version."""
_WARMUP_LENGTHS = 16, 64, 128, 256, 512
TOLERANCE = 1e-4
"""Largest difference, relative above 1. Two ways to compute the same logits in float32
differ by 1e-5 in a network of 6 layers of width 384."""


def export(
    model: Any,
    folder: str | os.PathLike,
    format: str = SAVED_MODEL,
    signatures: Sequence[str] = SIGNATURES,
    log: Callable[[str], None] = print,
) -> None:
    """Write a model to a new folder under a temporary name, compare it, and rename it.

    Args:
        model: A fine-tuned model, or its functions.
        folder: The folder to create.
        format: One of `formats()`.
        signatures: Those of a SavedModel.
        log: Function for lines on files and on differences from Keras.
    """
    served = model if isinstance(model, ServedModel) else task_export(model)
    output, name = os.path.split(os.path.abspath(folder))
    remedy = "Free space, then run the same command again; nothing was exported"
    with reraise_full_disk(output, remedy), durable_files.new_folder(folder) as partial:
        if FORMAT_NAMES.get(format) == SAVED_MODEL:
            lines = _write_saved_model(served, partial, signatures)
        else:
            lines = _write_converted(served, partial, format)
        for line in lines:
            log(f"  {line}")
        log(f"  files in {name}: {', '.join(files_in(partial))}")


def _write_converted(served: ServedModel, folder: str, format: str) -> Iterator[str]:
    """Write files of a format of ids and compare their outputs with Keras's."""
    module = converter(format)
    request, expected = served.case(served.tokens)
    yield from write_metadata(served, folder)
    with backend.held_back_stderr():  # the converters write notes
        paths = module.write(served.unchunked, folder)
    for path in paths:
        name, outputs = os.path.basename(path), module.load(path)(request)
        yield f"{name}: {os.path.getsize(path) / 1e6:.1f} MB"
        tolerance = math.inf if "int8" in name else TOLERANCE
        # Rounding decides between two nearly equal candidates for an answer.
        floats = {n: array for n, array in outputs.items() if array.dtype.kind == "f"}
        yield from compare(name, floats, expected, tolerance)


def _write_saved_model(
    served: ServedModel, folder: str, kinds: Sequence[str]
) -> Iterator[str]:
    """Write a SavedModel, load it, and compare it; yield lines to print."""
    functions, requests = served.signatures(kinds), {}
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(served.module, folder, functions, options)
    yield from write_metadata(served, os.path.join(folder, ASSETS_EXTRA))
    loaded = tf.saved_model.load(folder).signatures
    for name, function in functions.items():
        requests[name], expected = served.case(function)
        try:
            outputs = _call(loaded[name], requests[name])
        except tf.errors.OpError as error:
            raise InputError(
                f"{name} must answer a request of sample texts. Received: "
                f"{error_message(error).rstrip('.')}; nothing was exported"
            ) from error
        yield from compare(name, outputs, expected)
    if importlib.util.find_spec("tensorflow_serving") is None:
        yield "no warm-up requests: the extra `serving` is not installed"
        return
    lengths = sorted({min(length, served.max_length) for length in _WARMUP_LENGTHS})
    requests = {name: one for name, one in requests.items() if one}
    for name in requests:
        axes = {key: array.ndim for key, array in requests[name].items()}
        found = [
            one for one in warmup_requests(axes, lengths) if _fits(loaded[name], one)
        ]
        requests[name] = [requests[name], *found]
    write_warmup(folder, requests)
    yield f"warm-up requests of up to {lengths[-1]} positions"


def _call(function: Any, request: Request) -> Response:
    tensors = {name: tf.constant(array) for name, array in request.items()}
    return arrays(function(**tensors))


def _fits(function: Any, request: Request) -> bool:
    """Return whether a request is within the limits, which may be small."""
    try:
        _call(function, request)
    except tf.errors.InvalidArgumentError:
        return False
    return True


def compare(
    name: str, outputs: Response, expected: Response, tolerance: float = TOLERANCE
) -> Iterator[str]:
    """Yield a line with the difference of each output that is expected.

    Raises:
        InputError: A difference is larger than the tolerance.
    """
    for output in (name for name in expected if name in outputs):
        difference = max_difference(outputs[output], expected[output])
        if difference > tolerance:
            raise InputError(
                f"{name}: {output} differs by {difference:.2g} from Keras, more than "
                f"{tolerance:g}; nothing was exported, report it"
            )
        yield f"{name}: {output} differs by {difference:.1e} from Keras"


def max_difference(actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference between two arrays."""
    if actual.shape != expected.shape:
        return float("inf")
    if actual.dtype == object or not actual.size:
        return 0.0 if np.array_equal(actual, expected) else float("inf")
    scale = np.maximum(1.0, np.abs(expected))
    largest = np.max(np.abs(actual.astype(np.float64) - expected) / scale)
    return float("inf") if np.isnan(largest) else float(largest)


def write_metadata(served: ServedModel, folder: str) -> list[str]:
    """Write the files of every format: vocabulary, tokenizer settings, labels.

    Return a line for each file that the model cannot have.
    """
    path = pathlib.Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    served.tokenizer.save(path / VOCABULARY)
    about = {
        "kind": served.kind,
        **served.metadata,
        "tokenization": served.tokenizer.identity(),
    }
    text = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    (path / ABOUT).write_text(text, encoding="utf-8")
    if "labels" in served.metadata:
        lines = "".join(f"{label}\n" for label in served.metadata["labels"])
        (path / "labels.txt").write_text(lines, encoding="utf-8")
    try:
        write_json(served.tokenizer, os.path.join(folder, TOKENIZER))
    except InputError as error:
        return [f"no {TOKENIZER}: {error}"]
    return []


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
