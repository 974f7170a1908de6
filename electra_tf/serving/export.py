"""Export a trained model as a versioned folder, completely or not at all."""

import importlib.util
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from electra_tf import backend, durable_files, sources
from electra_tf.errors import InputError
from electra_tf.serving import validate
from electra_tf.serving.export_options import (
    FORMATS,
    LIMITS,
    NAMES,
    OUTPUT_KINDS,
    SIGNATURES,
    TARGETS,
    RequestLimits,
    check_arguments,
    check_export,
)
from electra_tf.serving.formats.litert import open_litert, write_litert
from electra_tf.serving.formats.onnx import open_onnx, write_onnx
from electra_tf.serving.formats.saved_model import (
    warmup_requests,
    write_metadata,
    write_saved_model,
    write_server_files,
    write_warmup,
)
from electra_tf.serving.pretrained_models import pretrained_export
from electra_tf.serving.signatures import ExportSpec, Runtime, Signature
from electra_tf.serving.task_models import task_export
from electra_tf.tasks.load import load
from electra_tf.tasks.text_model import TextModel
from electra_tf.training.disk_errors import reraise_full_disk

_logger = logging.getLogger(__name__)

_DEFAULT = "serving_default"
_CONVERTERS = {"litert": (write_litert, open_litert), "onnx": (write_onnx, open_onnx)}
_WARMUP_LENGTHS = 16, 64, 128, 256, 512


def load_exportable(
    path: str | os.PathLike,
    output_kind: str | None = None,
    target: str = TARGETS[0],
    max_length: int | None = None,
    limits: RequestLimits = LIMITS,
) -> ExportSpec:
    """Load a trained model as functions to export."""
    source = sources.open_source(path)
    has_head = output_kind is None and source.fine_tuned is not None
    if source.kind != "fine_tuned" and not has_head:
        kind = output_kind or OUTPUT_KINDS[0]
        return pretrained_export(source, kind, target, max_length, limits)
    for flag, value in (("--output_kind", output_kind), ("--max_length", max_length)):
        if value is not None:
            raise InputError(
                f"--model must be a pre-trained checkpoint for {flag}",
                f"{flag}={value} for a fine-tuned model, {source.path!r}",
                f"Omit {flag}",
            )
    return task_export(load(source), target, limits)


def export(
    spec: ExportSpec,
    output: str,
    version: int = 1,
    signatures: Sequence[str] = SIGNATURES,
    export_format: str = "saved_model",
    log: Callable[[str], None] = print,
) -> str:
    """Write a version of a model, and files for servers beside all versions."""
    final = check_arguments(output, version, signatures, export_format)
    has_server_files = export_format == FORMATS[0]
    _write(spec, final, signatures, export_format, log, has_server_files)
    return final


def _write(
    spec: ExportSpec,
    final: str,
    signatures: Sequence[str],
    export_format: str,
    log: Callable[[str], None],
    has_server_files: bool,
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
            if export_format == FORMATS[0]:
                lines = _write_saved_model(spec, partial, signatures)
            else:
                lines = _write_converted(spec, partial, export_format)
            for line in lines:
                log(f"  {line}")
            files = _files(partial)
            durable_files.publish(partial, final)
            log(f"  files in {os.path.basename(final)}: {', '.join(files)}")
            if has_server_files and (names := write_server_files(output)):
                log(f"  files for servers beside it: {', '.join(names)}")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if is_new and not os.listdir(output):
            os.rmdir(output)


def _files(folder: str) -> list[str]:
    """Return the paths of the files in a folder, relative to it."""
    paths = (
        os.path.join(root, name) for root, _, names in os.walk(folder) for name in names
    )
    return sorted(os.path.relpath(path, folder) for path in paths)


def export_model(
    model: TextModel,
    filepath: str | os.PathLike,
    format: str = FORMATS[0],
    verbose: bool | None = None,
    **unknown: Any,
) -> str:
    """Write the model and its tokenizer to a new folder, and compare it with Keras.

    Args:
        model: The model, `self` of `model.export`.
        filepath: The folder to create. `electra_tf.export_saved_model` writes numbered
            versions for a server in place of it.
        format: `saved_model` takes texts or ids; `litert` and `onnx` take ids, for
            which `tokenizer.json` is beside the file.
        verbose: Whether to print sizes and differences.
        unknown: Not supported.

    Returns:
        The folder.

    Raises:
        InputError: The folder exists, the format is unknown or not installed, or the
            written model differs from the Keras model.
    """
    final = check_export(filepath, format, unknown)
    log = print if verbose else _logger.info
    _write(task_export(model), final, SIGNATURES, NAMES[format], log, False)
    return os.fspath(filepath)


def export_saved_model(
    model: TextModel | str | os.PathLike,
    output: str | os.PathLike,
    version: int = 1,
    max_length: int | None = None,
    limits: RequestLimits = LIMITS,
) -> str:
    """Write a SavedModel for TF Serving, and compare it with the Keras model.

    Args:
        model: A fine-tuned model, its `.keras` file or folder, or a pre-training
            checkpoint or run, whose encoder is exported.
        output: The folder of all versions of the model.
        version: The number of this version.
        max_length: Positions of a text, with special tokens, for a pre-trained
            checkpoint; a fine-tuned model has its own. Default: those of the run's
            records; 128 for a model of another library.
        limits: Limits of a request, which the graph checks.

    Returns:
        The version's folder.

    Raises:
        InputError: The version exists, there is no model, `max_length` does not fit it,
            or the written model differs from the Keras model.

    Example:
        import electra_tf

        electra_tf.export_saved_model("model.keras", "served")  # served/1
    """
    if isinstance(model, str | os.PathLike):
        spec = load_exportable(model, max_length=max_length, limits=limits)
    elif not isinstance(model, TextModel):
        raise InputError(
            "export_saved_model must get a model of a task or a path",
            type(model).__name__,
            "Pass a fine-tuned model, or the path of a checkpoint",
        )
    elif max_length is not None:
        raise InputError(
            "model must be a pre-trained checkpoint for max_length",
            f"max_length={max_length} for a {type(model).__name__}",
            "Omit max_length",
        )
    else:
        spec = task_export(model, limits=limits)
    return export(spec, os.fspath(output), version, log=_logger.info)


def select_signatures(spec: ExportSpec, kinds: Sequence[str]) -> dict[str, Signature]:
    """Return the signatures of a SavedModel by name."""
    by_kind = {"text": spec.text, "tokens": spec.tokens}
    signatures = {}
    for kind in kinds:
        signatures |= by_kind[kind]
    if _DEFAULT not in signatures:
        signatures[_DEFAULT] = next(iter(signatures.values()))
    return signatures


def _write_saved_model(
    spec: ExportSpec, folder: str, kinds: Sequence[str]
) -> Iterator[str]:
    """Write and validate a SavedModel; yield the lines of the report."""
    signatures = select_signatures(spec, kinds)
    cases = [(name, *case) for name, of in signatures.items() for case in of.cases()]
    report = write_saved_model(spec, signatures, cases, folder)
    yield from report["notes"]
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


def _write_converted(
    spec: ExportSpec, folder: str, export_format: str
) -> Iterator[str]:
    """Write files of another format and compare their outputs with Keras's."""
    signature = spec.tokens["tokens"]
    cases = [*signature.cases()]
    write, read = _CONVERTERS[export_format]
    yield from write_metadata(spec, folder)
    with backend.held_back_stderr():  # the converters write notes
        paths = write(signature.unchunked, folder)
    for path in paths:
        name, run = os.path.basename(path), read(path)
        yield f"{name}: {os.path.getsize(path) / 1e6:.1f} MB"
        for output, difference in _differences(run, cases).items():
            yield f"{name}: {output} differs by {difference:.1e} from Keras"
            if "int8" not in name and difference > validate.TOLERANCE:
                raise InputError(
                    f"{name} must equal Keras's outputs to {validate.TOLERANCE:g}",
                    f"{output} differs by {difference:.2g}",
                    "Report it; nothing was exported",
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
