"""Encode texts in any container as rows, [CLS] A [SEP] or [CLS] A [SEP] B [SEP]."""

import itertools
from collections.abc import Callable, Mapping, Sequence, ValuesView
from typing import Any, NamedTuple

import numpy as np

from electra_tf.errors import InputError
from electra_tf.text.vocab import CLS, MASK, PAD, SEP, Vocabulary

_ROWS_PER_STRING = 4096


class RaggedRows(Sequence):
    """Rows of different lengths in one array; lists would take ten times the memory.

    A row is an array [L].

    Args:
        values: All rows, one after the other [T].
        lengths: Elements of each row, int64 [N].
        padding: Value of the positions after a row's end in a batch.
    """

    def __init__(self, values: np.ndarray, lengths: np.ndarray, padding: int = 0):
        self.values, self.lengths, self.padding = values, lengths, padding
        self._ends = np.cumsum(lengths)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], padding: int = 0) -> "RaggedRows":
        """Return rows of integers; `RaggedRows` are returned unchanged."""
        if isinstance(rows, cls):
            return rows
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        elements = itertools.chain.from_iterable(rows)
        return cls(np.fromiter(elements, np.int32, lengths.sum()), lengths, padding)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        end = self._ends[index]
        return self.values[end - self.lengths[index] : end]

    def tolist(self) -> list[list[int]]:
        """Return the rows as lists."""
        return [row.tolist() for row in self]

    def padded(self, rows: Any, shape: tuple[int, int]) -> np.ndarray:
        """Return the rows of some indices, padded, int32 [B, L]."""
        lengths_B, ends_B = self.lengths[rows], self._ends[rows]
        places_L = np.arange(shape[1])
        is_real = places_L < lengths_B[:, None]
        padded_BL = np.full(shape, self.padding, np.int32)
        places = (places_L + (ends_B - lengths_B)[:, None])[is_real]
        padded_BL[: len(lengths_B)][is_real] = self.values[places]
        return padded_BL


class EncodedRows(NamedTuple):
    """Ids of texts or of pairs, not yet padded, with [CLS] and [SEP]."""

    ids: RaggedRows
    segments: RaggedRows
    """Segment ids of the same lengths."""
    truncated: int
    """Number of rows that were cut."""
    pairs: bool | None
    """True for pairs of texts, False for single texts; None without rows."""


def encode_rows(
    wordpieces: Callable[[str], str],
    vocabulary: Vocabulary,
    texts: Sequence[Any],
    max_length: int | None,
) -> EncodedRows:
    """Encode texts or pairs of texts.

    `wordpieces` returns the ids of a text as a string (`Wordpieces`).
    """
    cls, sep = (chr(vocabulary.ids[token]) for token in (CLS, SEP))
    columns = _columns(texts)
    count = len(columns)
    values, lengths_N2 = bytearray(), np.zeros((len(texts), 2), np.int64)
    num_truncated = 0
    for first in range(0, len(texts), _ROWS_PER_STRING):
        rows = slice(first, first + _ROWS_PER_STRING)
        parts = [list(map(wordpieces, column[rows])) for column in columns]
        lengths_NC = lengths_N2[rows, :count]
        lengths_NC[:] = np.transpose([list(map(len, column)) for column in parts])
        if max_length is not None:
            limit = max_length - 1 - count
            for row in np.flatnonzero(lengths_NC.sum(1) > limit):
                cut = truncate([column[row] for column in parts], limit)
                lengths_NC[row] = list(map(len, cut))
                for column, part in zip(parts, cut, strict=True):
                    column[row] = part
                num_truncated += 1
        texts_of_rows = map(sep.join, zip(*parts, strict=True))
        string = f"{cls}{(sep + cls).join(texts_of_rows)}{sep}"
        # Four bytes a character, which are the ids.
        values += string.encode("utf-32-le", "surrogatepass")
    lengths_N2[:, :count] += 1  # [SEP]
    lengths_N2[:, 0] += 1  # [CLS]
    segments = np.repeat(np.tile(np.int8([0, 1]), len(texts)), lengths_N2.ravel())
    lengths_N = lengths_N2.sum(1)
    return EncodedRows(
        RaggedRows(np.frombuffer(values, "<i4"), lengths_N, vocabulary.ids[PAD]),
        RaggedRows(segments, lengths_N),
        num_truncated,
        count == 2 if len(texts) else None,
    )


def _columns(texts: Sequence[Any]) -> list[Sequence[str]]:
    """Return texts, or the first and the second texts of pairs."""
    if all(isinstance(text, str) for text in texts):
        return [texts]
    for index, text in enumerate(texts):
        is_pair = isinstance(text, list | tuple) and len(text) == 2
        is_pair = is_pair and all(isinstance(part, str) for part in text)
        if not is_pair and not isinstance(text, str):
            raise InputError(
                "A text must be a string or a pair of strings, not "
                f"{text!r:.80} at index {index}"
            )
        if is_pair == isinstance(texts[0], str):
            raise InputError(
                "Texts must be all single texts or all pairs, but that at index 0 is "
                f"{texts[0]!r:.60} and that at index {index} {text!r:.60}"
            )
    return [[text[side] for text in texts] for side in (0, 1)]


def pad_rows(
    ids: RaggedRows, segments: RaggedRows, rows: Any, shape: tuple[int, int]
) -> dict[str, np.ndarray]:
    """Return `token_ids`, `segment_ids` and `padding_mask`, int32 of a shape [B, L].

    `rows` are the indices of the first rows of the batch, or a slice.
    """
    mask_BL = np.zeros(shape, np.int32)
    lengths_B = ids.lengths[rows]
    mask_BL[: len(lengths_B)] = np.arange(shape[1]) < lengths_B[:, None]
    return {
        "token_ids": ids.padded(rows, shape),
        "segment_ids": segments.padded(rows, shape),
        "padding_mask": mask_BL,
    }


def truncate(parts: Sequence[str], max_length: int) -> list[str]:
    """Cut wordpieces off the end of the longer of one or two parts until all fit.

    The second part is cut where both are equally long.
    """
    if len(parts) == 1:
        return [parts[0][:max_length]]
    first, second = map(len, parts)
    first = min(first, max(max_length - second, -(-max_length // 2)))
    return [parts[0][:first], parts[1][: max_length - first]]


def to_array(x: Any) -> Any:
    """Return a Series, a frame or any sequence as an array or a list.

    Lists, tuples, arrays and tensors are returned unchanged.
    """
    if isinstance(x, str | bytes | Mapping | set | frozenset):
        raise InputError(
            f"Texts and targets must be in a list, such as [text], not {x!r:.60}"
        )
    if hasattr(x, "to_pylist"):  # of pyarrow
        return x.to_pylist()
    if isinstance(x, np.ndarray) and x.dtype.kind == "T":  # NumPy's StringDType
        return x.astype(object)
    if not hasattr(x, "to_numpy"):
        # A deque, values of a dictionary, a column of the library datasets.
        is_other = isinstance(x, Sequence | ValuesView) and not isinstance(x, tuple)
        return list(x) if is_other else x
    column = x.to_numpy()
    return column[:, 0] if column.ndim == 2 and column.shape[1] == 1 else column


def to_rows(x: Any, pairs: bool = True) -> list[Any]:
    """Return one text or pair for each example."""
    columns = pairs and isinstance(x, tuple) and len(x) == 2
    if columns and not any(isinstance(column, str | bytes) for column in x):
        if len(x[0]) != len(x[1]):
            raise InputError(
                "The two lists of pairs must have the same length, not "
                f"{len(x[0])} and {len(x[1])}"
            )
        return list(zip(*(to_list(to_array(column)) for column in x), strict=True))
    return to_list(x)


def to_list(column: Any) -> list[Any]:
    """Convert an array or a tensor to a list, and bytes to strings."""
    # By their methods, as an import of TensorFlow takes seconds.
    if hasattr(column, "to_list"):  # a ragged tensor
        column = column.to_list()
    if hasattr(column, "numpy"):
        column = column.numpy()
    if hasattr(column, "tolist"):
        column = column.tolist()
    return [_decode(row, index) for index, row in enumerate(column)]


def _decode(row: Any, index: int) -> Any:
    if type(row) in (list, tuple):
        return type(row)(_decode(text, index) for text in row)
    if not isinstance(row, bytes):
        return row
    try:
        return row.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"Texts must be UTF-8, not {row!r:.80} at index {index}: {error.reason}"
        ) from error


def encode_masked(text: str, tokenizer: Any) -> str:
    """Return the wordpieces of a text, in which `[MASK]` is that special token."""
    mask = chr(tokenizer.vocabulary.ids[MASK])
    return mask.join(map(tokenizer.wordpieces, text.split(MASK)))
