"""Find texts that are equal after the tokenizer's normalization."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from electra_tf.config.data import TokenizationConfig
from electra_tf.text.normalization import CharacterTable
from electra_tf.text.wordpieces import WholeEntries, split_units

Texts = str | tuple[str, ...]

_CACHED_UNITS = 200_000


def first_equals(texts: Sequence[Texts], settings: TokenizationConfig) -> np.ndarray:
    """Return the index of the first of all texts that equal each one, int64 [N].

    Args:
        texts: All single texts, or all tuples, which are equal if their texts are.
        settings: Options of normalization.
    """
    first: dict[tuple[str, ...], int] = {}
    keys = enumerate(normalized(texts, settings))
    return np.array([first.setdefault(key, index) for index, key in keys], np.int64)


def normalized(
    texts: Iterable[Texts], settings: TokenizationConfig
) -> Iterator[tuple[str, ...]]:
    """Yield each text, or the texts of each tuple, after normalization."""
    whole, units = WholeEntries(settings), _NormalUnits(settings)

    def normalize(text: str) -> str:
        """Return the words of a text with spaces between them."""
        words: list[str] = []
        for part in whole.split(text):
            if part.is_entry:
                words.append(part.text)
            else:
                words += map(units.__getitem__, split_units(part.text, settings))
        return " ".join(filter(None, words))

    for one in texts:
        yield tuple(map(normalize, one if isinstance(one, tuple) else (one,)))


class _NormalUnits(dict):
    """Cache from unit (see `normalization.UNIT`) to its words with spaces between."""

    def __init__(self, settings: TokenizationConfig):
        super().__init__()
        self._characters = CharacterTable(settings)

    def __missing__(self, unit: str) -> str:
        if len(self) >= _CACHED_UNITS:
            self.clear()
        self[unit] = words = " ".join(self._characters.words(unit))
        return words
