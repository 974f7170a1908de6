"""Read any file of rows into a table, column by column."""

import array
import contextlib
import dataclasses
import gc
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from electra_tf.errors import InputError, format_list
from electra_tf.tasks.data import files
from electra_tf.tasks.data.files import Notify, print_note
from electra_tf.text.data_errors import data_error
from electra_tf.text.files import TFDS_PREFIX, TfdsSource, inner_suffix
from electra_tf.text.rows import (
    DELIMITED_SUFFIXES,
    RECORDS_REMEDY,
    TEXT,
    RowBatch,
    read_rows,
    tfds_batches,
)

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

    def error(self, index: int, kind: str, detail: str, remedy: str = "") -> InputError:
        """Return the error of a row."""
        return data_error(self.source, self.lines[index], kind, detail, remedy)

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
        if missing := [name for name in names if name not in self.columns]:
            raise InputError(
                f"{self.source} must have the columns {format_list(missing)}, and has "
                f"{format_list(self.columns, 30)}"
            )

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

    def plain_texts(self, name: str, may_lack: bool = False) -> Sequence[Any]:
        """Return a column of texts; raise an error if a cell is nested, or lacks one.

        `may_lack`: a missing text is None.
        """
        cells = self.columns[name]
        if {type(cell) for cell in cells} == {str}:
            return cells
        for index, cell in enumerate(cells):
            if isinstance(cell, list | dict) or (cell is None and not may_lack):
                kind = "no text" if cell is None else "a nested value"
                remedy = "" if cell is None or len(self) > 1 else RECORDS_REMEDY
                raise self.error(index, kind, f"{name!r} is {cell!r:.60}", remedy)
        return [cell if cell is None else cell_text(cell) for cell in cells]

    def texts(self, name: str) -> list[str]:
        """Return a column as texts: missing values empty, others as JSON, 1.0 as 1."""
        return list(map(cell_text, self.columns[name]))

    def has_values(self, column: str | None) -> bool:
        """Return whether a column has a value in a row or more."""
        return any(cell_text(v).strip() for v in self.columns.get(column, ()))


def read(
    path: str | None,
    names: Sequence[str] | None = None,
    notify: Notify = print_note,
) -> Table:
    """Read the rows of a file, of standard input, or of a split `tfds:NAME@SPLIT`.

    A .csv, .tsv, .jsonl, .ndjson, .json or .parquet has rows, another file a text on
    each line, or a JSON object. All but .parquet may be compressed (.gz, .xz). Only an
    empty standard input has no rows. An invalid row is an error.

    `names`: columns of a .csv or .tsv without header.
    """
    source = path or files.STANDARD_INPUT
    files.refuse_binary(source)
    with without_collections():
        if source.startswith(TFDS_PREFIX):
            table = _table(source, tfds_batches(TfdsSource(source)))
        else:
            with files.opened(path, names) as file:
                table = _table(source, read_rows(file))
    if len(table):
        return table
    if path:
        raise InputError(f"{source} must have one or more valid rows")
    notify(f"{source} has no lines")
    return Table({TEXT: []}, [], source)


def _table(source: str, batches: Iterable[RowBatch]) -> Table:
    """Return rows as a table; those without a column have None there."""
    table = Table({}, array.array("q"), source)
    known: dict[str, dict[str, str]] = {}
    for numbers, columns in batches:
        for name, values in columns.items():
            column = table.columns.setdefault(name, [None] * len(table))
            column.extend(_share(values, known.setdefault(name, {})))
        table.lines.extend(numbers)
        for column in table.columns.values():
            column.extend([None] * (len(table) - len(column)))
    return table


def _share(values: Iterable, known: dict[str, str]) -> Iterable:
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


def one_line(value: Any) -> str:
    """Return a value as one line, with single spaces between words."""
    return " ".join(str(value).split())


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, which has no NaN and no infinity: these are null."""
    content = json_value(value, lambda number: None)
    options = {"ensure_ascii": False, "indent": indent}
    return utf8(json.dumps(content, default=cell_text, **options))


def json_value(value: Any, replace: Callable[[float], Any]) -> Any:
    """Replace NaN and infinity in a value of dictionaries and lists."""
    if isinstance(value, Mapping):
        return {key: json_value(one, replace) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(one, replace) for one in value]
    is_special = isinstance(value, float) and not math.isfinite(value)
    return replace(value) if is_special else value


def utf8(text: str) -> str:
    """Write halves of surrogate pairs, which UTF-8 cannot encode, as in JSON."""
    return text.encode("utf-8", "backslashreplace").decode()
