"""Encode texts in any container as rows, [CLS] A [SEP] or [CLS] A [SEP] B [SEP]."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf.errors import InputError
from electra_tf.text.vocab import CLS, MASK, SEP, Vocabulary


class EncodedRows(NamedTuple):
    """Ids of texts or of pairs, not yet padded, with [CLS] and [SEP]."""

    ids: list[list[int]]
    segments: list[list[int]]
    """Segment ids of the same lengths."""
    truncated: int
    """Number of rows that were cut."""
    pairs: bool | None
    """True for pairs of texts, False for single texts; None without rows."""


def encode_rows(
    encode: Callable[[str], list[int]],
    vocabulary: Vocabulary,
    texts: Sequence[Any],
    max_length: int | None,
) -> EncodedRows:
    """Encode texts or pairs of texts."""
    rows = [_parts(text, index) for index, text in enumerate(texts)]
    pairs = len(rows[0]) == 2 if rows else None
    for index, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise InputError(
                "Texts must be all single texts or all pairs, but that at index 0 is "
                f"{rows[0]!r:.60} and that at index {index} {row!r:.60}"
            )
    cls, sep = (vocabulary.ids[token] for token in (CLS, SEP))
    ids, segments, num_truncated = [], [], 0
    # Of a million texts, equal numbers and equal segments are one object each.
    shared, segments_of = _numbers(len(vocabulary)), {}
    for row in rows:
        parts = [encode(text) for text in row]
        if max_length is not None:
            num_truncated += truncate(parts, max_length - 1 - len(parts))
        first, second = parts[0], [*parts[1], sep] if pairs else []
        ids.append(list(map(shared, [cls, *first, sep, *second])))
        lengths = len(first) + 2, len(second)
        if lengths not in segments_of:
            segments_of[lengths] = [0] * lengths[0] + [1] * lengths[1]
        segments.append(segments_of[lengths])
    return EncodedRows(ids, segments, num_truncated, pairs)


@functools.lru_cache(4)
def _numbers(size: int) -> Callable[[int], int]:
    """Return a function from a number below `size` to the one object of its value."""
    return tuple(range(size)).__getitem__


def pad_rows(
    ids: Iterable[Sequence[int]],
    segments: Iterable[Sequence[int]],
    shape: tuple[int, int],
) -> dict[str, np.ndarray]:
    """Return `token_ids`, `segment_ids` and `padding_mask`, int32 of a shape [B, L]."""
    ids_BL, segments_BL, mask_BL = np.zeros((3, *shape), np.int32)
    for index, (row, segment) in enumerate(zip(ids, segments, strict=True)):
        ids_BL[index, : len(row)] = row
        segments_BL[index, : len(row)] = segment
        mask_BL[index, : len(row)] = 1
    return {"token_ids": ids_BL, "segment_ids": segments_BL, "padding_mask": mask_BL}


def truncate(parts: list[list[int]], max_length: int) -> bool:
    """Cut wordpieces off the end of the longer of one or two parts until all fit.

    The second part is cut where both are equally long.
    """
    surplus = sum(map(len, parts)) - max_length
    for _ in range(max(0, surplus)):
        longer = 0 if len(parts) == 1 or len(parts[0]) > len(parts[1]) else 1
        parts[longer].pop()
    return surplus > 0


def to_array(x: Any) -> Any:
    """Return a Series or a frame as an array; other inputs unchanged."""
    if isinstance(x, str | bytes | Mapping | set | frozenset):
        raise InputError(f"Texts must be in a list, such as [text], not {x!r:.60}")
    if not hasattr(x, "to_numpy"):
        return x
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


def _parts(text: Any, index: int) -> list[str]:
    if isinstance(text, str):
        return [text]
    is_pair = isinstance(text, list | tuple) and len(text) == 2
    if is_pair and all(isinstance(part, str) for part in text):
        return list(text)
    raise InputError(
        "A text must be a string or a pair of strings, not "
        f"{text!r:.80} at index {index}"
    )


def encode_masked(text: str, tokenizer: Any) -> list[int]:
    """Return the ids of a text, in which `[MASK]` is that special token."""
    ids = []
    for part in text.split(MASK):
        ids += [*tokenizer.encode(part), tokenizer.vocabulary.ids[MASK]]
    return ids[:-1]
