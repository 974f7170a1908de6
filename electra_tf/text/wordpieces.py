"""Split texts into units and words, and match these to wordpieces, with caches."""

from electra_tf.config.data import TokenizationConfig
from electra_tf.text.normalization import UNIT, CharacterTable
from electra_tf.text.vocab import CONTINUATION, UNKNOWN, Vocabulary

# Characters in the cache of a tokenizer, which takes about 200 MB when full. Longer
# units rarely repeat and are not cached.
_CACHED_CHARACTERS = 6_000_000
_MAX_CACHED_UNIT = 64
_COMMON_SIGNS = ",.()\"-';"

Wordpieces = str
"""Token ids as a string with one character `chr(id)` per id. Joining, slicing and
counting are several times faster than with lists of integers."""


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
        self._first: dict[str, Wordpieces] = {}
        self._later: dict[str, Wordpieces] = {}
        for token, index in vocabulary.ids.items():
            self._first[token] = chr(index)
            if token.startswith(CONTINUATION):
                self._later[token.removeprefix(CONTINUATION)] = chr(index)
        self._longest = max(map(len, vocabulary.tokens))
        self._unknown = chr(vocabulary.ids[UNKNOWN])
        # Over-long words are not cached, so that each occurrence is counted.
        self.too_long = self.too_long_characters = 0

    def __missing__(self, word: str) -> Wordpieces:
        wordpieces = self.match(word)
        if len(word) <= _MAX_CACHED_UNIT:
            self[word] = wordpieces
        return wordpieces

    def match(self, word: str, first: bool = True) -> Wordpieces:
        """Match greedily, from the start of a word or (`first` false) within it."""
        if len(word) > self._max_characters:
            self.too_long += 1
            self.too_long_characters += len(word)
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
        self._split = characters.words
        self._words = words
        self._size = 0

    def __missing__(self, unit: str) -> Wordpieces:
        wordpieces = "".join(map(self._words.__getitem__, self._split(unit)))
        self._size += len(unit)
        if len(unit) <= _MAX_CACHED_UNIT:
            self[unit] = wordpieces
        return wordpieces

    def clear_if_full(self) -> None:
        """Empty the cache once it exceeds its limit."""
        if self._size > _CACHED_CHARACTERS:
            self.clear()
            self._words.clear()
            self._size = 0
