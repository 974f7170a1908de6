"""Export a trained model as a versioned folder, completely or not at all."""

import importlib.util
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from electra_tf import backend, durable_files
from electra_tf.errors import InputError
from electra_tf.serving import validate
from electra_tf.serving.export_options import (
    FORMATS,
    NAMES,
    SIGNATURES,
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
from electra_tf.serving.signatures import ExportSpec, Runtime, Signature
from electra_tf.serving.task_models import task_export
from electra_tf.training.disk_errors import reraise_full_disk

_logger = logging.getLogger(__name__)

_DEFAULT = "serving_default"
_CONVERTERS = {"litert": (write_litert, open_litert), "onnx": (write_onnx, open_onnx)}
_WARMUP_LENGTHS = 16, 64, 128, 256, 512


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
    model: Any,
    folder: str | os.PathLike,
    format: str,
    verbose: bool | None,
    unknown: Mapping[str, Any],
) -> str:
    """Write a `TextModel` and its tokenizer to a new folder; its method `export`."""
    final = check_export(folder, format, unknown)
    log = print if verbose else _logger.info
    _write(task_export(model), final, SIGNATURES, NAMES[format], log, False)
    return os.fspath(folder)


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
