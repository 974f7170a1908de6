"""WordPiece tokenizer in Python, with the rules of the original and a cache.

`Tokenizer.graph` returns the same function as TensorFlow operations. Both apply the
table of `normalization.py`, and tests compare their ids.
"""

import dataclasses
import json
import pathlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from electra_tf import durable_files
from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError, format_list
from electra_tf.text.encoding import encode_rows, pad_rows, to_array, to_list, to_rows
from electra_tf.text.normalization import (
    UNIT,
    CharacterTable,
    WholeEntries,
    end_of_marks,
    split_units,
)
from electra_tf.text.vocab import (
    CONTINUATION,
    SPECIAL_TOKENS,
    UNKNOWN,
    Vocabulary,
)

if TYPE_CHECKING:
    from electra_tf.text.graph_tokenizer import GraphTokenizer

_MIN_POSITIONS = 3  # those of the special tokens of a pair
# Characters in the cache of a tokenizer, which takes about 200 MB when full. Longer
# units rarely repeat and are not cached.
_CACHED_CHARACTERS = 6_000_000
_MAX_CACHED_UNIT = 64

Wordpieces = str
"""Token ids as a string with one character `chr(id)` per id. Joining, slicing and
counting are several times faster than with lists of integers."""


class WordCache(dict):
    """Cache from word to wordpieces, filled by greedy longest match."""

    def __init__(self, vocabulary: Vocabulary, max_characters: int):
        super().__init__()
        self._max_characters = max_characters
        self._first = {token: chr(index) for token, index in vocabulary.ids.items()}
        self._later = {
            token.removeprefix(CONTINUATION): wordpiece
            for token, wordpiece in self._first.items()
            if token.startswith(CONTINUATION)
        }
        self._longest = max(map(len, vocabulary.tokens))
        self._unknown = chr(vocabulary.ids[UNKNOWN])

    def __missing__(self, word: str) -> Wordpieces:
        wordpieces = self.match(word)
        if len(word) <= _MAX_CACHED_UNIT:
            self[word] = wordpieces
        return wordpieces

    def match(self, word: str, first: bool = True) -> Wordpieces:
        """Match greedily, from the start of a word or (`first` false) within it."""
        if len(word) > self._max_characters:
            return self._unknown
        wordpieces, start = "", 0
        entries = self._first if first else self._later
        while start < len(word):
            for end in range(min(len(word), start + self._longest), start, -1):
                if word[start:end] in entries:
                    break
            else:
                return self._unknown
            wordpieces += entries[word[start:end]]
            start, entries = end, self._later
        return wordpieces


class UnitCache(dict):
    """Cache of limited size from unit (see `normalization.UNIT`) to wordpieces."""

    def __init__(self, characters: CharacterTable, words: WordCache):
        super().__init__()
        self._split, self._words, self._size = characters.words, words, 0

    def __missing__(self, unit: str) -> Wordpieces:
        wordpieces = "".join(map(self._words.__getitem__, self._split(unit)))
        self._size += len(unit)
        if len(unit) <= _MAX_CACHED_UNIT:
            self[unit] = wordpieces
        if self._size > _CACHED_CHARACTERS:
            self.clear()
            self._words.clear()
            self._size = 0
        return wordpieces


class WordPieceTokenizer:
    """Map text to WordPiece ids; `electra_tf.Tokenizer` is the same with files.

    Text never produces a special token: "[MASK]" becomes `[`, `mask`, `]`. The entries
    of `settings.keep_whole` are found in the text before it is split.

    Args:
        vocabulary: The vocabulary.
        settings: Options of normalization.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        settings: TokenizationConfig = TokenizationConfig(),
    ):
        if not isinstance(vocabulary, Vocabulary):
            raise InputError(
                f"vocabulary must be a Vocabulary, not {vocabulary!r:.80}; call "
                "Tokenizer.read(PATH) for a file"
            )
        self.whole = WholeEntries(settings)
        if missing := [e for e in settings.keep_whole if e not in vocabulary.ids]:
            raise InputError(
                f"{vocabulary.source} must contain the entries of tokenization."
                f"keep_whole, but lacks {format_list(missing)}; append them to it, "
                "each on a line of its own"
            )
        self.vocabulary = vocabulary
        self.settings = settings
        self._characters = CharacterTable(settings)
        self._words = WordCache(vocabulary, settings.max_word_characters)
        self._units = UnitCache(self._characters, self._words)

    def __repr__(self) -> str:
        settings = f"lower_case={self.settings.lower_case}"
        return f"<{type(self).__name__} with {settings}, {self.vocabulary!r}>"

    def __call__(
        self,
        texts: Any,
        text_pair: Any = None,
        *,
        max_length: int | None = None,
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
        is_whole = isinstance(max_length, int | np.integer)
        if max_length is not None and not (is_whole and max_length >= _MIN_POSITIONS):
            raise InputError(
                f"max_length must be {_MIN_POSITIONS} or more, not {max_length!r:.40}"
            )
        columns = texts if text_pair is None else (texts, text_pair)
        texts = to_rows(to_array(columns))
        rows = encode_rows(self.wordpieces, self.vocabulary, texts, max_length)
        shape = len(texts), rows.ids.lengths.max(initial=0)
        return pad_rows(rows.ids, rows.segments, slice(None), shape)

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
        size = len(self.vocabulary)
        kinds = int, np.integer
        if wrong := [n for n in ids if not isinstance(n, kinds) or not 0 <= n < size]:
            raise InputError(
                f"Ids must be whole numbers from 0 to {size - 1}, not "
                f"{format_list(wrong)}"
            )
        tokens = [self.vocabulary.tokens[int(number)] for number in ids]
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
            raise InputError(f"A text must be str or bytes, not {text!r:.50}")
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
        for start, part, is_entry in self.whole.split(text):
            if is_entry:
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

    def wordpieces(self, text: str) -> Wordpieces:
        """Return the ids of a text as a string, which is faster to process."""
        if not self.whole:
            return self._split(text)
        ids = self.vocabulary.ids
        return "".join(
            chr(ids[part.text]) if part.is_entry else self._split(part.text)
            for part in self.whole.split(text)
        )

    def _split(self, text: str) -> Wordpieces:
        units = split_units(text, self.settings)
        return "".join(map(self._units.__getitem__, units))

    def graph(self) -> "GraphTokenizer":
        """Return the same function as a `tf.Module` (see `graph_tokenizer.py`)."""
        # A global import would make each record-building process load TensorFlow.
        from electra_tf.text.graph_tokenizer import GraphTokenizer

        return GraphTokenizer(self.vocabulary, self.settings)

    def identity(self) -> dict[str, Any]:
        """Return the checksum and settings that `check_identity` compares."""
        return {
            "vocabulary_sha256": self.vocabulary.sha256,
            "vocabulary_size": len(self.vocabulary),
            **dataclasses.asdict(self.settings),
        }

    def files(self, path: str | pathlib.Path) -> dict[str, str]:
        """Return the content of a vocabulary file and of its settings file, by path."""
        identity = json.dumps(self.identity(), indent=2) + "\n"
        return {str(path): self.vocabulary.text, str(settings_path(path)): identity}

    def save(self, path: str | pathlib.Path) -> None:
        """Write the vocabulary and its settings file to the same folder.

        A kill or a power cut leaves the old or the new files.

        Args:
            path: The vocabulary file.
        """
        for target, text in self.files(path).items():
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
        differences = (
            f"{n} {stored.get(n)!r} (here {v!r})" for n, v in differing.items()
        )
        remedy = " ".join(["create it again with the latter", *flags])
        raise InputError(
            f"{source} was built with another tokenizer than {self.vocabulary.source}: "
            f"{', '.join(differences)}; use the vocabulary and settings it stores, or "
            f"{remedy}"
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
    ) -> WordPieceTokenizer:
        """Return the tokenizer."""
        return WordPieceTokenizer(self.vocabulary, self.settings or default)

    def check(self, settings: TokenizationConfig) -> None:
        """Reject settings that differ from the stored ones."""
        if self.settings in (None, settings):
            return
        requested, required = map(dataclasses.asdict, (settings, self.settings))
        names = [name for name in required if required[name] != requested[name]]
        raise InputError(
            f"The settings must be those of {self.source}, "
            f"{ {name: required[name] for name in names} }, not "
            f"{ {name: requested[name] for name in names} }"
        )
