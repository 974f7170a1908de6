"""Convert a model between this package and other libraries."""

import dataclasses
import os
from typing import Literal

from electra_tf import durable_files, sources
from electra_tf.errors import InputError, format_list
from electra_tf.interop import formats
from electra_tf.interop.heads import HeadOptions
from electra_tf.interop.model import PretrainedModel
from electra_tf.interop.names import LAYOUTS
from electra_tf.storage.mirror import check_new_folder
from electra_tf.tasks import load
from electra_tf.training.disk_errors import reraise_full_disk

_NO_OPTIONS = HeadOptions()
_GELU = {"gelu": "exactly", "gelu_tanh": "by tanh"}


@dataclasses.dataclass(frozen=True)
class Conversion:
    """Report of a conversion."""

    model: PretrainedModel
    source_format: str
    target_format: str
    target: str
    differences: tuple[str, ...]
    """Settings of a network that the target's library computes otherwise."""
    left_out: dict[str, str]
    """Tensors and other parts of the source that the target lacks, with reasons."""

    def __str__(self) -> str:
        lines = [f"{self.source_format} -> {self.target_format}: {self.target}"]
        for network in self.model.networks:
            number = sum(array.size for array in network.weights.values())
            weights = len(network.weights)
            lines.append(f"{network.role}: {weights} weights, {number:,} parameters")
        lines += [f"left out: {name}: {why}" for name, why in self.left_out.items()]
        return "\n".join([*lines, *self.differences])


def convert_checkpoint(
    source: str | os.PathLike,
    target: str | os.PathLike,
    format: str = "electra_tf",
    *,
    part: Literal["all", "discriminator", "generator"] = "all",
    vocab: str | None = None,
    sharing: Literal["auto", "none"] = "auto",
    force: bool = False,
    drop_head: bool = False,
    head: HeadOptions = _NO_OPTIONS,
) -> Conversion:
    """Convert a pre-trained or fine-tuned model.

    The target appears under its name when it is complete.

    Args:
        source: A model of any format, an id of the Hugging Face hub, a URL, or two of
            them, `DISCRIMINATOR,GENERATOR`.
        target: A folder that does not exist or is empty.
        format: `electra_tf`, `huggingface`, `keras_hub` or `model_garden`.
        part: Which networks of a pair to convert.
        vocab: A vocabulary for a source without one, or in place of its own.
        sharing: `none` gives a pair's networks tables of their own; `auto` shares equal
            ones and rejects copies that differ.
        force: Write the target even if its library lacks a setting of the source.
        drop_head: Convert the encoder of a fine-tuned model without its head.
        head: Facts about the head of a fine-tuned model that the source lacks.

    Returns:
        A report; `str` of it is for people.

    Raises:
        InputError: The source is damaged or incomplete, the target exists, or its
            library lacks the head or a setting.

    Example:
        import electra_tf

        electra_tf.convert_checkpoint("run", "for_transformers", "huggingface")
    """
    if format not in formats.names():
        known = ", ".join(formats.names())
        raise InputError(f"format must be one of {known}, not {format!r}")
    target = os.path.normpath(os.fspath(target))
    check_new_folder(target, "the target")  # before weights are read
    found = sources.open_source(source, vocab, head)
    model = found.pretrained if drop_head else found.fine_tuned or found.pretrained
    if not drop_head:
        _reject_lost_heads(model, format)
    if part != "all":
        model = model.select(part)
    model = dataclasses.replace(model, separate_tables=sharing == "none")
    differences = _lost_settings(model, target, format, force)
    _write(model, target, format)
    left_out = dict(model.left_out) | _left_out(model, format)
    differences += _other_gelu(model, format)
    return Conversion(model, found.format, format, target, differences, left_out)


def _write(model: PretrainedModel, target: str, format: str) -> None:
    """Write a model, which gets its name when it is complete."""
    is_task = format == "electra_tf" and model.head is not None
    write = load.write if is_task else formats.module_of(format).write
    remedy = "free space, then run the same command again"
    with reraise_full_disk(target, remedy), durable_files.new_folder(target) as folder:
        write(model, folder)


def _lost_settings(
    model: PretrainedModel, target: str, format: str, force: bool
) -> tuple[str, ...]:
    """Return settings that a target's library lacks, an error without `force`."""
    there = LAYOUTS[format].epsilon
    epsilons = {n.role: n.shape.layer_norm_epsilon for n in model.networks}
    lost = tuple(
        f"{role}: layer_norm_epsilon {here} becomes {there}"
        for role, here in epsilons.items()
        if there not in (None, here)
    )
    if lost and not force:
        raise InputError(
            f"{target!r} would not be the source: {'; '.join(lost)}; the target's "
            "library has no setting for it; pass --force to write it all the same"
        )
    return lost


def _other_gelu(model: PretrainedModel, format: str) -> tuple[str, ...]:
    """Return a note on each network whose gelu the target computes otherwise."""
    there = LAYOUTS[format].activation
    return tuple(
        f"{network.role}: gelu is computed {_GELU[here]} in the source, "
        f"{_GELU[there]} in the target: hidden states differ by about 1e-3"
        for network in model.networks
        if (here := network.activation) != there
    )


def _reject_lost_heads(model: PretrainedModel, format: str) -> None:
    """Reject a fine-tuned model whose head the target would not get."""
    head, drop = model.head, "pass --drop_head to convert the encoder alone"
    if head is None:
        if other := model.other_head:
            raise InputError(f"{model.path!r} has {other}; {drop}, and fine-tune again")
        return
    if head.exists_in(format):
        return
    if format != "huggingface":
        raise InputError(f"{format} has no head for a {head.role}; {drop}")
    remedies = " ".join(head.remedies("--set=model."))
    raise InputError(
        f"{format} has no head like that of {model.path!r}, a {head.role}: it lacks "
        f"{head.foreign_settings}; fine-tune with {remedies}, or {drop}"
    )


def _left_out(model: PretrainedModel, format: str) -> dict[str, str]:
    """Return the heads and settings of a tokenizer that a target lacks."""
    left_out = {
        f"the {network.role}'s head": f"{format} has no such head"
        for network in model.networks
        if len(network.names_in(format)) < len(network.weights)
    }
    stored = model.head.settings if model.head else {}
    low, high = stored.get("low", 0.0), stored.get("high", 1.0)
    if format == "huggingface" and (low, high) != (0.0, 1.0):
        left_out[f"the range of scores, {low:g} to {high:g}"] = (
            f"a score is {low:g} + {high - low:g} times the output there"
        )
    settings = model.tokenizer and model.tokenizer.settings
    if not settings or format == "electra_tf":
        return left_out
    if settings.split_unspaced != "none":
        left_out[f"tokenization.split_unspaced: {settings.split_unspaced}"] = (
            f"{format} splits words at spaces alone: insert spaces beforehand"
        )
    whole = settings.keep_whole
    if whole and format != "huggingface":
        name = f"tokenization.keep_whole: {format_list(whole, 3)}"
        left_out[name] = f"{format} splits them as any text"
    return left_out
