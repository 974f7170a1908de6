"""Open trained models of any kind to export or to serve them."""

import logging
import os
import re

from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.interop.keras_networks import load_networks
from electra_tf.model.electra import ElectraPair, MaskedLMPair
from electra_tf.serving.export import export
from electra_tf.serving.export_options import (
    LIMITS,
    TARGETS,
    RequestLimits,
    check_export,
)
from electra_tf.serving.http_servable import (
    Servable,
    export_folder,
    open_export,
    servable_of,
)
from electra_tf.serving.served_encoder import (
    ServedDetector,
    ServedEncoder,
    ServedMaskedLM,
)
from electra_tf.serving.served_tasks import task_export
from electra_tf.serving.signatures import ServedModel
from electra_tf.storage.objects import is_url
from electra_tf.tasks import registry
from electra_tf.tasks.load import load
from electra_tf.tasks.text_model import TextModel

_logger = logging.getLogger(__name__)


def load_exportable(
    path: str | os.PathLike | sources.Source,
    output_kind: str | None = None,
    target: str = TARGETS[0],
    max_length: int | None = None,
    limits: RequestLimits = LIMITS,
) -> ServedModel:
    """Load a trained model as functions to export.

    With `output_kind`, which is `encoder`, they are those of the encoder also of a
    model with a head of a task in the format of another library.
    """
    source = path if isinstance(path, sources.Source) else sources.open_source(path)
    is_own = source.kind == "fine_tuned"
    if not is_own and (output_kind or source.fine_tuned is None):
        return ServedEncoder(source, target, max_length, limits)
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
        served = load_exportable(model, max_length=max_length, limits=limits)
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
        served = task_export(model, limits=limits)
    folder = check_export(os.path.join(output, str(version)), argument="output")
    export(served, folder, log=_logger.info)
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
        is_own = source.kind == "fine_tuned"
        if not output_kind and not is_own and source.fine_tuned is None:
            output_kind = "electra"
        if output_kind == "electra" and not is_own:
            return _pretrained_servable(source, name)
        return servable_of(load_exportable(source, output_kind), name)
    if output_kind is not None:
        raise InputError(
            f"omit --output_kind={output_kind}: the export {path!r} has fixed outputs"
        )
    return open_export(version, name)


def _pretrained_servable(source: sources.Source, name: str) -> Servable:
    """Return the heads of a pre-trained model, the discriminator's first."""
    objective = source.run.config.objective
    if objective.towers == 2:
        raise InputError(
            f"{source.path!r} of objective.name={objective.name} has scores that are "
            "energies and not probabilities; pass --output_kind=encoder"
        )
    try:
        model = load_networks(source.run)
    except InputError as error:
        raise InputError(
            f"{error} For its vectors pass --output_kind=encoder."
        ) from error
    if not isinstance(model, ElectraPair):
        model = model.main if isinstance(model, MaskedLMPair) else model
        return servable_of(ServedMaskedLM(source, model=model), name)
    servable = servable_of(ServedDetector(source, model=model.discriminator), name)
    if model.generator:
        masks = servable_of(ServedMaskedLM(source, model=model.generator), name)
        servable.signatures["masked_text"] = masks.signatures["serving_default"]
        servable.signatures["masked_tokens"] = masks.signatures["tokens"]
    return servable
