"""A pre-trained model between two formats: its networks and what belongs to them."""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError, format_list
from electra_tf.interop.network import Network, Role
from electra_tf.interop.task_heads import TaskHead
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import find_tokenizer, open_tokenizer

ADD_VOCABULARY = (
    "copy the model's vocab.txt beside its weights, or run `electra-tf convert` with "
    "--vocab=PATH, and name its result"
)
"""Remedy for a model without a vocabulary, in every command."""
_TASK_HEAD = re.compile(
    r"(^|[./])(classifier|qa_outputs|sequence_summary)\.|^task_specific/"
)


@dataclasses.dataclass(frozen=True)
class PretrainedModel:
    """One network, or a discriminator and its generator, in this package's names."""

    networks: tuple[Network, ...]  # a discriminator first
    tokenizer: WordPieceTokenizer | None  # None where the source has none
    path: str  # the source, for messages
    step: int = 0  # number of completed updates, 0 where the source does not say
    separate_tables: bool = False  # whether each network has its own tables
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Tensors of the source that no target gets, with the reason."""
    source_notes: tuple[str, ...] = ()  # notes of the source's reader to print

    @classmethod
    def of_networks(
        cls,
        networks: Sequence[Network],
        tokenizer: WordPieceTokenizer | None,
        path: str,
        **more: Any,
    ) -> "PretrainedModel":
        """Return the model of networks that belong together."""
        networks = sorted(networks, key=lambda network: network.role == "generator")
        roles = [network.role for network in networks]
        if len(networks) == 2 and roles != ["discriminator", "generator"]:
            raise InputError(
                f"{path} must be a discriminator and a generator, not "
                f"{' and '.join(roles)}"
            )
        if tokenizer is not None:
            networks = [_with_rows_of(network, tokenizer) for network in networks]
            if pad_id := tokenizer.vocabulary.pad_id:
                settings = dataclasses.replace(tokenizer.settings, pad_id=pad_id)
                tokenizer = WordPieceTokenizer(tokenizer.vocabulary, settings)
        return cls(tuple(networks), tokenizer, path, **more)

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
    def notes(self) -> list[str]:
        """Notes to print: the reader's, changes to the vocabulary or the tables."""
        notes = list(self.source_notes)
        if self.tokenizer is None:
            return notes
        vocabulary, shape = self.tokenizer.vocabulary, self.main.shape
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

    def in_original_order(self) -> "PretrainedModel":
        """Return the model with the rows of its tables as another library has them."""
        pad_id = self.tokenizer.settings.pad_id if self.tokenizer else 0
        networks = (network.with_rows_exchanged(pad_id) for network in self.networks)
        return dataclasses.replace(self, networks=tuple(networks))

    def with_head(self, head: TaskHead) -> "PretrainedModel":
        """Return a fine-tuned model with other names of its classes or tags."""
        return dataclasses.replace(self, networks=(self.main.with_head(head),))

    def without_task_head(self) -> "PretrainedModel":
        """Return the encoder of a fine-tuned model, or a pre-trained model as it is."""
        if self.head is None:
            return self
        rows = self.main.origin.rows()
        heads = [name for ours, _, name in rows if ours.startswith("head/")]
        why = f"the head of a fine-tuned {self.head.role}"
        left_out = {**self.left_out, **dict.fromkeys(heads, why)}
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
        one, other = first.embeddings, second.embeddings
        if any(one[path].shape != other[path].shape for path in one):
            return "none"
        differing = [p for p in one if not np.array_equal(one[p], other[p])]
        if differing:
            raise InputError(
                f"{self.path}: the discriminator's and the generator's "
                f"{format_list(differing)} differ, but are shared; name the two halves "
                "of one model, or run `electra-tf convert --sharing=none`, and name "
                "its result"
            )
        ours, theirs = first.encoder_weights, second.encoder_weights
        same = first.shape == second.shape and all(
            np.array_equal(ours[path], theirs[path]) for path in ours
        )
        return "all" if same else "embeddings"


def _with_rows_of(network: Network, tokenizer: WordPieceTokenizer) -> Network:
    """Return a network with the rows of its tables in the order of a tokenizer."""
    vocabulary, rows = tokenizer.vocabulary, network.shape.vocabulary_size
    if rows < len(vocabulary):
        raise InputError(
            f"the {network.role}'s token table has {rows:,} rows, and "
            f"{vocabulary.source} has {len(vocabulary):,} entries; if tokens were "
            "added to the tokenizer alone, call "
            "model.resize_token_embeddings(len(tokenizer)) in transformers and save "
            "both"
        )
    shape = dataclasses.replace(network.shape, spare_rows=rows - len(vocabulary))
    network = dataclasses.replace(network, shape=shape)
    pad_id = vocabulary.pad_id
    if network.origin.pad_id or not pad_id:
        return network
    origin = dataclasses.replace(network.origin, pad_id=pad_id)
    return dataclasses.replace(network.with_rows_exchanged(pad_id), origin=origin)


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
    stored = open_tokenizer(vocab, pad_anywhere=True)
    if stored.settings is None and (own := find_tokenizer(folder)):
        default = own.settings or default
    return stored.tokenizer(default)
