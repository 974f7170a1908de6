"""Open trained models of any kind to export or to serve them."""

import logging
import os
import re

from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.serving.export import export
from electra_tf.serving.export_options import (
    LIMITS,
    OUTPUT_KINDS,
    SAVED_MODEL,
    SIGNATURES,
    TARGETS,
    RequestLimits,
    check_arguments,
)
from electra_tf.serving.http_servable import (
    Servable,
    export_folder,
    open_export,
    servable_of,
)
from electra_tf.serving.served_checkpoints import pretrained_export
from electra_tf.serving.served_tasks import task_export
from electra_tf.serving.signatures import ExportSpec
from electra_tf.storage.objects import is_url
from electra_tf.tasks import registry
from electra_tf.tasks.load import load
from electra_tf.tasks.text_model import TextModel

_logger = logging.getLogger(__name__)


def load_exportable(
    path: str | os.PathLike,
    output_kind: str | None = None,
    target: str = TARGETS[0],
    max_length: int | None = None,
    limits: RequestLimits = LIMITS,
) -> ExportSpec:
    """Load a trained model as functions to export.

    `output_kind` selects the outputs of an encoder, also of one with a head of a task
    in the format of another library. Default: the head, or else hidden states.
    """
    source = sources.open_source(path)
    is_own = source.kind == "fine_tuned"
    if not is_own and (output_kind or source.fine_tuned is None):
        kind = output_kind or OUTPUT_KINDS[0]
        return pretrained_export(source, kind, target, max_length, limits)
    for flag, value in (("--output_kind", output_kind), ("--max_length", max_length)):
        if value is not None:
            raise InputError(
                f"{flag}={value} is for pre-trained models, and {source.path!r} is a "
                "fine-tuned one"
            )
    model = load(source)
    columns = registry.of(model).stored_columns(source.task, model)
    return task_export(model, target, limits, columns)


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
            f"model must be a fine-tuned model or a path, not {type(model).__name__}"
        )
    elif max_length is not None:
        raise InputError(
            f"max_length={max_length} is for pre-trained checkpoints, not a "
            f"{type(model).__name__}"
        )
    else:
        spec = task_export(model, limits=limits)
    folder = check_arguments(os.fspath(output), version, SIGNATURES, SAVED_MODEL)
    export(spec, folder, log=_logger.info)
    return folder


def open_servable(
    path: str, name: str | None = None, output_kind: str | None = None
) -> Servable:
    """Open an export, or a model as for `load_exportable`, whose graphs are created in
    memory. `name` is that of URLs, by default the last part of the path."""
    version = export_folder(path)
    if name is None:
        base = os.path.basename(os.path.normpath(path))
        if version and base.isdecimal():
            whole = path if is_url(path) else os.path.abspath(path)
            base = os.path.basename(os.path.dirname(whole.rstrip("/")))
        name = re.sub(r"[^\w.-]", "-", base, flags=re.ASCII)
    if version is None:
        source = sources.open_source(path)
        if source.kind != "fine_tuned" and not source.fine_tuned:
            output_kind = output_kind or "electra"
        return servable_of(load_exportable(path, output_kind), name)
    if output_kind is not None:
        raise InputError(
            f"omit --output_kind={output_kind}: the export {path!r} has fixed outputs"
        )
    return open_export(version, name)
