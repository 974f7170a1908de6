"""WordPiece tokenizer in Python, with the rules of the original and a cache.

Record building and feature extraction use it. `Tokenizer.graph` returns the same
function as TensorFlow operations for tf.data and exported models. Both apply the table
of `normalization.py`, and tests compare their ids.
"""

import dataclasses
import json
import pathlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from electra_tf import durable_files
from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError, check_type, format_list, unknown_arguments
from electra_tf.text.encoding import encode_rows, pad_rows, to_array, to_list, to_rows
from electra_tf.text.normalization import UNIT, CharacterTable, end_of_marks
from electra_tf.text.vocab import (
    CONTINUATION,
    PAD,
    SPECIAL_TOKENS,
    UNKNOWN,
    Vocabulary,
    exchange_first,
)
from electra_tf.text.whole_entries import WholeEntries
from electra_tf.text.wordpieces import Units, Wordpieces, Words, split_units

if TYPE_CHECKING:
    from electra_tf.text.graph_tokenizer import GraphTokenizer

_MIN_POSITIONS = 3  # those of the special tokens of a pair
# What to do in place of arguments of Hugging Face's tokenizers.
_FOREIGN_ARGUMENTS = {
    "padding": "Leave padding out: rows are padded to the longest of the texts",
    "truncation": "Leave truncation out: with max_length, longer texts are cut",
    "return_tensors": "Leave return_tensors out: Keras takes the NumPy arrays",
    "add_special_tokens": "Leave add_special_tokens out; without special tokens call "
    "encode(text)",
    "is_split_into_words": "Pass texts; a TokenClassifier takes lists of words",
}


class Tokenizer:
    """Map text to WordPiece ids.

    Text never produces a special token: "[MASK]" becomes `[`, `mask`, `]`. The entries
    of `settings.keep_whole` are found in the text before it is split.

    Args:
        vocabulary: The vocabulary.
        settings: Options of normalization.

    Example:
        import electra_tf

        tokenizer = electra_tf.Tokenizer.from_preset("run")
        tokenizer(["A fine film.", "Dull."])  # token_ids, segment_ids, padding_mask
        tokenizer.tokenize("A fine film.")  # wordpieces
        tokenizer.decode(tokenizer.encode("A fine film."))  # "a fine film."
    """

    from_preset: ClassVar[Callable[..., "Tokenizer"]]
    """Load the tokenizer of any source; `electra_tf/__init__.py`, above, sets it."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        settings: TokenizationConfig = TokenizationConfig(),
    ):
        check_type(
            "vocabulary", vocabulary, Vocabulary, "Call Tokenizer.read(PATH) for a file"
        )
        if settings.pad_id >= len(vocabulary):
            raise InputError(
                "tokenization.pad_id must be below the size of the vocabulary",
                f"{settings.pad_id}, with {len(vocabulary)} entries in "
                f"{vocabulary.source}",
                "Use the settings that are stored with the vocabulary",
            )
        self.vocabulary = vocabulary
        self.settings = settings
        self._characters = CharacterTable(settings)
        self.whole = WholeEntries(settings)
        self._check_whole()
        self._words = Words(vocabulary, settings.max_word_characters)
        self._units = Units(self._characters, self._words)

    def __repr__(self) -> str:
        settings = f"lower_case={self.settings.lower_case}"
        return f"<Tokenizer with {settings}, {self.vocabulary!r}>"

    def __call__(
        self,
        texts: Any,
        text_pair: Any = None,
        *,
        max_length: int | None = None,
        **unknown: Any,
    ) -> dict[str, np.ndarray]:
        """Return the ids of texts with [CLS] and [SEP], padded, as models take them.

        Args:
            texts: A list, array or Series of texts or of pairs of texts.
            text_pair: The second texts of pairs.
            max_length: Positions of a row, at most: longer texts are cut, of a pair
                the longer one. None: no text is cut.

        Returns:
            `token_ids`, `segment_ids` and `padding_mask`, int32 [B, L]; the longest
            row has L positions.

        Raises:
            InputError: An element is not a text or a pair.
        """
        if unknown:
            known = ("texts", "text_pair", "max_length")
            raise unknown_arguments("tokenizer", unknown, known, _FOREIGN_ARGUMENTS)
        _check_call(texts, max_length)
        columns = texts if text_pair is None else (texts, text_pair)
        texts = to_rows(to_array(columns))
        rows = encode_rows(self.encode, self.vocabulary, texts, max_length)
        shape = len(rows.ids), max(map(len, rows.ids), default=0)
        return pad_rows(rows.ids, rows.segments, shape)

    def tokenize(self, text: str | bytes) -> list[str]:
        """Return the wordpieces of a text, without [CLS] and [SEP]."""
        return [self.vocabulary.tokens[number] for number in self.encode(text)]

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Return the normalized text of ids.

        Args:
            ids: The ids of a text, or rows of them.
            skip_special_tokens: Whether to leave out [CLS], [PAD] and the like.

        Returns:
            A string as the library `tokenizers` decodes it, or a list of one for each
            row.

        Raises:
            InputError: An id is not in the vocabulary.
        """
        from tokenizers import decoders

        ids = to_list(ids) if hasattr(ids, "__len__") else [ids]
        if ids and np.ndim(ids[0]):
            return [self.decode(row, skip_special_tokens) for row in ids]
        tokens = self._entries(ids)
        if skip_special_tokens:
            tokens = [token for token in tokens if token not in SPECIAL_TOKENS]
        return decoders.WordPiece(prefix=CONTINUATION).decode(tokens)

    def encode(self, text: str | bytes) -> list[int]:
        """Return the ids of a text, without [CLS] and [SEP].

        Args:
            text: A string, or UTF-8 bytes, of which invalid ones are dropped as in
                the original.

        Returns:
            One id per wordpiece.

        Raises:
            InputError: The text is neither str nor bytes.
        """
        if isinstance(text, bytes):
            text = text.decode("utf-8", "ignore")
        if not isinstance(text, str):
            raise InputError(
                "The argument of encode must be one text, str or bytes",
                f"{type(text).__name__} {text!r:.50}",
                "Call it for each text of a list",
            )
        return list(map(ord, self.wordpieces(text)))

    def word_offsets(self, text: str) -> list[tuple[int, int]]:
        """Split a text into words, and return the characters of each.

        Words end at white space. Punctuation marks, ideographs and entries that are
        kept whole are words of their own. Characters that normalization removes
        separate no words, and belong to a word only between its letters; combining
        marks belong to the character before them.

        Args:
            text: A string.

        Returns:
            The index of the first character of each word, and the index after its last.
        """
        words = [(index[0], index[-1]) for _, index in self._aligned_words(text)]
        limits = [*(first for first, _ in words), len(text)][1:]
        return [
            (first, min(end_of_marks(last, text), limit))
            for (first, last), limit in zip(words, limits, strict=True)
        ]

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the characters of each wordpiece of a text.

        Combining marks belong to the character before them.

        Args:
            text: A string.

        Returns:
            The index of the first character of each wordpiece, and the index after its
            last.
        """
        offsets: list[tuple[int, int]] = []
        for word, index in self._aligned_words(text):
            lengths = [len(index)] if word is None else self._piece_lengths(word)
            first = 0
            for length in lengths:
                last = index[first + length - 1]
                offsets.append((index[first], end_of_marks(last, text)))
                first += length
        return offsets

    def _piece_lengths(self, word: str) -> list[int]:
        """Return the number of normalized characters of each wordpiece of a word."""
        tokens = [self.vocabulary.tokens[number] for number in self.spell(word)]
        if tokens == [UNKNOWN]:
            return [len(word)]
        return [len(token.removeprefix(CONTINUATION)) for token in tokens]

    def _aligned_words(self, text: str) -> Iterator[tuple[str | None, Sequence[int]]]:
        """Yield normalized words, and the index in the text of each of their letters.

        In place of an entry that is kept whole the word is None, with the index of each
        character of the text.
        """
        for start, part, entry in self.whole.split(text):
            if entry is not None:
                yield None, range(start, start + len(part))
                continue
            for unit in UNIT.finditer(part):
                index: list[int] = []
                for place in range(*unit.span()):
                    normalized = self._characters[ord(part[place])].strip(" ")
                    index += [start + place] * len(normalized)
                first = 0
                for word in self._characters.words(unit.group()):
                    yield word, index[first : first + len(word)]
                    first += len(word)

    def spell(self, entry: str) -> list[int]:
        """Return the ids that spell a word of another vocabulary, or a `##` entry.

        Without wordpieces that spell it, the id of [UNK].
        """
        continued = entry.removeprefix(CONTINUATION)
        return list(map(ord, self._words.match(continued, first=continued == entry)))

    @property
    def too_long(self) -> tuple[int, int]:
        """Numbers of over-long words, which became [UNK], and of their characters."""
        return self._words.too_long, self._words.too_long_characters

    def wordpieces(self, text: str) -> Wordpieces:
        """Return the ids of a text as a string, which is faster to process."""
        if not self.whole:
            return self._split(text)
        ids = self.vocabulary.ids
        return "".join(
            self._split(part.text) if part.entry is None else chr(ids[part.entry])
            for part in self.whole.split(text)
        )

    def _split(self, text: str) -> Wordpieces:
        units = split_units(text, self.settings)
        wordpieces = "".join(map(self._units.__getitem__, units))
        self._units.clear_if_full()
        return wordpieces

    def _entries(self, ids: list[Any]) -> list[str]:
        size = len(self.vocabulary)
        ids = [number.item() if hasattr(number, "item") else number for number in ids]
        wrong = [n for n in ids if type(n) is not int or not 0 <= n < size]
        if wrong:
            raise InputError(
                f"Ids must be whole numbers from 0 to {size - 1}",
                format_list(wrong),
                "Pass ids of this vocabulary",
            )
        return [self.vocabulary.tokens[number] for number in ids]

    def _check_whole(self) -> None:
        """Reject entries to keep whole that the vocabulary does not have."""
        names = ("keep_whole", "keep_whole_normalized")
        for name in names:
            entries = getattr(self.settings, name)
            if missing := [e for e in entries if e not in self.vocabulary.ids]:
                raise InputError(
                    f"The entries of tokenization.{name} must be in the vocabulary",
                    f"{self.vocabulary.source} without {format_list(missing)}",
                    "Append them to the vocabulary, each on a line of its own, or "
                    f"remove them from tokenization.{name}",
                )

    def graph(self) -> "GraphTokenizer":
        """Return the same function as a `tf.Module` (see `graph_tokenizer.py`)."""
        # A global import would make each record-building process load TensorFlow.
        from electra_tf.text.graph_tokenizer import GraphTokenizer

        return GraphTokenizer(self.vocabulary, self.settings)

    @property
    def original_text(self) -> str:
        """Content of the vocabulary file for other libraries."""
        return exchange_first(self.vocabulary.text, self.settings.pad_id)

    @property
    def original_ids(self) -> dict[str, int]:
        """Mapping from entry to id in other libraries."""
        pad_id = self.settings.pad_id
        first = self.vocabulary.tokens[pad_id]
        return {**self.vocabulary.ids, first: 0, PAD: pad_id}

    def identity(self) -> dict[str, Any]:
        """Return the checksum and settings that `check_identity` compares."""
        return {
            "vocabulary_sha256": self.vocabulary.sha256,
            "vocabulary_size": len(self.vocabulary),
            **dataclasses.asdict(self.settings),
        }

    @property
    def identity_text(self) -> str:
        """Content of the settings file of a vocabulary."""
        return json.dumps(self.identity(), indent=2) + "\n"

    def save(self, path: str | pathlib.Path) -> None:
        """Write the vocabulary and its settings file to the same folder.

        A kill or a power cut leaves the old or the new files.

        Args:
            path: The vocabulary file.
        """
        contents = {
            pathlib.Path(path): self.vocabulary.text,
            settings_path(path): self.identity_text,
        }
        for target, text in contents.items():
            durable_files.write(target, text)

    def check_identity(self, stored: Mapping[str, Any], source: str) -> None:
        """Raise an InputError for an artefact of another vocabulary or setting.

        `stored` is the `identity` in the artefact at `source`.
        """
        stored = TokenizationConfig.complete(stored)
        differing = {n: v for n, v in self.identity().items() if stored.get(n) != v}
        if not differing:
            return
        flags = [
            shlex.quote(f"--set=tokenization.{name}={json.dumps(value)}")
            for name, value in differing.items()
            if name in TokenizationConfig.__dataclass_fields__
        ]
        raise InputError(
            f"{source} must be used with the vocabulary and settings it stores",
            ", ".join(
                f"{n} {stored.get(n)!r} (here {differing[n]!r})" for n in differing
            ),
            "Use its vocabulary and settings instead of those of "
            f"{self.vocabulary.source}, or create it again with "
            + " ".join(["the latter", *flags]),
        )


def _check_call(texts: Any, max_length: Any) -> None:
    if isinstance(texts, Mapping | set | frozenset):
        raise InputError(
            "Texts must be a sequence with an order",
            f"a {type(texts).__name__}",
            "Pass a list of texts",
        )
    is_integer = isinstance(max_length, int) and not isinstance(max_length, bool)
    if max_length is not None and not (is_integer and max_length >= _MIN_POSITIONS):
        raise InputError(
            f"max_length must be a whole number of {_MIN_POSITIONS} or more",
            f"max_length={max_length!r:.40}",
            "Leave it out to cut no text",
        )


def settings_path(path: str | pathlib.Path) -> pathlib.Path:
    """Return the path of the settings file of a vocabulary file."""
    path = pathlib.Path(path)
    return path.with_name(f"{path.name}.settings.json")


@dataclasses.dataclass(frozen=True)
class StoredTokenizer:
    """A vocabulary and the settings stored with it."""

    vocabulary: Vocabulary
    settings: TokenizationConfig | None
    """None: no file has them."""
    source: str
    """File of the settings, or else of the vocabulary."""

    @property
    def base(self) -> dict[str, Any] | None:
        """Settings by dotted name, as a base for the config; None without settings."""
        if self.settings is None:
            return None
        values = dataclasses.asdict(self.settings)
        return {f"tokenization.{name}": value for name, value in values.items()}

    def tokenizer(
        self, default: TokenizationConfig = TokenizationConfig()
    ) -> Tokenizer:
        """Return the tokenizer."""
        return Tokenizer(self.vocabulary, self.settings or default)

    def check(self, settings: TokenizationConfig) -> None:
        """Reject settings that differ from the stored ones."""
        if self.settings in (None, settings):
            return
        requested, required = map(dataclasses.asdict, (settings, self.settings))
        names = [name for name in required if required[name] != requested[name]]
        raise InputError(
            f"The settings must be those of {self.source}, "
            f"{ {name: required[name] for name in names} }",
            f"{ {name: requested[name] for name in names} }",
            f"Remove these settings, or correct {self.source} if it is wrong",
        )
