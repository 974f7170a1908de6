"""Split texts into whole entries, units and words, and match words to wordpieces."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text.normalization import UNIT, CharacterTable, is_dropped
from electra_tf.text.vocab import CONTINUATION, SPECIAL_TOKENS, UNKNOWN, Vocabulary

# Characters in the cache of a tokenizer, which takes about 200 MB when full. Longer
# units rarely repeat and are not cached.
_CACHED_CHARACTERS = 6_000_000
_MAX_CACHED_UNIT = 64
_COMMON_SIGNS = ",.()\"-';"
_MAX_ENTRIES = 2000

Wordpieces = str
"""Token ids as a string with one character `chr(id)` per id. Joining, slicing and
counting are several times faster than with lists of integers."""


class TextPart(NamedTuple):
    """A part of a text."""

    start: int
    text: str
    is_entry: bool
    """Whether the part is an entry that is kept whole."""


class WholeEntries:
    """Entries that are kept whole, the longest first.

    `pattern` is valid for Python and for RE2, so that the tokenizer in TensorFlow finds
    the same ones.
    """

    def __init__(self, settings: TokenizationConfig):
        _check_whole(settings.keep_whole, settings.max_word_characters)
        entries = sorted(settings.keep_whole, key=len, reverse=True)
        self.pattern = f"({'|'.join(map(re.escape, entries))})" if entries else ""
        self._pattern = re.compile(self.pattern)

    def __bool__(self) -> bool:
        return bool(self.pattern)

    def split(self, text: str) -> Iterator[TextPart]:
        """Yield the parts of a text in order."""
        start = 0
        # Every second part is a match of the group.
        for number, part in enumerate(self._pattern.split(text) if self else [text]):
            if part:
                yield TextPart(start, part, number % 2 == 1)
            start += len(part)


def _check_whole(entries: Sequence[str], longest: int) -> None:
    if len(entries) > _MAX_ENTRIES:
        raise InputError(
            f"At most {_MAX_ENTRIES:,} entries may be kept whole, because each place "
            f"of a text is compared with all, not {len(entries):,}"
        )
    for entry in entries:
        # A capital sigma is lower-cased by its neighbours, which the graph does first.
        wrong = [c for c in entry if c.isspace() or is_dropped(c) or c == "\u03a3"]
        is_other = entry.startswith(CONTINUATION) or entry in SPECIAL_TOKENS
        if not entry or wrong or is_other or len(entry) > longest:
            raise InputError(
                f"An entry of keep_whole must have 1 to {longest} characters, no white "
                "space, control character or capital sigma, not begin with "
                f"{CONTINUATION} and be no special token, not {entry!r:.80}"
            )


def split_units(text: str, settings: TokenizationConfig) -> list[str]:
    """Split a text into units that are tokenized independently of each other.

    The rule is `normalization.UNIT`. Text without control characters and with plain
    spaces only is lower-cased and split at its most frequent punctuation first, so
    that the cache needs fewer units. The `CharacterTable.words` of the units,
    concatenated, are the words of the text.
    """
    if text.isprintable() and "\ufffd" not in text:
        if settings.lower_case:
            text = text.lower()
        for sign in _COMMON_SIGNS:
            text = text.replace(sign, f" {sign} ")
        units = text.split()
        if text.isascii() or len(text) < 16 * len(units):
            return units
    return UNIT.findall(text)


class Words(dict):
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
        self.too_long = 0

    def __missing__(self, word: str) -> Wordpieces:
        wordpieces = self.match(word)
        if len(word) <= min(_MAX_CACHED_UNIT, self._max_characters):
            self[word] = wordpieces
        return wordpieces

    def match(self, word: str, first: bool = True) -> Wordpieces:
        """Match greedily, from the start of a word or (`first` false) within it."""
        if len(word) > self._max_characters:
            self.too_long += 1
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


class Units(dict):
    """Cache of limited size from unit (see `normalization.UNIT`) to wordpieces."""

    def __init__(self, characters: CharacterTable, words: Words):
        super().__init__()
        self._split, self._words, self._size = characters.words, words, 0

    def __missing__(self, unit: str) -> Wordpieces:
        too_long = self._words.too_long
        wordpieces = "".join(map(self._words.__getitem__, self._split(unit)))
        self._size += len(unit)
        # Over-long words are not cached, so that each occurrence is counted.
        if len(unit) <= _MAX_CACHED_UNIT and self._words.too_long == too_long:
            self[unit] = wordpieces
        if self._size > _CACHED_CHARACTERS:
            self.clear()
            self._words.clear()
            self._size = 0
        return wordpieces
