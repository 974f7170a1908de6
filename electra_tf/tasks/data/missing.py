"""Find missing texts: None, NaN, and what other programs write for them in a cell."""

import collections
from collections.abc import Callable, Sequence
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks.labels import is_missing

MARKS = frozenset(["", "NaN", "nan", "None", "NULL", "N/A", "<NA>"])
"""Texts that stand for a missing one, apart from white space around them."""
REMEDY = (
    "set data.missing_text=skip to leave them out, or keep to read them as texts; "
    "evaluate and predict have the flag --missing_text"
)


def complete_rows(
    rows: Sequence[Any], rule: str, error: Callable[[int, str], InputError]
) -> tuple[Sequence[int] | None, str]:
    """Return the indices of the rows to use by `data.missing_text`; None: all.

    Rows are texts, or several texts each. The second value counts the rows that are
    left out. `error` returns the error of an index with a detail.
    """
    marks = {} if rule == "keep" else _marks(rows)
    if not marks:
        return None, ""
    counts = collections.Counter(marks.values()).most_common()
    each = ", ".join(f"{number:,} of {mark!r}" for mark, number in counts)
    detail = f"{len(marks):,} of {len(rows):,} rows have no text: {each}"
    if rule == "error" or len(marks) == len(rows):
        raise error(min(marks), detail)
    return [index for index in range(len(rows)) if index not in marks], detail


def _marks(rows: Sequence[Any]) -> dict[int, str]:
    """Return what stands for the first missing text of a row, by index."""
    marks = {}
    for index, row in enumerate(rows):
        for text in row if isinstance(row, list | tuple) else (row,):
            mark = text.strip() if isinstance(text, str) else None
            if mark in MARKS or (mark is None and is_missing(text)):
                marks.setdefault(index, str(text).strip())
    return marks


def fill_missing(rows: Sequence[Any], rule: str) -> Sequence[Any]:
    """Replace None and NaN by empty texts if `data.missing_text` is `keep`."""
    if rule != "keep":
        return rows
    return [
        type(row)(_filled(text) for text in row)
        if isinstance(row, list | tuple)
        else _filled(row)
        for row in rows
    ]


def _filled(text: Any) -> Any:
    return "" if is_missing(text) else text
