"""Settings of tokenizers, corpora, vocabularies, records and batches."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from electra_tf.config.ended_settings import drop_ended
from electra_tf.config.fields import Positive, Seed, Share, section


@section()
class TokenizationConfig:
    """Settings of the tokenizer; stored with every artefact that contains token ids."""

    lower_case: bool = True
    """Lower-case the text before it is split."""
    strip_accents: Literal["lowered", "always", "never"] = "lowered"
    """Removal of accents. `lowered`: only if `lower_case` is true (the original).
    `always`: also from cased text. `never`: keep accents."""
    split_unspaced: Literal["none", "characters"] = "none"
    """Splitting of scripts without spaces between words (Thai, Lao, Khmer, Burmese,
    Tai). `none`: at spaces (the original). `characters`: each letter with its marks is
    a word."""
    max_word_characters: Annotated[int, Field(gt=0, le=1000)] = 200
    """Characters of a word, at most; a longer word becomes [UNK]. 200: the original.
    Most tokenizers of Hugging Face have 100."""
    keep_whole: tuple[str, ...] = ()
    """Entries that are found in a text before it is split, such as `[USER]`: they are
    neither split nor lower-cased."""

    @property
    def strips_accents(self) -> bool:
        """Return whether accents are removed, by both settings."""
        return self.strip_accents == "always" or (
            self.strip_accents == "lowered" and self.lower_case
        )

    @staticmethod
    def complete(stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return stored settings, with defaults for those that old artefacts lack."""
        added = {
            "split_unspaced": "none",
            "max_word_characters": 200,
            "keep_whole": (),
        }
        stored = dict(stored)
        drop_ended({"tokenization": stored}, "the stored tokenizer")
        lists = {n: tuple(v) for n, v in stored.items() if isinstance(v, list)}
        return {**added, **stored, **lists}

    def __str__(self) -> str:
        """Return a description such as `lower-cased, without accents`."""
        case = "lower-cased" if self.lower_case else "cased"
        accents = "without" if self.strips_accents else "with"
        split = ", unspaced scripts by characters"
        split = split if self.split_unspaced == "characters" else ""
        whole = len(self.keep_whole)
        kept = f", {whole:,} entries kept whole" if whole else ""
        limit = f", words of up to {self.max_word_characters} characters"
        limit = limit if self.max_word_characters != 200 else ""
        return f"{case}, {accents} accents{split}{limit}{kept}"


@section()
class CorpusConfig:
    """Reading of files as documents."""

    documents: Literal["blank_line", "line", "file"] = "blank_line"
    """End of a document in a plain text file: a blank line, each line, or the end of
    the file. Each row of .csv, .tsv, JSON, Parquet and TFDS is a document."""
    field: str = "text"
    """Name of the text field in .csv, .tsv, JSON, Parquet and TFDS."""
    on_error: Literal["stop", "report"] = "stop"
    """`stop`: raise at the first bad input. `report`: skip, count and list it."""


@section()
class VocabularyConfig:
    """Training of a WordPiece vocabulary."""

    size: Positive = 30522
    """Number of entries, special tokens included."""
    min_frequency: Positive = 2
    """Minimum frequency of a pair of wordpieces that is merged."""
    character_coverage: Share = 0.9999
    """Share of the text that the characters of the vocabulary cover; a word with any
    rarer character becomes [UNK]."""


@section()
class RecordsConfig:
    """Packing of documents into pre-training records."""

    max_length: Annotated[int, Field(ge=8)] = 128
    """Positions of a record, special tokens and padding included."""
    order: Literal["original", "document"] | None = None
    """`original`: packing of the released builder, which puts later short sentences
    back into segment A and discards tokens that do not fit. `document`: keeps the order
    of the text and uses every token. null: `document` if `original` discards over 20%
    of the first two million characters, else `original`."""
    seed: Seed = 0
    """Seed of segment borders and lengths."""
    shards: Annotated[int, Field(gt=0, le=1000)] | None = None
    """Number of files; null: one per 32 MB of text, 512 at most."""
    deduplicate: Literal["none", "exact"] = "none"
    """`exact`: drop documents with the same words as an earlier one, and list them."""


@section()
class InputConfig:
    """Shuffling and batching of records."""

    batch_size: Positive = 128
    """Rows of a global batch, over all hosts and replicas."""
    seed: Seed = 0
    """Seed of the order of the records, which differs in each epoch."""
    shuffle_window: Positive = 65536
    """Records that are read and shuffled together."""
