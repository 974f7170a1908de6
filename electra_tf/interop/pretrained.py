"""A pre-trained model between two formats: its networks and what belongs to them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf.errors import InputError, format_list
from electra_tf.interop.network import ForeignNetwork, Network, Role
from electra_tf.interop.task_heads import TaskHead
from electra_tf.text.tokenizer import Tokenizer

LeftOut = dict[str, str]
"""Tensors of a source that no target gets, with the reason."""


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
        """Return the model of networks that belong together.

        Args:
            sources: One network; or a discriminator and a generator, in any order.
            tokenizer: Of both.
            path: The source.
            more: Other arguments of the constructor.

        Raises:
            InputError: Two networks are no pair, or the vocabulary has another size
                than a token table.
        """
        sources = sorted(sources, key=lambda s: s.network.role == "generator")
        roles = [source.network.role for source in sources]
        if len(sources) == 2 and roles != ["discriminator", "generator"]:
            raise InputError(
                "A pair must be a discriminator and a generator",
                f"{path}: {' and '.join(roles)}",
                "Name the two halves of one model",
            )
        for source in sources:
            rows = source.network.shape.vocabulary_size
            if tokenizer is not None and rows != len(tokenizer.vocabulary):
                raise InputError(
                    f"The vocabulary must have an entry for each of the {rows:,} rows "
                    f"of the {source.network.role}'s token table",
                    f"{tokenizer.vocabulary.source}: {len(tokenizer.vocabulary):,} "
                    "entries",
                    "Use the vocabulary that the model was trained with",
                )
        return cls(tuple(sources), tokenizer, path, **more)

    @property
    def head(self) -> TaskHead | None:
        """The head of a fine-tuned model."""
        return self.networks[0].head

    def with_head(self, head: TaskHead) -> "PretrainedModel":
        """Return a fine-tuned model with other names of its classes or tags.

        Args:
            head: With as many names.
        """
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
        """Return the model with one of its networks alone.

        Args:
            role: `discriminator` or `generator`.

        Raises:
            InputError: The model has no such network.
        """
        kept = tuple(s for s in self.sources if s.network.role == role)
        if not kept:
            roles = format_list(network.role for network in self.networks)
            raise InputError(
                f"The source must have a {role}",
                f"{self.path}: {roles}",
                "Change --part",
            )
        return dataclasses.replace(self, sources=kept)

    def sharing(self) -> str:
        """Return what the pair shares, as `model.sharing` names it.

        Returns:
            `all`, `embeddings`, or `none` where the tables' widths differ. A model of
            one network: `embeddings`.

        Raises:
            InputError: Copies of one table differ.
        """
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
                "Name the two halves of one model, or pass --sharing=none to load each "
                "network with its own tables",
            )
        paths = first.without_head().weights.keys()
        same = first.shape == second.shape and all(
            np.array_equal(first.weights[p], second.weights[p]) for p in paths
        )
        return "all" if same else "embeddings"
