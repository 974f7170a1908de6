"""From a trained model's folder to what is served, in one step or not at all."""

import importlib.util
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
from electra_tf.serving.pretrained_models import PARTS, pretrained_export
from electra_tf.serving.task_models import task_export
from electra_tf.serving.warmup import warmup_requests, write_warmup
from electra_tf.tasks.inference import load
from electra_tf.tasks.runner import MODEL
from electra_tf.training.checkpoint import foreign_weights
from electra_tf.training.disk_errors import reraise_full_disk

SIGNATURES = ("text", "tokens")
_DEFAULT = "serving_default"
_PACKAGES = {"litert": ("ai_edge_litert",), "onnx": ("tf2onnx", "onnxruntime")}
_WARM_LENGTHS = 16, 64, 128, 256, 512


def load_exportable(path: str, part: str | None = None) -> ExportSpec:
    """Opens what is to be exported.

    Args:
        path: The output of finetune, or a checkpoint or run of pretrain.
        part: What is served of the latter (see `pretrained_export`); None: `encoder`.

    Returns:
        Its functions.

    Raises:
        InputError: Neither of the two, or a part of a fine-tuned model; a fine-tuning
            without a model yet.
    """
    if not is_finetuned(path) and os.path.isdir(os.path.join(path, "trial_1")):
        raise InputError(
            "The first trial of a fine-tuning is done",
            f"{path}, without a {MODEL}",
            "Run the same finetune command again; it goes on",
        )
    if not os.path.exists(path) and not foreign_weights(path):
        raise InputError(
            "--model must be the --output of finetune, or a checkpoint or run of "
            "pretrain",
            f"{path!r}, which does not exist",
            "Check the path",
        )
    if not is_finetuned(path) and os.path.isfile(path):
        return task_export(load(path))  # raises an error with the kind of the file
    if not is_finetuned(path):
        return pretrained_export(path, part or PARTS[0])
    if part is not None:
        raise InputError(
            "--part is told for a pre-trained checkpoint",
            f"--part={part} for a fine-tuned model, {path}",
            "Leave it out",
        )
    return task_export(load(path))


def is_finetuned(path: str) -> bool:
    """Whether a path is what finetune wrote, not pretrain.

    Args:
        path: A folder or a file.

    Returns:
        True for a .keras file, or a folder with one.
    """
    return path.endswith(".keras") or os.path.isfile(os.path.join(path, MODEL))


def export(
    exportable: ExportSpec,
    output: str,
    version: int = 1,
    chosen: Sequence[str] = SIGNATURES,
    form: str = "saved_model",
    tell: Callable[[str], None] = print,
) -> str:
    """Writes a version, proves it, and gives it its name only then.

    Args:
        exportable: What `opened` returned.
        output: The folder of all versions of the model.
        version: The number that TF Serving knows it by.
        chosen: Which signatures of a SavedModel: of `text`, of `tokens`, or both.
        form: One of `FORMATS`. LiteRT and ONNX hold the function of ids alone.
        tell: Gets lines about what was proved.

    Returns:
        The version's folder.

    Raises:
        InputError: The version exists, or what was written does not hold.
    """
    final = check(output, version, chosen, form)
    os.makedirs(output, exist_ok=True)
    partial = tempfile.mkdtemp(prefix=f".{version}.partial.", dir=output)
    os.chmod(partial, 0o755)  # the server is often another user
    try:
        with reraise_full_disk(
            output, "Free space, then run the same command again; nothing was exported"
        ):
            _WRITERS[form](exportable, partial, chosen, tell)
            os.rename(partial, final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if not os.listdir(output):
            os.rmdir(output)
    return final


def check(output: str, version: int, chosen: Sequence[str], form: str) -> str:
    """Refuses what could not be exported, before anything is loaded or written.

    Args:
        output: As for `export`.
        version: As for `export`.
        chosen: As for `export`.
        form: As for `export`.

    Returns:
        The version's folder, which does not exist.

    Raises:
        InputError: It does, an extra is not installed, or signatures are not known or
            not the format's.
    """
    if not chosen or set(chosen) - set(SIGNATURES):
        raise InputError(
            "--signatures is text, tokens, or text,tokens",
            repr(",".join(chosen)),
            "Leave it out for both",
        )
    if form != FORMATS[0] and "tokens" not in chosen:
        raise InputError(
            "LiteRT and ONNX hold the function of ids alone",
            f"--format={form} --signatures={','.join(chosen)}",
            "Leave --signatures out",
        )
    for package in _PACKAGES.get(form, ()):
        if importlib.util.find_spec(package) is None:
            raise missing_extra(form, ImportError(f"There is no package {package}"))
    final = os.path.join(output, str(version))
    if os.path.exists(output) and not os.path.isdir(output):
        raise InputError(
            "--output is a folder, which holds one for each version",
            f"{output}, a file",
            "Name another one",
        )
    if os.path.exists(final):
        raise InputError(
            "A version is exported once, as a server may be serving it",
            f"{final}, which exists",
            "Pass a higher --version, or delete it",
        )
    return final


def chosen_signatures(
    exportable: ExportSpec, chosen: Sequence[str]
) -> dict[str, Signature]:
    """The signatures of a SavedModel by name.

    Args:
        exportable: Whose.
        chosen: `text`, `tokens`, or both.

    Returns:
        One of them is `serving_default`, the one that clients get who name none.
    """
    known = {"text": exportable.text, "tokens": exportable.tokens}
    found = {name: of for kind in chosen for name, of in known[kind].items()}
    if _DEFAULT not in found:
        found[_DEFAULT] = next(iter(found.values()))
    return found


def _saved_model(
    exportable: ExportSpec, folder: str, chosen: Sequence[str], tell: Callable
) -> None:
    signatures = chosen_signatures(exportable, chosen)
    found = write_saved_model(exportable, signatures, folder)
    for name, difference in found["differences"].items():
        if not name.endswith(validate.ROWS):
            tell(f"  {name} differs by {difference:.1e}")
    tell(f"  {found['numbers']:,} numbers in {found['variables']} variables")
    if importlib.util.find_spec("tensorflow_serving") is None:
        tell("  no warm-up requests: the extra `serving` is not installed")
        return
    longest = exportable.details["max_length"]
    lengths = sorted({min(length, longest) for length in _WARM_LENGTHS})
    write_warmup(
        folder,
        {
            # The last request has no rows.
            name: [*of.requests[:-1], *warmup_requests(list(of.requests[0]), lengths)]
            for name, of in signatures.items()
        },
    )
    tell(f"  warm-up requests of up to {lengths[-1]} positions")


def _litert(
    exportable: ExportSpec, folder: str, chosen: Sequence[str], tell: Callable
) -> None:
    """Files for phones; the float32 one is held against Keras."""
    signature = exportable.tokens["tokens"]
    write_extra(exportable, folder)
    for path in write_litert(signature.whole, folder):
        exact = "float32" in os.path.basename(path)
        _held(path, signature, run_litert, exact, tell)


def _onnx(
    exportable: ExportSpec, folder: str, chosen: Sequence[str], tell: Callable
) -> None:
    signature = exportable.tokens["tokens"]
    write_extra(exportable, folder)
    _held(write_onnx(signature.whole, folder), signature, run_onnx, True, tell)


def _held(
    path: str,
    signature: Signature,
    run: Callable[[str, Request], Mapping[str, np.ndarray]],
    exact: bool,
    tell: Callable[[str], None],
) -> None:
    """Compares a converted model's numbers with Keras's."""
    name = os.path.basename(path)
    tell(f"  {name}: {os.path.getsize(path) / 1e6:.1f} MB")
    for request in signature.requests[:-1]:  # the last one has no rows
        expected, found = signature.expected(request), run(path, request)
        for output, of in found.items():
            if of.dtype.kind != "f":
                continue  # of two candidates as good as equal either may be the first
            difference = validate.difference(of, expected[output])
            tell(f"  {name}: {output} differs by {difference:.1e}")
            if exact and difference > validate.TOLERANCE:
                raise InputError(
                    f"{name} equals what Keras says to {validate.TOLERANCE:g}",
                    f"{output} differs by {difference:.2g}",
                    "Report it; nothing was exported",
                )


_WRITERS: dict[str, Callable[..., None]] = {
    "saved_model": _saved_model,
    "litert": _litert,
    "onnx": _onnx,
}
FORMATS = tuple(_WRITERS)
