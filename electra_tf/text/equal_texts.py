"""Find texts that are equal after the tokenizer's normalization.

A hash of each text's bag of normalized characters selects a few candidates, and only
these are normalized: NumPy adds a number for each character, while normalization takes
several times as long as reading the texts.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from electra_tf.config.data import TokenizationConfig
from electra_tf.text.normalization import CharacterTable
from electra_tf.text.wordpieces import WholeEntries, split_units

Texts = str | tuple[str, ...]

_CACHED_UNITS = 200_000
_CODES = 0x110000
_COMMON = 0x2070  # alphabets, and the punctuation of texts in them
_ROWS = 512  # texts that are hashed together, which fit in a cache
_SEPARATOR = "\0"  # a character that normalization drops


def first_equals(texts: Sequence[Texts], settings: TokenizationConfig) -> np.ndarray:
    """Return the index of the first of all texts that equal each one, int64 [N].

    Args:
        texts: All single texts, or all tuples, which are equal if their texts are.
        settings: Options of normalization.
    """
    first_N, hashes_N = np.arange(len(texts)), _hashes(texts, settings)
    seen: dict[Texts, int] = {}
    for index in np.flatnonzero(_is_repeated(hashes_N)).tolist():
        first_N[index] = seen.setdefault(texts[index], index)
    different = np.fromiter(seen.values(), np.int64, len(seen))
    different = different[_is_repeated(hashes_N[different])].tolist()
    keys = normalized((texts[index] for index in different), settings)
    first: dict[tuple[str, ...], int] = {}
    for index, key in zip(different, keys, strict=True):
        first_N[index] = first.setdefault(key, index)
    return first_N[first_N]


def _is_repeated(hashes_N: np.ndarray) -> np.ndarray:
    """Return whether each hash is that of another text, too."""
    ordered_N = np.sort(hashes_N)
    return np.isin(hashes_N, ordered_N[1:][ordered_N[1:] == ordered_N[:-1]])


def _hashes(texts: Sequence[Texts], settings: TokenizationConfig) -> np.ndarray:
    """Return the sum of the numbers of each text's normalized characters, uint64 [N].

    Equal texts have equal sums, as normalization decides by single characters; a final
    sigma, which it does not, has the number of a sigma.
    """
    characters = CharacterTable(settings)
    number_of = np.random.default_rng(0).integers(2**64, size=_CODES, dtype=np.uint64)
    number_of[ord("ς")] = number_of[ord("σ")]
    sums = np.zeros(_CODES, np.uint64)
    is_known = np.zeros(_CODES, bool)

    def add(codes: Iterable[int]) -> None:
        for code in codes:
            normal = list(map(ord, characters[code].replace(" ", "")))
            sums[code] = number_of[normal].sum() if normal else 0
            is_known[code] = True

    add(range(_COMMON))
    hashes_N = np.empty(len(texts), np.uint64)
    for start in range(0, len(texts), _ROWS):
        rows = texts[start : start + _ROWS]
        if not isinstance(rows[0], str):
            rows = list(map(_SEPARATOR.join, rows))
        joined = _SEPARATOR.join([*rows, ""])  # so that no row is empty
        encoded = joined.encode("utf-32-le", "surrogatepass")
        codes = np.frombuffer(encoded, np.uint32).astype(np.intp)  # as indices are
        if codes.max() >= _COMMON and not is_known.take(codes).all():
            add(np.unique(codes[~is_known[codes]]).tolist())
        lengths = np.fromiter(map(len, rows), np.int64, len(rows)) + 1
        starts = np.cumsum(lengths) - lengths
        hashes_N[start : start + _ROWS] = np.add.reduceat(sums.take(codes), starts)
    return hashes_N


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
