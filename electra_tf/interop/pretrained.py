"""A pre-trained model between two formats: its networks and what belongs to them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf.config.pretraining import TokenizationConfig
from electra_tf.errors import InputError, format_list
from electra_tf.interop.network import ForeignNetwork, Network, Role
from electra_tf.interop.task_heads import TaskHead
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.tokenizer_files import open_tokenizer

LeftOut = dict[str, str]
"""Tensors of a source that no target gets, with the reason."""
TABLE, BIAS = "/word_embeddings", "head/output_bias"
"""Ends of the paths of weights with a row for each entry of the vocabulary."""
ADD_VOCABULARY = (
    "Copy the model's vocab.txt beside its weights, or run `electra-tf convert` with "
    "--vocab=PATH, and name its result"
)
"""Remedy for a model without a vocabulary, in every command."""


@dataclasses.dataclass(frozen=True)
class Source:
    """One network of a source."""

    network: Network
    foreign: ForeignNetwork
    left_out: LeftOut = dataclasses.field(default_factory=dict)
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """config.json of Hugging Face, whose keys a later conversion writes again."""
    dtypes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """By the source's names, of the tensors if not all are float32."""
    slots: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Optimizer slots by path, `m/encoder/...` and `v/encoder/...`."""

    def of_tokenizer(self, tokenizer: Tokenizer) -> "Source":
        """Return the source with the rows of its tables in a tokenizer's order.

        Args:
            tokenizer: Its [PAD] is entry 0; it may be another in the source's file.
        """
        vocabulary, network = tokenizer.vocabulary, self.network
        rows = network.shape.vocabulary_size
        if rows < len(vocabulary):
            raise InputError(
                f"The vocabulary must have at most an entry for each of the {rows:,} "
                f"rows of the {network.role}'s token table",
                f"{vocabulary.source}: {len(vocabulary):,} entries",
                "Use the vocabulary that the model was trained with. If tokens were "
                "added to the tokenizer alone, call "
                "model.resize_token_embeddings(len(tokenizer)) in transformers, and "
                "save both",
            )
        shape = dataclasses.replace(network.shape, spare_rows=rows - len(vocabulary))
        source = dataclasses.replace(
            self, network=dataclasses.replace(network, shape=shape)
        )
        if self.foreign.pad_id or not vocabulary.pad_id:
            return source
        foreign = dataclasses.replace(self.foreign, pad_id=vocabulary.pad_id)
        return dataclasses.replace(
            source.with_rows_exchanged(vocabulary.pad_id), foreign=foreign
        )

    def with_rows_exchanged(self, number: int) -> "Source":
        """Return the source with a row exchanged with row 0 in all its tables."""
        weights = exchange_rows(self.network.weights, number)
        network = dataclasses.replace(self.network, weights=weights)
        slots = exchange_rows(self.slots, number)
        return dataclasses.replace(self, network=network, slots=slots)


@dataclasses.dataclass(frozen=True)
class PretrainedModel:
    """One network, or a discriminator and its generator.

    Args:
        sources: The networks with their origin; a discriminator first.
        tokenizer: The vocabulary and its settings; None where the source has none.
        path: The source, for messages.
        step: Number of completed updates, 0 where the source does not say.
        separate_tables: Whether the networks of a pair keep a copy of the tables each.
        run: What is known of the training: settings, data, metrics.
    """

    sources: tuple[Source, ...]
    tokenizer: Tokenizer | None
    path: str
    step: int = 0
    separate_tables: bool = False
    run: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_sources(
        cls,
        sources: Sequence[Source],
        tokenizer: Tokenizer | None,
        path: str,
        **more: Any,
    ) -> "PretrainedModel":
        """Return the model of networks that belong together."""
        sources = sorted(sources, key=lambda s: s.network.role == "generator")
        roles = [source.network.role for source in sources]
        if len(sources) == 2 and roles != ["discriminator", "generator"]:
            raise InputError(
                "A pair must be a discriminator and a generator",
                f"{path}: {' and '.join(roles)}",
                "Name the two halves of one model",
            )
        if tokenizer is not None:
            sources = [source.of_tokenizer(tokenizer) for source in sources]
            if pad_id := tokenizer.vocabulary.pad_id:
                settings = dataclasses.replace(tokenizer.settings, pad_id=pad_id)
                tokenizer = Tokenizer(tokenizer.vocabulary, settings)
        return cls(tuple(sources), tokenizer, path, **more)

    def in_original_order(self) -> "PretrainedModel":
        """Return the model with the rows of its tables as another library has them."""
        pad_id = self.tokenizer.settings.pad_id if self.tokenizer else 0
        sources = (source.with_rows_exchanged(pad_id) for source in self.sources)
        return dataclasses.replace(self, sources=tuple(sources))

    @property
    def notes(self) -> list[str]:
        """Notes to print: changes to the vocabulary or the tables on reading."""
        if self.tokenizer is None:
            return []
        vocabulary, shape = self.tokenizer.vocabulary, self.networks[0].shape
        notes = []
        if pad_id := self.tokenizer.settings.pad_id:
            notes.append(
                f"[PAD] has the id {pad_id} in files for other libraries, and 0 here: "
                f"the two entries and their rows are exchanged"
            )
        if shape.spare_rows:
            notes.append(
                f"{shape.spare_rows:,} of {shape.vocabulary_size:,} rows of the token "
                f"table have no entry in {vocabulary.source}: they are kept, and no "
                "text has their ids"
            )
        return notes

    @property
    def head(self) -> TaskHead | None:
        """The head of a fine-tuned model."""
        return self.networks[0].head

    def with_head(self, head: TaskHead) -> "PretrainedModel":
        """Return a fine-tuned model with other names of its classes or tags."""
        source = self.sources[0]
        source = dataclasses.replace(
            source,
            network=dataclasses.replace(source.network, head=head),
            foreign=dataclasses.replace(source.foreign, head=head),
        )
        return dataclasses.replace(self, sources=(source,))

    def without_task_head(self) -> "PretrainedModel":
        """Return the encoder of a fine-tuned model, or a pre-trained model as it is."""
        if self.head is None:
            return self
        source = self.sources[0]
        own = (name for ours, _, name in source.foreign.rows() if "head/" in ours)
        why = f"the head of a fine-tuned {self.head.role}"
        source = dataclasses.replace(
            source,
            network=source.network.without_head(),
            foreign=dataclasses.replace(source.foreign, role="encoder", head=None),
            left_out=source.left_out | dict.fromkeys(own, why),
        )
        return dataclasses.replace(self, sources=(source,))

    @property
    def dtypes(self) -> dict[str, str]:
        """dtypes of tensors that are not float32, by role and the source's name."""
        return {
            f"{source.network.role}/{name}": dtype
            for source in self.sources
            for name, dtype in source.dtypes.items()
        }

    @property
    def configs(self) -> dict[str, Mapping[str, Any]]:
        """Hugging Face's config of each network, by role."""
        return {source.network.role: source.config for source in self.sources}

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks, a discriminator first."""
        return tuple(source.network for source in self.sources)

    def find(self, role: Role) -> Network | None:
        """Return the network of a role, or None."""
        return next((n for n in self.networks if n.role == role), None)

    def select(self, role: Role) -> "PretrainedModel":
        """Return the model with one of its networks alone."""
        kept = tuple(s for s in self.sources if s.network.role == role)
        if not kept:
            roles = format_list(network.role for network in self.networks)
            raise InputError(
                f"The source must have a {role}",
                f"{self.path}: {roles}",
                f"Pass --part={self.networks[0].role}, or leave --part out",
            )
        return dataclasses.replace(self, sources=kept)

    def sharing(self) -> str:
        """Return what the pair shares, as `model.sharing` names it."""
        if len(self.networks) < 2:
            return "embeddings"
        if self.separate_tables:
            return "none"
        first, second = self.networks
        one, other = first.embeddings, second.embeddings
        if any(one[path].shape != other[path].shape for path in one):
            return "none"
        differing = [p for p in one if not np.array_equal(one[p], other[p])]
        if differing:
            raise InputError(
                "The two copies of a shared table must be equal",
                f"{self.path}: {format_list(differing)} differ",
                "Name the two halves of one model, or run `electra-tf convert "
                "--sharing=none`, whose result has tables for each network, and name "
                "that",
            )
        paths = first.without_head().weights.keys()
        same = first.shape == second.shape and all(
            np.array_equal(first.weights[p], second.weights[p]) for p in paths
        )
        return "all" if same else "embeddings"


def choose_tokenizer(
    vocab: str | None,
    read_own: Callable[[], Tokenizer | None],
    default: TokenizationConfig = TokenizationConfig(),
) -> Tokenizer | None:
    """Return the tokenizer of a source, or that of a vocabulary in place of it."""
    if vocab is None:
        return read_own()
    stored = open_tokenizer(vocab, pad_anywhere=True)
    if stored.settings is None and (own := read_own()):
        default = own.settings
    return stored.tokenizer(default)


def exchange_rows(
    arrays: Mapping[str, np.ndarray], number: int
) -> Mapping[str, np.ndarray]:
    """Return weights or slots with a row exchanged with row 0 in tables and biases."""
    if not number:
        return arrays
    exchanged = dict(arrays)
    for path, array in arrays.items():
        if path.endswith((TABLE, BIAS)):
            exchanged[path] = array.copy()
            exchanged[path][[0, number]] = array[[number, 0]]
    return exchanged
