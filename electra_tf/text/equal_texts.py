"""Find texts that are equal after the tokenizer's normalization.

A hash of each text's bag of normalized characters selects a few candidates, and only
these are normalized: NumPy adds a number for each character, while normalization would
take longer than reading the texts.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from electra_tf.config.data import TokenizationConfig
from electra_tf.text.normalization import CharacterTable
from electra_tf.text.wordpieces import WholeEntries

Texts = str | tuple[str, ...]

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
    candidates = _with_repeated(hashes_N, first_N)
    seen: dict[Texts, int] = {}
    for index in candidates.tolist():
        first_N[index] = seen.setdefault(texts[index], index)
    different = candidates[first_N[candidates] == candidates]
    repeated = _with_repeated(hashes_N, different).tolist()
    normal: dict[tuple[str, ...], int] = {}
    keys = normalized((texts[index] for index in repeated), settings)
    for index, key in zip(repeated, keys, strict=True):
        first_N[index] = normal.setdefault(key, index)
    return first_N[first_N]


def normalized(
    texts: Iterable[Texts], settings: TokenizationConfig
) -> Iterator[tuple[str, ...]]:
    """Yield each text, or the texts of each tuple, after normalization."""
    characters, whole = CharacterTable(settings), WholeEntries(settings)
    for one in texts:
        parts = one if isinstance(one, tuple) else (one,)
        yield tuple(_normalize(part, characters, whole) for part in parts)


def _normalize(text: str, characters: CharacterTable, whole: WholeEntries) -> str:
    """Return the words of a text with spaces between them."""
    words: list[str] = []
    for part in whole.split(text):
        if part.entry is None:
            words += characters.words(part.text)
        else:
            words.append(part.entry)
    return " ".join(words)


def _with_repeated(hashes_N: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return those of sorted indices whose hash another one has too, sorted."""
    order = indices[np.argsort(hashes_N[indices])]
    is_next_equal = np.diff(hashes_N[order]) == 0
    is_repeated = np.zeros(len(order), bool)
    is_repeated[1:] |= is_next_equal
    is_repeated[:-1] |= is_next_equal
    return np.sort(order[is_repeated])


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
