"""Recognise column files by their first lines."""

from collections.abc import Sequence

from electra_tf.tasks.conll import DOCUMENT
from electra_tf.tasks.schemes import is_span_scheme


def is_column_file(lines: Sequence[str], tags: Sequence[str]) -> bool:
    """Return whether lines are words with tags, and not sentences."""
    rows = [line.split() for line in lines if line.strip() and line[0] != "#"]
    if rows and rows[0][0] == DOCUMENT:
        return True
    if len(rows) < 2 or len(rows[0]) < 2 or len({len(row) for row in rows}) != 1:
        return False
    last = {row[-1] for row in rows}
    # Sentences of one length that all end with "." are not columns of punctuation.
    return is_span_scheme(last) or (len(last) > 1 and last <= set(tags))
