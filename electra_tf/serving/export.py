"""Export a trained model as a versioned folder, completely or not at all."""

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
    NAMES,
    SAVED_MODEL,
    SIGNATURES,
    check_arguments,
    check_export,
    converter,
)
from electra_tf.serving.formats import saved_model
from electra_tf.serving.served_models import task_export
from electra_tf.serving.signatures import ExportSpec, Runtime
from electra_tf.training.disk_errors import reraise_full_disk

_logger = logging.getLogger(__name__)


def export(
    spec: ExportSpec,
    output: str,
    version: int = 1,
    signatures: Sequence[str] = SIGNATURES,
    export_format: str = SAVED_MODEL,
    log: Callable[[str], None] = print,
) -> str:
    """Write a version of a model, and files for servers beside all versions."""
    final = check_arguments(output, version, signatures, export_format)
    has_server_files = export_format == SAVED_MODEL
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
            if export_format == SAVED_MODEL:
                lines = saved_model.write(spec, partial, signatures)
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
            if has_server_files and (names := saved_model.write_server_files(output)):
                log(f"  files for servers beside it: {', '.join(names)}")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if is_new and not os.listdir(output):
            os.rmdir(output)


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
    _write(task_export(model), final, SIGNATURES, NAMES.get(format, format), log, False)
    return os.fspath(folder)


def _write_converted(
    spec: ExportSpec, folder: str, export_format: str
) -> Iterator[str]:
    """Write files of a format of ids and compare their outputs with Keras's."""
    signature, module = spec.tokens["tokens"], converter(export_format)
    cases = [*signature.cases()]
    yield from saved_model.write_metadata(spec, folder)
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
