"""A model between two formats: its networks, always in this package's names.

A reader of a format calls `Network.read` on its library's tensors, a writer calls
`Network.to_format`; both use the table in `names.py`.
"""

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pydantic

from electra_tf.config.data import TokenizationConfig
from electra_tf.config.model import EncoderConfig
from electra_tf.errors import InputError, format_list, join_first
from electra_tf.interop import names
from electra_tf.interop.heads import TaskHead
from electra_tf.interop.names import LAYOUTS, NO_PREFIXES, Activation, Prefixes, Row
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import find_tokenizer, open_tokenizer
from electra_tf.text.vocab import Vocabulary

Role = str
"""`discriminator`; `generator`: an encoder with a masked-LM head, a BERT too;
`encoder`: no head; or the kind of a fine-tuned model, of `TASK_HEADS`."""

# Rows of the head, and the end of the class's name in transformers.
_HEADS: Mapping[Role, tuple[tuple[Row, ...], str]] = {
    "discriminator": (names.DISCRIMINATOR_HEAD, "ForPreTraining"),
    "generator": (names.MASKED_LM_HEAD, "ForMaskedLM"),
    "encoder": ((), "Model"),
}
COUNTS = (
    *("depth", "width", "embedding", "heads", "feed_forward"),
    *("vocabulary_size", "max_positions", "segments"),
)
"""Sizes of an encoder, each 1 or more."""
TABLE, BIAS = "/word_embeddings", "head/output_bias"  # a row for each entry
_MAX_COUNT = 2**31 - 1
ADD_VOCABULARY = (
    "copy the model's vocab.txt beside its weights, or run `electra-tf convert` with "
    "--vocab=PATH, and name its result"
)
"""Remedy for a model without a vocabulary, in every command."""
_TASK_HEAD = re.compile(
    r"(^|[./])(classifier|qa_outputs|sequence_summary)\.|^task_specific/"
)


@dataclasses.dataclass(frozen=True)
class Network:
    """An encoder and its head."""

    role: Role  # decides the head
    shape: EncoderConfig
    weights: Mapping[str, np.ndarray]
    """float32 by path, `encoder/...` and `head/...`, with kernels [in, out]."""
    head: TaskHead | None = None  # the head of a fine-tuned model
    activation: Activation = "gelu"  # the source's, of feed-forward layers and heads

    @classmethod
    def read(
        cls,
        role: Role,
        shape: EncoderConfig,
        tensors: Mapping[str, np.ndarray],
        format: str,
        source: str,
        prefixes: Prefixes = NO_PREFIXES,
        head: TaskHead | None = None,
        activation: Activation | None = None,
    ) -> "Network":
        """Convert a library's tensors, among which may be others.

        `activation`: by default that of all networks of the format.
        """
        if shape.depth > len(tensors):  # before anything of this size is made
            raise InputError(
                f"{source} must have the weights of {shape.depth} layers, not "
                f"{len(tensors)} tensors"
            )
        layout = LAYOUTS[format]
        network = cls(role, shape, {}, head, activation or layout.activation)
        weights, problems, shapes = {}, [], network.shapes
        for ours, row, theirs in network.rows(format, prefixes):
            size = np.broadcast_to(np.False_, shapes[ours])
            expected = names.to_format(size, row.kind, layout, shape.heads).shape
            if problem := _problem(tensors.get(theirs), expected):
                problems.append(f"{theirs!r} {problem}")
            else:
                array = tensors[theirs]
                array = names.from_format(array, row.kind, layout, shapes[ours])
                weights[ours] = np.asarray(array, np.float32)
        if problems:
            raise InputError(
                f"{source} must have the weights of its config, a {role} of "
                f"{shape.depth} layers: {join_first(problems, 8, '; ')}"
            )
        return dataclasses.replace(network, weights=weights)

    @property
    def has_projection(self) -> bool:
        """True if the embeddings are not as wide as the hidden states."""
        return self.shape.embedding != self.shape.width

    @property
    def class_end(self) -> str:
        """End of the class's name in transformers, after `Electra`."""
        return self.head.kind.transformers if self.head else _HEADS[self.role][1]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight, by path."""
        head = self.head.sizes(self.shape.width) if self.head else {}
        sizes = {**dataclasses.asdict(self.shape), "one": 1, **head}
        return {
            path: tuple(sizes[n] for n in row.shape) for path, row, _ in self.rows()
        }

    @property
    def encoder_weights(self) -> dict[str, np.ndarray]:
        """Weights without those of the head, by path below the encoder."""
        return {
            name.removeprefix("encoder/"): weight
            for name, weight in self.weights.items()
            if name.startswith("encoder/")
        }

    def rows(
        self, format: str = "electra_tf", prefixes: Prefixes = NO_PREFIXES
    ) -> Iterator[tuple[str, Row, str]]:
        """Yield the path, the row, and a library's name of each weight it has."""
        head = self.head.rows if self.head else _HEADS[self.role][0]
        return names.named_rows(
            format, prefixes, self.shape.depth, self.has_projection, head
        )

    def names_in(self, format: str, prefixes: Prefixes = NO_PREFIXES) -> set[str]:
        """Return a library's names of the weights."""
        return {theirs for _, _, theirs in self.rows(format, prefixes)}

    def to_format(
        self, format: str, prefixes: Prefixes = NO_PREFIXES
    ) -> dict[str, np.ndarray]:
        """Return the weights as a library names them; it may lack the head."""
        layout, heads = LAYOUTS[format], self.shape.heads
        return {
            theirs: names.to_format(self.weights[ours], row.kind, layout, heads)
            for ours, row, theirs in self.rows(format, prefixes)
        }

    def without_head(self) -> "Network":
        """Return the encoder alone."""
        weights = {n: w for n, w in self.weights.items() if n.startswith("encoder/")}
        return dataclasses.replace(self, weights=weights, role="encoder", head=None)


@dataclasses.dataclass(frozen=True)
class PretrainedModel:
    """One network, or a discriminator and its generator."""

    networks: tuple[Network, ...]  # a discriminator first
    tokenizer: WordPieceTokenizer | None  # None where the source has none
    path: str  # the source, for messages
    step: int = 0  # number of completed updates, 0 where the source does not say
    separate_tables: bool = False  # whether each network has its own tables
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Tensors of the source that no target gets, with the reason."""
    source_notes: tuple[str, ...] = ()  # notes of the source's reader to print
    others: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Weights of a run of this package that are of no network, by the run's paths."""

    @classmethod
    def of_networks(
        cls,
        networks: Sequence[Network],
        tokenizer: WordPieceTokenizer | None,
        path: str,
        **more: Any,
    ) -> "PretrainedModel":
        """Return the model of networks whose tables have the vocabulary's entries."""
        if tokenizer is not None:
            networks = [_with_spare_rows(n, tokenizer.vocabulary) for n in networks]
        networks = sorted(networks, key=lambda network: network.role == "generator")
        roles = [network.role for network in networks]
        if len(networks) == 2 and roles != ["discriminator", "generator"]:
            raise InputError(
                f"{path} must be a discriminator and a generator, not "
                f"{' and '.join(roles)}"
            )
        return cls(tuple(networks), tokenizer, path, **more)

    @classmethod
    def of_pair(
        cls, models: Sequence["PretrainedModel"], path: str
    ) -> "PretrainedModel":
        """Return the model of a discriminator and its generator."""
        tokenizers = [model.tokenizer for model in models if model.tokenizer]
        files = [tokenizer.vocabulary for tokenizer in tokenizers]
        if len({vocabulary.tokens for vocabulary in files}) > 1:
            both = " and ".join(f"{one.source}, {len(one):,} entries," for one in files)
            raise InputError(
                f"{both} are different vocabularies of a discriminator and its "
                "generator; run `electra-tf convert` with --vocab=PATH of theirs, and "
                "name its result"
            )
        return cls.of_networks(
            [network for one in models for network in one.networks],
            next(iter(tokenizers), None),
            path,
            step=models[0].step,
            left_out={n: why for one in models for n, why in one.left_out.items()},
            source_notes=tuple(n for one in models for n in one.source_notes),
        )

    @property
    def main(self) -> Network:
        """The discriminator, or the only network."""
        return self.networks[0]

    def require_tokenizer(self) -> WordPieceTokenizer:
        """Return the tokenizer; raise an error if there is none."""
        if self.tokenizer is None:
            raise InputError(f"{self.path!r} has no vocabulary; {ADD_VOCABULARY}")
        return self.tokenizer

    @property
    def head(self) -> TaskHead | None:
        """The head of a fine-tuned model."""
        return self.main.head

    @property
    def other_head(self) -> str | None:
        """A tensor of the head of a task that is not read, and why; None: no such."""
        lines = (
            f"{name!r}: {why}"
            for name, why in self.left_out.items()
            if _TASK_HEAD.search(name)
        )
        return next(lines, None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes to print: the reader's, and one on rows without an entry."""
        shape = self.main.shape
        if self.tokenizer is None or not shape.spare_rows:
            return self.source_notes
        return (
            *self.source_notes,
            f"{shape.spare_rows:,} of {shape.vocabulary_size:,} rows of the token "
            f"table have no entry in {self.tokenizer.vocabulary.source}: they are "
            "kept, and no text has their ids",
        )

    def folders(self, path: str) -> Iterator[tuple[Network, str]]:
        """Create and yield a folder for each network; a generator has its own."""
        for number, network in enumerate(self.networks):
            folder = os.path.join(path, "generator") if number else path
            os.makedirs(folder, exist_ok=True)
            yield network, folder

    def without_task_head(self) -> "PretrainedModel":
        """Return the encoder of a fine-tuned model, or a pre-trained model as it is."""
        if self.head is None:
            return self
        left_out = {**self.left_out, f"the {self.head.role}'s head": "it is dropped"}
        networks = (self.main.without_head(),)
        return dataclasses.replace(self, networks=networks, left_out=left_out)

    def select(self, role: Role) -> "PretrainedModel":
        """Return the model with one of its networks alone."""
        kept = tuple(network for network in self.networks if network.role == role)
        if not kept:
            roles = format_list(network.role for network in self.networks)
            raise InputError(
                f"{self.path} has no {role}, only {roles}; omit --part or pass "
                f"--part={self.main.role}"
            )
        return dataclasses.replace(self, networks=kept)

    def sharing(self) -> str:
        """Return what the pair shares, as `model.sharing` names it."""
        if len(self.networks) < 2:
            return "embeddings"
        if self.separate_tables:
            return "none"
        first, second = self.networks
        one, other = first.weights, second.weights
        paths = [row.electra_tf for row in names.EMBEDDINGS]
        if any(one[path].shape != other[path].shape for path in paths):
            return "none"
        differing = [p for p in paths if not np.array_equal(one[p], other[p])]
        if differing:
            raise InputError(
                f"{self.path}: the discriminator's and the generator's "
                f"{format_list(differing)} differ, but are shared; name the two halves "
                "of one model, or run `electra-tf convert --sharing=none`, and name "
                "its result"
            )
        same = first.shape == second.shape and all(
            np.array_equal(weight, other[path])
            for path, weight in first.without_head().weights.items()
        )
        return "all" if same else "embeddings"


def _with_spare_rows(network: Network, vocabulary: Vocabulary) -> Network:
    """Return a network with the number of rows that a vocabulary has no entry for."""
    rows = network.shape.vocabulary_size
    if rows < len(vocabulary):
        raise InputError(
            f"the {network.role}'s token table has {rows:,} rows, and "
            f"{vocabulary.source} has {len(vocabulary):,} entries; if tokens were "
            "added to the tokenizer alone, call "
            "model.resize_token_embeddings(len(tokenizer)) in transformers and save "
            "both"
        )
    shape = dataclasses.replace(network.shape, spare_rows=rows - len(vocabulary))
    return dataclasses.replace(network, shape=shape)


def _problem(array: np.ndarray | None, shape: tuple[int, ...]) -> str | None:
    """Return what is wrong with a weight; None: nothing."""
    if array is None:
        return "is missing"
    if array.shape != shape:
        return f"has the shape {array.shape}, not {shape}"
    if array.dtype.kind != "f" and array.dtype != ml_dtypes.bfloat16:
        return f"has the dtype {array.dtype}, not floats"
    count = array.size - np.isfinite(array).sum()
    return f"has {count:,} numbers that are NaN or infinite" if count else None


def table_shape(
    tensors: Mapping[str, np.ndarray], name: str, source: str, axes: int = 2
) -> tuple[int, ...]:
    """Return the shape of a weight from which a network's sizes are read."""
    shape = tensors[name].shape if name in tensors else None
    if shape is None or len(shape) != axes or 0 in shape:
        found = "is missing" if shape is None else f"has the shape {shape}"
        raise InputError(f"{source}: {name} must have {axes} axes, but {found}")
    return shape


def shape_of(
    tensors: Mapping[str, np.ndarray],
    format: str,
    source: str,
    prefixes: Prefixes = NO_PREFIXES,
) -> EncoderConfig:
    """Return the shape of an encoder's tensors, of a format that stores no config.

    Where kernels of attention have no axis for the heads, these are 64 wide.
    """
    most, layout = len(tensors) // len(names.LAYER) + 1, LAYOUTS[format]
    for projection in (False, True):  # which numbers the layers behind it
        rows = names.named_rows(format, prefixes, most, projection, ())
        named = {ours: theirs for ours, _, theirs in rows}
        queries = [
            named[f"encoder/layer_{n}/attention/query/kernel"] for n in range(most)
        ]
        if queries[0] in tensors:
            break

    def size(ours: str, axes: int = 2) -> tuple[int, ...]:
        return table_shape(tensors, named[f"encoder/{ours}"], source, axes)

    width, *heads = size("layer_0/attention/query/kernel", 2 + layout.split_heads)
    rows, embedding = size("embeddings/word_embeddings")
    return read_shape(
        source,
        depth=sum(query in tensors for query in queries),
        width=width,
        embedding=embedding,
        heads=heads[0] if layout.split_heads else max(1, width // 64),
        feed_forward=size("layer_0/intermediate/kernel")[1],
        vocabulary_size=rows,
        max_positions=size("embeddings/position_embeddings")[0],
        segments=size("embeddings/segment_embeddings")[0],
    )


def shape_of_config(
    source: str, config: Mapping[str, Any], keys: Mapping[str, str], **defaults: Any
) -> EncoderConfig:
    """Return the shape in a library's config, by its keys of our sizes."""
    stored = {ours: config.get(theirs) for ours, theirs in keys.items()}
    values = defaults | {n: value for n, value in stored.items() if value is not None}
    if missing := [keys[name] for name in COUNTS if name not in values]:
        raise InputError(f"{source} has no {format_list(missing)}")
    return read_shape(source, **values)


def read_shape(source: str, **values: Any) -> EncoderConfig:
    """Return the shape of these sizes, with BERT's rates of dropout."""
    try:
        shape = EncoderConfig(**{"dropout": 0.1, "attention_dropout": 0.1} | values)
        problems = [
            f"{name} {value}"
            for name, value in dataclasses.asdict(shape).items()
            if not (name in COUNTS) <= value <= _MAX_COUNT
        ]
        if not problems and shape.width % shape.heads:
            problems = [f"width {shape.width} for {shape.heads} heads"]
    except pydantic.ValidationError as error:
        problems = [f"{e['loc'][0]} {e['input']!r:.80}" for e in error.errors()]
    if problems:
        raise InputError(
            f"{source} must have the sizes of an encoder, not {'; '.join(problems)}"
        )
    return shape


def explain_left_out(
    names: Iterable[str], reasons: Mapping[str, str], source: str
) -> dict[str, str]:
    """Return why tensors are not read, by patterns; reject those of no pattern."""
    left_out = {
        name: next((why for n, why in reasons.items() if re.search(n, name)), None)
        for name in sorted(names)
    }
    if unknown := [name for name, why in left_out.items() if why is None]:
        raise InputError(f"{source} has unknown tensors: {format_list(unknown, 4)}")
    return left_out


def choose_tokenizer(
    vocab: str | None, folder: str, default: TokenizationConfig = TokenizationConfig()
) -> WordPieceTokenizer | None:
    """Return a source's tokenizer, or another vocabulary's; default: its settings."""
    if vocab is None:
        stored = find_tokenizer(folder)
        return stored and stored.tokenizer(default)
    stored = open_tokenizer(vocab)
    if stored.settings is None and (own := find_tokenizer(folder)):
        default = own.settings or default
    return stored.tokenizer(default)
