"""Write a model in any format, and compare it with its source."""

import dataclasses
import os
import re
import shutil
from collections.abc import Callable, Sequence

import numpy as np

from electra_tf import durable_files
from electra_tf.errors import InputError, format_list
from electra_tf.interop import (
    checkpoint,
    huggingface,
    keras_hub,
    model_garden,
    tf1,
)
from electra_tf.interop.names import Format
from electra_tf.interop.network import (
    BIAS,
    TABLE,
    Activation,
    Network,
    Role,
    exchange_rows,
)
from electra_tf.interop.numpy_forward import hidden_states, logits
from electra_tf.interop.pretrained import PretrainedModel

Writer = Callable[[PretrainedModel, str], list[Network]]
"""Function that writes a model into a new folder, and returns what it reads there."""
WRITERS: dict[Format, Writer] = {
    "electra_tf": checkpoint.write,
    "huggingface": huggingface.write,
    "keras_hub": keras_hub.write,
    "model_garden": model_garden.write,
    "tf1": tf1.write,
}
TOLERANCE = 1e-4
_PARTS = {
    False: "",
    True: " with joint_prediction or answerable",
}
_CLASSIFIERS = (
    "its classifier and regressor have a layer with gelu before the output",
    "Pass --drop_head to convert the encoder alone, or --format=tf1, which has this "
    "head",
)
# How the head of a role differs in Hugging Face, and what to do.
_OTHER_HEADS: dict[Role, tuple[str, str]] = {
    "classifier": _CLASSIFIERS,
    "regressor": _CLASSIFIERS,
    "question_answerer": (
        "it predicts the start and end of an answer independently, without a logit of "
        "no answer",
        "Fine-tune with --set=model.joint_prediction=false and "
        "--set=model.answerable=false for such a head, or pass --drop_head to convert "
        "the encoder alone",
    ),
}
_TASK_HEAD = re.compile(
    r"(^|[./])(classifier|qa_outputs|sequence_summary)\.|^task_specific/"
)
_UNFINISHED = ".unfinished"
_Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Largest absolute differences between a source's network and the target's."""

    role: Role
    hidden: float
    """Over the hidden states of all layers."""
    logits: float | None
    """None where the target has no head."""
    exact_hidden: float | None = None
    """Difference with each library's own gelu, if one computes it by tanh; `hidden` and
    `logits` then use tanh on both sides."""

    @property
    def largest(self) -> float:
        """The larger of the two."""
        return max(self.hidden, self.logits or 0.0)

    def __str__(self) -> str:
        parts = [f"hidden states {self.hidden:.2g}"]
        if self.logits is not None:
            parts.append(f"logits {self.logits:.2g}")
        if self.exact_hidden is not None:
            parts.append(f"(gelu by tanh; to exact gelu: {self.exact_hidden:.2g})")
        return f"{self.role}: largest difference of {', '.join(parts)}"


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


def check_target(path: str) -> None:
    """Raise an error unless a conversion can create a folder."""
    if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise InputError(
            "The target must not exist, or be an empty folder",
            f"{path!r}",
            "Name another folder, or delete this one",
        )


def convert(
    model: PretrainedModel,
    source_format: Format,
    target: str,
    format: Format,
    write: Writer,
    force: bool = False,
) -> Conversion:
    """Write a model, and compare it with its source before it gets its name.

    Both are computed on a probe batch by a NumPy forward pass that reads each by its
    own names.

    Args:
        model: The networks to write.
        source_format: Format of the files that they were read from.
        target: A folder that does not exist.
        format: Format of the target.
        write: Writer of the format.
        force: Keep the target even if its outputs differ by more than 1e-4.
    """
    unfinished = target + _UNFINISHED
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        ordered = model if format == "electra_tf" else model.in_original_order()
        written = write(ordered, unfinished)
        comparisons = tuple(
            compare(old.origin, new)
            for old, new in zip(model.networks, written, strict=True)
        )
        worst = max(comparison.largest for comparison in comparisons)
        if not worst <= TOLERANCE and not force:
            raise InputError(
                f"The target must compute what the source computes, within {TOLERANCE}",
                "; ".join(map(str, comparisons)),
                "The target's library has no setting for this model. Pass --force to "
                "write it all the same",
            )
        durable_files.publish(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    left_out = dict(model.left_out) | _heads_left_out(model.networks, written)
    left_out |= _slots_left_out(model, format) | _tokenizer_left_out(model, format)
    return Conversion(model, source_format, format, target, comparisons, left_out)


def reject_lost_heads(model: PretrainedModel, format: Format) -> None:
    """Reject a fine-tuned model whose head the target would not get."""
    if model.head is not None and not model.head.exists_in(format):
        reason = "no heads", "Pass --drop_head to convert the encoder alone"
        if format == "huggingface":
            reason = _OTHER_HEADS[model.head.role]
        raise InputError(
            f"The target must have the head of a {model.head.role}"
            + _PARTS[model.head.joint_prediction or model.head.answerable],
            f"{model.path!r} for {format}: {reason[0]}",
            reason[1],
        )
    heads = {n: why for n, why in model.left_out.items() if _TASK_HEAD.search(n)}
    if heads and model.head is None:
        name, why = next(iter(heads.items()))
        raise InputError(
            "A head must be one that this package has, unless it may be lost",
            f"{model.path!r} with {name!r}: {why}",
            "Pass --drop_head to convert the encoder alone, and fine-tune again",
        )


def compare(source: Network, target: Network) -> Comparison:
    """Compute both networks on a probe batch."""
    batch = _probe(source)
    by_tanh = source.activation != target.activation and "gelu_tanh" in (
        source.activation, target.activation
    )  # fmt: skip
    common: Activation | None = "gelu_tanh" if by_tanh else None
    ours, theirs = (
        hidden_states(n, *_ids_of(n, batch), common) for n in (source, target)
    )
    hidden = max(_distance(a, b) for a, b in zip(ours, theirs, strict=True))
    one, other = (
        _logits(n, states[-1], common)
        for n, states in ((source, ours), (target, theirs))
    )
    difference = None if one is None or other is None else _distance(one, other)
    exact = None
    if by_tanh:
        own = (hidden_states(n, *_ids_of(n, batch)) for n in (source, target))
        exact = max(_distance(a, b) for a, b in zip(*own, strict=True))
    return Comparison(source.role, hidden, difference, exact)


def _ids_of(network: Network, batch: _Batch) -> _Batch:
    """Return the batch with the ids that the network's own table has."""
    token_ids, *others = batch
    ids_V = np.arange(network.shape.vocabulary_size)
    ids_V = exchange_rows({TABLE: ids_V}, network.pad_id)[TABLE]
    return ids_V[token_ids], *others


def _logits(
    network: Network, x: np.ndarray, activation: Activation | None
) -> np.ndarray | None:
    """Return the head's logits; those of a masked LM in this package's order."""
    values = logits(network, x, activation)
    if network.role != "generator" or values is None:
        return values
    exchanged = exchange_rows({BIAS: np.moveaxis(values, -1, 0)}, network.pad_id)
    return np.moveaxis(exchanged[BIAS], 0, -1)


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max())


def _probe(network: Network) -> _Batch:
    """Return ids of all parts of the vocabulary, both segments, and padding."""
    shape, rng = network.shape, np.random.default_rng(0)
    length = min(24, shape.max_positions)
    token_ids = rng.integers(0, shape.vocabulary_size, (2, length))
    segment_ids = np.zeros_like(token_ids)
    segment_ids[:, length // 2 :] = shape.segments - 1
    padding_mask = np.ones_like(token_ids)
    padding_mask[1, length - length // 4 :] = 0
    return token_ids, segment_ids, padding_mask


def _heads_left_out(
    networks: Sequence[Network], written: Sequence[Network]
) -> dict[str, str]:
    return {
        f"the {network.role}'s head": f"{target.format} has no such head"
        for network, target in zip(networks, written, strict=True)
        if network.role != "encoder" and target.role == "encoder"
    }


def _slots_left_out(model: PretrainedModel, format: Format) -> dict[str, str]:
    number = sum(len(network.slots) for network in model.networks)
    if not number or format in ("electra_tf", "tf1"):
        return {}
    return {f"{number} optimizer slots": f"{format} does not store them"}


def _tokenizer_left_out(model: PretrainedModel, format: Format) -> dict[str, str]:
    settings = model.tokenizer and model.tokenizer.settings
    if not settings or format == "electra_tf":
        return {}
    left_out = {}
    if settings.split_unspaced != "none":
        name = f"tokenization.split_unspaced: {settings.split_unspaced}"
        why = f"{format} splits words at spaces alone: insert spaces beforehand"
        left_out[name] = why
    whole = (*settings.keep_whole, *settings.keep_whole_normalized)
    if whole and format != "huggingface":
        name = f"tokenization.keep_whole: {format_list(whole, 3)}"
        left_out[name] = f"{format} splits them as any text"
    return left_out
