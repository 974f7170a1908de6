"""Export a trained model's folder, completely or not at all."""

import importlib.util
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from electra_tf.errors import InputError
from electra_tf.serving import validate
from electra_tf.serving.export_spec import ExportSpec, Request, Signature
from electra_tf.serving.formats.litert import run_litert, write_litert
from electra_tf.serving.formats.onnx import run_onnx, write_onnx
from electra_tf.serving.formats.saved_model import write_extra, write_saved_model
from electra_tf.serving.formats.token_runtime import missing_extra
from electra_tf.serving.inference_encoder import TARGETS
from electra_tf.serving.pretrained_models import OUTPUT_KINDS, pretrained_export
from electra_tf.serving.task_models import task_export
from electra_tf.serving.warmup import warmup_requests, write_warmup
from electra_tf.tasks.inference import load
from electra_tf.tasks.runner import MODEL
from electra_tf.tasks.text_model import TextModel
from electra_tf.training.checkpoint import foreign_weights
from electra_tf.training.disk_errors import reraise_full_disk

_logger = logging.getLogger(__name__)

SIGNATURES = ("text", "tokens")
_DEFAULT = "serving_default"
_PACKAGES = {"litert": ("ai_edge_litert",), "onnx": ("tf2onnx", "onnxruntime")}
_WARM_LENGTHS = 16, 64, 128, 256, 512


def load_exportable(
    path: str, output_kind: str | None = None, target: str = TARGETS[0]
) -> ExportSpec:
    """Load a trained model as functions to export.

    Args:
        path: The output of finetune, or a checkpoint or run of pretrain.
        output_kind: One of `OUTPUT_KINDS`, for a pre-trained checkpoint only (see
            `pretrained_export`); None: `encoder`.
        target: One of `TARGETS`: the device that serves a SavedModel.

    Returns:
        The model's functions.

    Raises:
        InputError: The path is no trained model, the fine-tuning there has no model
            yet, or `output_kind` is set for a fine-tuned model.
    """
    if not is_finetuned(path) and os.path.isdir(os.path.join(path, "trial_1")):
        raise InputError(
            f"--model must be a fine-tuning that has written {MODEL}",
            f"{path!r}, without a {MODEL}",
            "Run the same finetune command again to resume",
        )
    if not os.path.exists(path) and not foreign_weights(path):
        raise InputError(
            "--model must be the --output of finetune, or a checkpoint or run of "
            "pretrain",
            f"{path!r}, which does not exist",
            "Check the path",
        )
    if not is_finetuned(path) and os.path.isfile(path):
        return task_export(load(path), target)  # raises with the kind of the file
    if not is_finetuned(path):
        return pretrained_export(path, output_kind or OUTPUT_KINDS[0], target)
    if output_kind is not None:
        raise InputError(
            "--model must be a pre-trained checkpoint for --output_kind",
            f"--output_kind={output_kind} for a fine-tuned model, {path!r}",
            "Omit --output_kind",
        )
    return task_export(load(path), target)


def is_finetuned(path: str) -> bool:
    """Return whether a path is an output of finetune, not of pretrain.

    Args:
        path: A folder or a file.

    Returns:
        True for a .keras file, or a folder with a fine-tuned model.
    """
    return path.endswith(".keras") or os.path.isfile(os.path.join(path, MODEL))


def export(
    exportable: ExportSpec,
    output: str,
    version: int = 1,
    chosen: Sequence[str] = SIGNATURES,
    form: str = "saved_model",
    log: Callable[[str], None] = print,
) -> str:
    """Write a version under a temporary name, validate it, then rename it.

    Args:
        exportable: The functions of `load_exportable`.
        output: The folder of all versions of the model.
        version: The version number for TF Serving.
        chosen: Kinds of signatures of a SavedModel: `text`, `tokens`, or both.
        form: One of `FORMATS`. LiteRT and ONNX contain only the function of ids.
        log: Called with each line about the validation.

    Returns:
        The version's folder.

    Raises:
        InputError: The version exists, or its validation failed.
    """
    final = check(output, version, chosen, form)
    os.makedirs(output, exist_ok=True)
    partial = tempfile.mkdtemp(prefix=f".{version}.partial.", dir=output)
    os.chmod(partial, 0o755)  # the server is often another user
    try:
        with reraise_full_disk(
            output, "Free space, then run the same command again; nothing was exported"
        ):
            _WRITERS[form](exportable, partial, chosen, log)
            os.rename(partial, final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if not os.listdir(output):
            os.rmdir(output)
    return final


def export_saved_model(
    model: TextModel | str | os.PathLike, output: str | os.PathLike, version: int = 1
) -> str:
    """Write a SavedModel for TF Serving, and compare it with the Keras model.

    Args:
        model: A fine-tuned model, its `.keras` file or folder, or a pre-training
            checkpoint or run, of which the encoder is served.
        output: The folder of all versions of the model.
        version: The number of this version.

    Returns:
        The version's folder.

    Raises:
        InputError: The version exists, there is no model, or the written model
            differs from the Keras model.

    Example:
        import electra_tf

        electra_tf.export_saved_model("model.keras", "served")  # served/1
    """
    if isinstance(model, TextModel):
        spec = task_export(model)
    elif isinstance(model, str | os.PathLike):
        spec = load_exportable(os.fspath(model))
    else:
        raise InputError(
            "export_saved_model must get a model of a task or a path",
            type(model).__name__,
            "Pass a TextClassifier, TextRegressor, TokenClassifier or "
            "QuestionAnswerer, or the path of a checkpoint",
        )
    return export(spec, os.fspath(output), version, log=_logger.info)


def check(output: str, version: int, chosen: Sequence[str], form: str) -> str:
    """Validate the arguments of `export` before anything is loaded or written.

    Args:
        output: As for `export`.
        version: As for `export`.
        chosen: As for `export`.
        form: As for `export`.

    Returns:
        The version's folder, which does not exist yet.

    Raises:
        InputError: The folder exists, an extra is not installed, or the signatures are
            unknown or do not fit the format.
    """
    if not chosen or set(chosen) - set(SIGNATURES):
        raise InputError(
            "--signatures must be text, tokens, or text,tokens",
            repr(",".join(chosen)),
            "Omit --signatures for both",
        )
    if form != FORMATS[0] and "tokens" not in chosen:
        raise InputError(
            f"--signatures must contain tokens for --format={form}, which has no other",
            f"--format={form} --signatures={','.join(chosen)}",
            "Omit --signatures",
        )
    for package in _PACKAGES.get(form, ()):
        if importlib.util.find_spec(package) is None:
            raise missing_extra(form, ImportError(f"There is no package {package}"))
    final = os.path.join(output, str(version))
    if os.path.exists(output) and not os.path.isdir(output):
        raise InputError(
            "--output must be a folder",
            f"{output!r}, a file",
            "Choose another --output",
        )
    if os.path.exists(final):
        raise InputError(
            "--version must be a new one, as a server may be serving the old one",
            f"{final!r}, which exists",
            "Pass a higher --version, or delete it",
        )
    return final


def chosen_signatures(
    exportable: ExportSpec, chosen: Sequence[str]
) -> dict[str, Signature]:
    """Return the signatures of a SavedModel by name.

    Args:
        exportable: The functions to export.
        chosen: `text`, `tokens`, or both.

    Returns:
        The signatures. One of them is `serving_default`, which a server uses for
        requests that name no signature.
    """
    known = {"text": exportable.text, "tokens": exportable.tokens}
    signatures = {}
    for kind in chosen:
        signatures |= known[kind]
    if _DEFAULT not in signatures:
        signatures[_DEFAULT] = next(iter(signatures.values()))
    return signatures


def _saved_model(
    exportable: ExportSpec, folder: str, chosen: Sequence[str], log: Callable
) -> None:
    signatures = chosen_signatures(exportable, chosen)
    report = write_saved_model(exportable, signatures, folder)
    for name, difference in report["differences"].items():
        if not name.endswith(validate.ROWS):
            log(f"  {name} differs by {difference:.1e}")
    log(f"  {report['numbers']:,} numbers in {report['variables']} variables")
    if importlib.util.find_spec("tensorflow_serving") is None:
        log("  no warm-up requests: the extra `serving` is not installed")
        return
    longest = exportable.details["max_length"]
    lengths = sorted({min(length, longest) for length in _WARM_LENGTHS})
    write_warmup(
        folder,
        {
            # The last request has no rows.
            name: [
                *signature.requests[:-1],
                *warmup_requests(list(signature.requests[0]), lengths),
            ]
            for name, signature in signatures.items()
        },
    )
    log(f"  warm-up requests of up to {lengths[-1]} positions")


def _litert(
    exportable: ExportSpec, folder: str, chosen: Sequence[str], log: Callable
) -> None:
    """Write the LiteRT files and compare the float32 one with Keras."""
    signature = exportable.tokens["tokens"]
    write_extra(exportable, folder)
    for path in write_litert(signature.whole, folder):
        exact = "float32" in os.path.basename(path)
        _compare(path, signature, run_litert, exact, log)


def _onnx(
    exportable: ExportSpec, folder: str, chosen: Sequence[str], log: Callable
) -> None:
    signature = exportable.tokens["tokens"]
    write_extra(exportable, folder)
    _compare(write_onnx(signature.whole, folder), signature, run_onnx, True, log)


def _compare(
    path: str,
    signature: Signature,
    run: Callable[[str, Request], Mapping[str, np.ndarray]],
    exact: bool,
    log: Callable[[str], None],
) -> None:
    """Compare a converted model's outputs with Keras's."""
    name = os.path.basename(path)
    log(f"  {name}: {os.path.getsize(path) / 1e6:.1f} MB")
    for request in signature.requests[:-1]:  # the last one has no rows
        expected, outputs = signature.expected(request), run(path, request)
        for output, array in outputs.items():
            if array.dtype.kind != "f":
                continue  # rounding decides between two nearly equal candidates
            difference = validate.difference(array, expected[output])
            log(f"  {name}: {output} differs by {difference:.1e}")
            if exact and difference > validate.TOLERANCE:
                raise InputError(
                    f"{name} must equal Keras's outputs to {validate.TOLERANCE:g}",
                    f"{output} differs by {difference:.2g}",
                    "Report it; nothing was exported",
                )


_WRITERS: dict[str, Callable[..., None]] = {
    "saved_model": _saved_model,
    "litert": _litert,
    "onnx": _onnx,
}
FORMATS = tuple(_WRITERS)
