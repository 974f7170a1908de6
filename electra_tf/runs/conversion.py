"""Convert a model between this package and other libraries, and check the result."""

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from electra_tf import durable_files, sources
from electra_tf.errors import InputError, format_list
from electra_tf.interop import checkpoint, huggingface, keras_hub, model_garden, tf1
from electra_tf.interop.names import Format
from electra_tf.interop.network import Network
from electra_tf.interop.pretrained import PretrainedModel
from electra_tf.interop.read_back import Comparison, compare
from electra_tf.interop.task_heads import HeadOptions
from electra_tf.tasks import load

# Each writes a model into a new folder, and returns what it reads there.
_WRITERS: dict[Format, Callable[[PretrainedModel, str], list[Network]]] = {
    "electra_tf": checkpoint.write,
    "huggingface": huggingface.write,
    "keras_hub": keras_hub.write,
    "model_garden": model_garden.write,
    "tf1": tf1.write,
}
_DROP = "--drop_head to convert the encoder alone"
_WITH_HEADS: tuple[Format, ...] = ("huggingface", "tf1")
_UNFINISHED = ".unfinished"
_NO_OPTIONS = HeadOptions()


@dataclasses.dataclass(frozen=True)
class Conversion:
    """Report of a conversion."""

    model: PretrainedModel
    source_format: Format
    target_format: Format
    target: str
    comparisons: tuple[Comparison, ...]
    left_out: dict[str, str]
    """Tensors and other parts of the source that the target lacks, with reasons."""

    def __str__(self) -> str:
        lines = [f"{self.source_format} -> {self.target_format}: {self.target}"]
        for network in self.model.networks:
            number = sum(array.size for array in network.weights.values())
            weights = len(network.weights)
            lines.append(f"{network.role}: {weights} weights, {number:,} parameters")
        lines += [f"left out: {name}: {why}" for name, why in self.left_out.items()]
        return "\n".join([*lines, *map(str, self.comparisons)])


def convert_checkpoint(
    source: str | os.PathLike,
    target: str | os.PathLike,
    format: Format = "electra_tf",
    *,
    part: Literal["all", "discriminator", "generator"] = "all",
    vocab: str | None = None,
    sharing: Literal["auto", "none"] = "auto",
    force: bool = False,
    drop_head: bool = False,
    head: HeadOptions = _NO_OPTIONS,
) -> Conversion:
    """Convert a pre-trained or fine-tuned model, and compare source and target.

    The target is read again, and its weights and settings must be those of the source.
    It appears under its name after that.

    Args:
        source: A checkpoint folder or run of this package, an output of fine-tuning, a
            Hugging Face folder, a TensorFlow 1 or Model Garden checkpoint, a KerasHub
            preset, an id of the Hugging Face hub, or a URL of an object store; or two
            of them, `DISCRIMINATOR,GENERATOR`.
        target: A folder that does not exist.
        format: Format of the target.
        part: Which networks of a pair to convert.
        vocab: A vocabulary for a source without one, or in place of its own.
        sharing: `none` gives a pair's networks tables of their own; `auto` shares equal
            ones and rejects copies that differ.
        force: Keep the target even if a setting differs, which its library lacks.
        drop_head: Convert the encoder of a fine-tuned model without its head.
        head: Facts about the head of a fine-tuned model that the source lacks.

    Returns:
        A report; `str` of it is for people.

    Raises:
        InputError: The source is damaged or incomplete, the target exists or has no
            such head, or the outputs differ.

    Example:
        import electra_tf

        electra_tf.convert_checkpoint("run", "for_transformers", "huggingface")
    """
    target = os.path.normpath(os.fspath(target))
    if os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise InputError(
            "The target must not exist, or be an empty folder",
            f"{target!r}",
            "Name another folder, or delete this one",
        )
    found = sources.open_source(source, vocab, head)
    model = found.pretrained if drop_head else found.fine_tuned or found.pretrained
    if not drop_head:
        _reject_lost_heads(model, format)
    if part != "all":
        model = model.select(part)
    if sharing == "none":
        model = dataclasses.replace(model, separate_tables=True)
    written, comparisons = _write(model, target, format, force)
    left_out = dict(model.left_out) | _left_out(model, written, format)
    return Conversion(model, found.format, format, target, comparisons, left_out)


def _write(
    model: PretrainedModel, target: str, format: Format, force: bool
) -> tuple[list[Network], tuple[Comparison, ...]]:
    """Write a model, and compare it with its source before it gets its name."""
    is_task = format == "electra_tf" and model.head is not None
    write = load.write if is_task else _WRITERS[format]
    ordered = model if format == "electra_tf" else model.in_original_order()
    unfinished = target + _UNFINISHED
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        written = write(ordered, unfinished)
        pairs = zip(ordered.networks, written, strict=True)
        comparisons = tuple(compare(a, b, a.origin.activation) for a, b in pairs)
        if any(one.differences for one in comparisons) and not force:
            raise InputError(
                "The target must have the weights and settings of the source",
                "; ".join(map(str, comparisons)),
                "The target's library has no setting for this model. Pass --force to "
                "write it all the same",
            )
        durable_files.publish(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return written, comparisons


def _reject_lost_heads(model: PretrainedModel, format: Format) -> None:
    """Reject a fine-tuned model whose head the target would not get."""
    head = model.head
    if head is not None and (difference := _other_head(model.main, format)):
        why, remedies = difference
        options = {**head.form.options}
        if head.pooling != "cls":
            options = {"pooling": head.pooling}
        chosen = f" with {_settings(options)}" if options else ""
        remedy = ", or ".join([*remedies, f"pass {_DROP}"])
        raise InputError(
            f"The target must have the head of a {head.role}{chosen}",
            f"{model.path!r} for {format}: {why}",
            remedy[0].upper() + remedy[1:],
        )
    if head is None and (other := model.other_head):
        raise InputError(
            "A head must be one that this package has, unless it may be lost",
            f"{model.path!r} with {other}",
            "Pass --drop_head to convert the encoder alone, and fine-tune again",
        )


def _other_head(network: Network, format: Format) -> tuple[str, list[str]] | None:
    """Return how a library's head of this kind differs, and what to do; None: equal."""
    head, shape = network.head, network.shape
    if format == "electra_tf":
        return None
    if format not in _WITH_HEADS:
        return "no heads", []
    if head.pooling != "cls":
        return "its head takes the vector of [CLS]", [_fine_tune({"pooling": "cls"})]
    fitting = [form for form in head.kind.forms if form.exists_in(format)]
    if not head.form.exists_in(format):
        others = [f for f in _WITH_HEADS if head.form.exists_in(f)]
        return (
            f"its head {fitting[0].note}" if fitting else "no such head",
            [
                *(_fine_tune(form.options) for form in fitting[:1]),
                *(f"pass --format={f}, which has this head" for f in others),
            ],
        )
    if format == "huggingface" and network.library == "bert" and network.has_projection:
        return (
            "this is the head of a BERT, whose embeddings are as wide as its hidden "
            f"states, not {shape.embedding} and {shape.width}",
            [_fine_tune(fitting[0].options)],
        )
    return None


def _fine_tune(options: Mapping[str, Any]) -> str:
    """Return the remedy for a head with other settings than these."""
    flags = [f"--set={setting}" for setting in _settings(options).split(", ")]
    return f"fine-tune with {' and '.join(flags)} for such a head"


def _settings(options: Mapping[str, Any]) -> str:
    """Return settings of a head as they are written in flags."""
    return ", ".join(f"model.{n}={str(value).lower()}" for n, value in options.items())


def _left_out(
    model: PretrainedModel, written: Sequence[Network], format: Format
) -> dict[str, str]:
    """Return the heads, slots and settings of a tokenizer that a target lacks."""
    left_out = {
        f"the {network.role}'s head": f"{target.format} has no such head"
        for network, target in zip(model.networks, written, strict=True)
        if network.role != "encoder" and target.role == "encoder"
    }
    slots = sum(len(network.slots) for network in model.networks)
    if slots and format not in ("electra_tf", "tf1"):
        left_out[f"{slots} optimizer slots"] = f"{format} does not store them"
    stored = model.head.settings if model.head else {}
    bounds = stored.get("low", 0.0), stored.get("high", 1.0)
    if format == "huggingface" and bounds != (0.0, 1.0):
        low, high = bounds
        left_out[f"the range of scores, {low:g} to {high:g}"] = (
            f"a score is {low:g} + {high - low:g} times the output there"
        )
    settings = model.tokenizer and model.tokenizer.settings
    if not settings or format == "electra_tf":
        return left_out
    if settings.split_unspaced != "none":
        name = f"tokenization.split_unspaced: {settings.split_unspaced}"
        why = f"{format} splits words at spaces alone: insert spaces beforehand"
        left_out[name] = why
    whole = (*settings.keep_whole, *settings.keep_whole_normalized)
    if whole and format != "huggingface":
        name = f"tokenization.keep_whole: {format_list(whole, 3)}"
        left_out[name] = f"{format} splits them as any text"
    return left_out
