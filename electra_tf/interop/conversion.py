"""Detect a source, read it, write a target, and compare the two."""

import contextlib
import dataclasses
import functools
import glob
import importlib
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Literal

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
from electra_tf.interop.hub import is_hub_id, local_folder
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
from electra_tf.interop.remote_models import local_model
from electra_tf.interop.task_heads import HeadOptions, is_finished, renamed
from electra_tf.interop.tensor_files import SAFETENSORS, TORCH, find_weights
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.warnings import entry_warnings
from electra_tf.training.checkpoint import Checkpoint, open_checkpoint

# In order of detection: a folder of ours may also have files of another format.
_MODULES: dict[Format, ModuleType] = {
    "electra_tf": checkpoint,
    "huggingface": huggingface,
    "keras_hub": keras_hub,
    "model_garden": model_garden,
    "tf1": tf1,
}
TOLERANCE = 1e-4
_NO_OPTIONS = HeadOptions()
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
# It writes models of Keras, which `interop` may not import.
_TASK_MODULE = "electra_tf.tasks.finished_models"
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


def detect(path: str) -> Format | None:
    """Return the format of a file, folder or prefix, or None."""
    if is_finished(path):
        return "electra_tf"
    found = (name for name, module in _MODULES.items() if module.accepts(path))
    return next(found, None)


def _task_module() -> ModuleType:
    return importlib.import_module(_TASK_MODULE)


def is_foreign(path: str) -> bool:
    """Return whether a path is a model of another library, or a hub id."""
    if os.path.exists(path):
        return detect(path) not in (None, "electra_tf")
    parts = path.split(",")
    formats = ["huggingface" if is_hub_id(part) else detect(part) for part in parts]
    return None not in formats and set(formats) != {"electra_tf"}


@contextlib.contextmanager
def open_as_checkpoint(path: str) -> Iterator[Checkpoint]:
    """Open a checkpoint, or another library's model as a temporary checkpoint.

    Yields:
        The checkpoint; its files exist within the `with` block only, if they are
        temporary.
    """
    if not is_foreign(path):
        yield open_checkpoint(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.write(read_model(path)[0], folder)
        yield open_checkpoint(folder)


def read_model(
    path: str, vocab: str | None = None, head: HeadOptions | None = None
) -> tuple[PretrainedModel, Format]:
    """Read a model of any format.

    Args:
        path: A file, folder, prefix or hub id; or two, separated by a comma:
            discriminator and generator.
        vocab: A vocabulary for a source without one, or in place of its own.
        head: Options of a fine-tuned model's head; None: its encoder is read alone.

    Returns:
        The model and the format of its source.
    """
    models, formats = [], []
    for part in map(local_folder, path.split(",")):
        name = detect(part)
        if name is None:
            state, remedy = _describe_unknown(part)
            raise InputError(
                "A model must be a checkpoint of this package, a Hugging Face folder "
                "(config.json with model.safetensors or pytorch_model.bin), a prefix "
                "of a TensorFlow 1 or Model Garden checkpoint, a KerasHub preset, or "
                "a hub id OWNER/NAME",
                f"{part!r}, {state}",
                remedy,
            )
        models.append(_read(name, part, vocab, head))
        formats.append(name)
    model = models[0]
    if len(models) > 1:
        model = PretrainedModel.of_networks(
            [network for one in models for network in one.networks],
            _common_tokenizer(models),
            path,
            step=model.step,
            left_out={n: why for one in models for n, why in one.left_out.items()},
        )
    if model.tokenizer is not None and formats[0] != "electra_tf":
        for line in entry_warnings(model.tokenizer):
            warnings.warn(line, stacklevel=2)
    for note in model.notes:
        _print_note(note)
    return model, formats[0]


def _describe_unknown(path: str) -> tuple[str, str]:
    """Return what a path without a known format is, and a remedy."""
    if glob.glob(f"{glob.escape(path)}.data-*"):
        return "without an .index file", "Copy its .index file beside the .data files"
    if not os.path.exists(path):
        return "which does not exist", "Check the path"
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if not os.path.isdir(path) and detect(folder):
        return "one file of a model", f"Name its folder, {folder}"
    has_config = os.path.isfile(os.path.join(folder, huggingface.CONFIG))
    if find_weights(folder):
        return "without a config", f"Copy the model's config.json into {folder}"
    if os.path.isfile(os.path.join(folder, "metadata.json")):
        weights = keras_hub.WEIGHTS
        return f"without {weights}", f"Copy the preset's {weights} into {folder}"
    if has_config:
        return (
            "without weights that are read",
            f"Copy the model's {SAFETENSORS} or {TORCH} into {folder}; other weights "
            "(.h5, .msgpack) have to be saved as one of these, with transformers",
        )
    return "which has none of these", "Name another path"


@functools.cache  # once a process; a command may read a model several times
def _print_note(note: str) -> None:
    print(f"note: {note}", file=sys.stderr)


def _common_tokenizer(models: Sequence[PretrainedModel]) -> Tokenizer | None:
    """Return the tokenizer of both halves of a pair."""
    tokenizers = [model.tokenizer for model in models if model.tokenizer]
    files = [tokenizer.vocabulary for tokenizer in tokenizers]
    if len({vocabulary.file_tokens for vocabulary in files}) > 1:
        raise InputError(
            "A discriminator and its generator must have the same vocabulary",
            " and ".join(f"{one.source}, {len(one):,} entries" for one in files),
            "Name the two halves of one model, or run `electra-tf convert` with "
            "--vocab=PATH of their vocabulary, and name its result",
        )
    return next(iter(tokenizers), None)


def _read(
    name: Format, path: str, vocab: str | None, head: HeadOptions | None
) -> PretrainedModel:
    if name == "electra_tf" and vocab is not None:
        raise InputError(
            "--vocab must be left out for a model of this package, which has its own",
            f"{vocab!r} for {path!r}",
            "Leave it out",
        )
    if name == "tf1":
        model = tf1.read(path, vocab, head or HeadOptions())
    elif name != "electra_tf":
        model = _MODULES[name].read(path, vocab)
    else:
        model = (_task_module() if is_finished(path) else checkpoint).read(path)
    if head is None:
        return model.without_task_head()
    if model.head is None:
        return model
    named = renamed(model.head, head.labels, path)
    named = dataclasses.replace(named, name=head.task or named.name)
    return model.with_head(named)


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

    Source and target are computed on a probe batch by a NumPy forward pass that reads
    each by its own names. The target appears under its name after that.

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
        force: Keep the target even if its outputs differ by more than 1e-4.
        drop_head: Convert the encoder of a fine-tuned model without its head.
        head: What the source does not say about the head of a fine-tuned model.

    Returns:
        A report; `str` of it is for people.

    Raises:
        InputError: The source is damaged or incomplete, the target exists or has no
            such head, or the outputs differ.

    Example:
        import electra_tf

        electra_tf.convert_checkpoint("run", "for_transformers", "huggingface")
    """
    source, target = local_model(source), os.path.normpath(os.fspath(target))
    if os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise InputError(
            "The target must not exist, or be an empty folder",
            f"{target!r}",
            "Name another folder, or delete this one",
        )
    model, source_format = read_model(source, vocab, None if drop_head else head)
    if not drop_head:
        _reject_lost_heads(model, format)
    if part != "all":
        model = model.select(part)
    if sharing == "none":
        model = dataclasses.replace(model, separate_tables=True)
    unfinished = target + _UNFINISHED
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        is_task = format == "electra_tf" and model.head is not None
        module = _task_module() if is_task else _MODULES[format]
        ordered = model if format == "electra_tf" else model.in_original_order()
        written = module.write(ordered, unfinished)
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


def _reject_lost_heads(model: PretrainedModel, format: Format) -> None:
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
