"""Read any file of records into a table, column by column."""

import array
import contextlib
import dataclasses
import gc
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from electra_tf.errors import InputError, format_list
from electra_tf.tasks.data import files, records
from electra_tf.tasks.data.files import TFDS, Notify, print_note
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.delimited import DELIMITED_SUFFIXES, DelimitedReader
from electra_tf.text.files import inner_suffix
from electra_tf.text.parquet import ParquetReader, to_values
from electra_tf.text.rows import JSON_SUFFIXES

_STOP = DataErrorLog("stop")
_BATCH = 10_000  # records
_MAX_SHARED = 1000  # values of a column, of which equal ones are one object


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of a file by column."""

    columns: Mapping[str, Sequence[Any]]
    """Values by column, one for each row; None: missing.

    They are texts in .csv, .tsv and lines, and any values of JSON in other files.
    """
    lines: Sequence[int]
    """Number of each row: that of its line, the header of a table being 1.

    A line break within a cell does not count.
    """
    source: str  # path, "standard input" or `tfds:NAME@SPLIT`

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, index: int) -> str:
        """Return file and line of a row."""
        return f"{self.source}:{self.lines[index]}"

    def row(self, index: int) -> dict[str, Any]:
        """Return the values of a row by column."""
        return {name: values[index] for name, values in self.columns.items()}

    def take(self, indices: Sequence[int]) -> "Table":
        """Return a table of some rows, in the order of the indices."""
        columns = {
            name: [values[index] for index in indices]
            for name, values in self.columns.items()
        }
        return Table(columns, [self.lines[index] for index in indices], self.source)

    def require(self, names: Sequence[str]) -> None:
        """Raise an error if a column is missing."""
        _require(self.source, names, self.columns)

    def records(
        self, parse: Callable[[str, str], Any]
    ) -> list[tuple[int, dict[str, Any]]]:
        """Return number and object of each row, without missing values.

        `parse` converts name and text of a cell of .csv and .tsv.
        """
        is_text, found = inner_suffix(self.source) in DELIMITED_SUFFIXES, []
        for index, number in enumerate(self.lines):
            row = self.row(index)
            row = {k: parse(k, v) for k, v in row.items()} if is_text else row
            row = {name: value for name, value in row.items() if value is not None}
            found.append((number, row))
        return found

    def texts(self, name: str) -> list[str]:
        """Return a column as texts: missing values empty, others as JSON, 1.0 as 1."""
        return list(map(cell_text, self.columns[name]))

    def has_values(self, column: str | None) -> bool:
        """Return whether a column has a value in a row or more."""
        return any(cell_text(v).strip() for v in self.columns.get(column, ()))


def read(
    path: str | None,
    columns: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    notify: Notify = print_note,
) -> Table:
    """Read the rows of a file, of standard input, or of a split `tfds:NAME@SPLIT`.

    A .csv, .tsv, .jsonl, .ndjson, .json or .parquet has records, another file a text on
    each line, or a JSON object. All but .parquet may be compressed (.gz, .xz). Only an
    empty standard input has no rows. An invalid one is an error.

    `columns`: those that must exist and are kept; None: all. `names`: those of a .csv
    or .tsv without header.
    """
    source = path or files.STANDARD_INPUT
    files.refuse_binary(source)
    builder = Builder(source, columns)
    with without_collections():
        if source.startswith(TFDS):
            builder.add_records(records.tfds_records(source))
        elif reader := READERS.get(inner_suffix(source)):
            reader(path, builder, names)
        else:
            builder.add_records(records.read_lines_or_objects(path))
    if builder.lines or path:
        return builder.table()
    notify(f"{source} has no lines")
    return Table({records.TEXT: []}, [], source)


class Builder:
    """Columns that grow by batches of rows."""

    def __init__(self, source: str, wanted: Sequence[str] | None):
        self.source, self.wanted = source, wanted
        self._columns: dict[str, list] = {}
        self._known: dict[str, dict[str, str]] = {}
        self.lines = array.array("q")

    def add(self, numbers: Sequence[int], columns: Mapping[str, Sequence]) -> None:
        """Append rows; a column without values has missing ones."""
        for name, values in columns.items():
            known = self._known.setdefault(name, {})
            if self.wanted is None or name in self.wanted:
                column = self._columns.setdefault(name, [None] * len(self.lines))
                column.extend(_share(values, known))
        self.lines.extend(numbers)
        for column in self._columns.values():
            column.extend([None] * (len(self.lines) - len(column)))

    def add_records(self, rows: records.Records) -> None:
        """Append records of JSON."""
        while batch := list(itertools.islice(rows, _BATCH)):
            names = dict.fromkeys(itertools.chain(*(record for _, record in batch)))
            self.add(
                [number for number, _ in batch],
                {name: [record.get(name) for _, record in batch] for name in names},
            )

    def check(self, known: Iterable[str]) -> None:
        """Raise an error if a column is missing."""
        _require(self.source, self.wanted or (), known)

    def table(self) -> Table:
        """Return the table."""
        if not self.lines:
            raise InputError(f"{self.source} must have one or more valid rows")
        self.check(self._known)
        order = self.wanted or self._columns
        columns = {name: self._columns[name] for name in order}
        return Table(columns, self.lines, self.source)


Reader = Callable[[str | None, Builder, Sequence[str] | None], None]
"""Function that adds the rows of a path; the last argument names its columns."""


def _read_json(path: str, builder: Builder, _: Any) -> None:
    builder.add_records(records.json_records(path))


def _read_delimited(path: str, builder: Builder, names: Sequence[str] | None) -> None:
    with files.opened(path) as file:
        reader = DelimitedReader(file, path, _STOP, names)
        builder.check(reader.names)
        for numbers, values in reader:
            builder.add(numbers, dict(zip(reader.names, values, strict=True)))


def _read_parquet(path: str, builder: Builder, _: Any) -> None:
    with files.reported(path), open(path, "rb") as file:
        reader = ParquetReader(file, path, _STOP)
        builder.check(reader.names)
        names = builder.wanted or reader.names
        for numbers, values in reader.batches(names, _BATCH):
            columns = list(map(to_values, values, names))
            builder.add(numbers, dict(zip(names, columns, strict=True)))


READERS: dict[str, Reader] = {
    **dict.fromkeys(DELIMITED_SUFFIXES, _read_delimited),
    **dict.fromkeys(JSON_SUFFIXES, _read_json),
    ".parquet": _read_parquet,
}
"""Readers of tables by suffix; other files have lines of text."""


def _require(source: str, wanted: Sequence[str], known: Iterable[str]) -> None:
    known = list(known)
    if missing := [name for name in wanted if name not in known]:
        raise InputError(
            f"{source} must have the columns {format_list(missing)}, and has "
            f"{format_list(known, 30)}"
        )


def _share(values: Sequence, known: dict[str, str]) -> Sequence:
    """Let equal texts of a column be one object, if they are few."""
    if len(known) > _MAX_SHARED:
        return values
    return [known.setdefault(v, v) if type(v) is str else v for v in values]


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Stop garbage collections, which would visit all rows again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def cell_text(value: Any) -> str:
    """Return a value of a cell as text: missing empty, 1.0 as 1, lists as JSON."""
    if isinstance(value, str) or value is None:
        return value or ""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool):
        return str(value)  # as in a CSV of pandas
    if isinstance(value, int | float | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)  # a date, for example
