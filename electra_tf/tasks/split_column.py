"""Splits of one table by a column with the words train, dev and test."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from electra_tf.errors import InputError, format_list
from electra_tf.tasks.tables import Row
from electra_tf.text.data_errors import DataError, DataErrorLog

_WORDS = {"train": "train", "test": "test"}
_WORDS |= dict.fromkeys(["dev", "valid", "validation", "val"], "dev")


def split_rows(
    rows: Sequence[Row], column: str, log: DataErrorLog
) -> dict[str, list[Row]]:
    """Return the rows of each split that occurs: train, dev, test."""
    splits: dict[str, list[Row]] = {"train": [], "dev": [], "test": []}
    for row in rows:
        split = _split_of(row.values.get(column))
        if split:
            splits[split].append(row)
            continue
        detail = f"{column!r} is {row.values.get(column)!r}; the row is left out"
        remedy = f"Write one of {', '.join(_WORDS)}"
        log.add(DataError(row.source, row.line, "no split", detail, remedy))
    return {name: rows for name, rows in splits.items() if rows}


def unused_split_column(
    records: Sequence[Mapping[str, Any]], used: Collection[str | None]
) -> str | None:
    """Return a column that holds names of several splits and nothing else."""
    columns = records[0] if records else {}
    for column in [name for name in columns if name not in used]:
        splits = {_split_of(record.get(column)) for record in records}
        if len(splits) > 1 and None not in splits:
            return column
    return None


def require_one_file(column: str, data: str) -> None:
    """Raise an error: a column of splits belongs to one file."""
    raise InputError(
        "--split_column must be used with one table as --data",
        f"--split_column={column} with {data!r}",
        "Name the file, or leave --split_column out",
    )


def require_splits(splits: Mapping[str, Any], names: Sequence[str], path: str) -> None:
    """Raise an error if a column of splits has none of those that are needed."""
    if splits.keys().isdisjoint(names):
        raise InputError(
            f"The column of splits must have rows of {' or '.join(names)}",
            f"{path} with {format_list(splits) or 'none'}",
            "Check the column, or leave --split_column out",
        )


def _split_of(word: Any) -> str | None:
    return _WORDS.get(word.strip().casefold()) if isinstance(word, str) else None
