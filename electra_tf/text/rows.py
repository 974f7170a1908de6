"""Read one field of the rows of JSON lists, .csv, .tsv and Parquet files, in order."""

import csv
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from electra_tf.errors import InputError

MAX_ROW_BYTES = 64_000_000
"""Size of a row, at most; it holds a whole document."""
SEPARATORS = {".csv": ",;\t|", ".tsv": "\t,;|"}
"""Separators of columns by suffix, the usual one first."""
_MAX_PARQUET_RATIO = 100
_PARQUET_ROWS = 256  # per batch; a row may be a whole book
_SAMPLE = 100  # lines of a .tsv by which its quoting is recognised
_BLOCK = 1 << 16  # characters
_BETWEEN = re.compile(r"[\s,\ufeff]*")
_Missing = Callable[[Sequence[str]], InputError]
_Report = Callable[[int, str, str, str], None]
# First line in which Excel names the separator.
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*\Z')


def json_rows(read: Callable[[int], str]) -> Iterator[tuple[str, Any]]:
    """Yield the values of a JSON list, or values that follow one another.

    Yields:
        The text of a value, and the value.
    """
    decoder = json.JSONDecoder(strict=False)  # strings may have control characters
    text, start, is_list = read(_BLOCK), 0, False
    first = _BETWEEN.match(text).end()
    if text[first : first + 1] == "[":
        start, is_list = first + 1, True
    while True:
        start = _BETWEEN.match(text, start).end()
        if is_list and text[start : start + 1] == "]":
            _check_end(read, text[start + 1 :])
            return
        try:
            value, end = decoder.raw_decode(text, start)
        except (json.JSONDecodeError, RecursionError) as error:
            rest = text[start:]
            more = read(max(_BLOCK, len(rest))) if len(rest) < MAX_ROW_BYTES else ""
            if more:
                text, start = rest + more, 0
                continue
            if not rest and not is_list:
                return
            reason = getattr(error, "msg", "too many brackets within brackets")
            raise json.JSONDecodeError(reason, text, start) from error
        yield text[start:end], value
        start = end


def _check_end(read: Callable[[int], str], text: str) -> None:
    """Raise an error for text after the end of a list."""
    while text:
        if text.strip():
            raise json.JSONDecodeError("text after the list", text, 0)
        text = read(_BLOCK)


def column_values(
    lines: Iterable[str],
    separators: str,
    field: str,
    missing: _Missing,
    report: _Report,
) -> Iterator[tuple[int, str]]:
    """Yield the texts of a column.

    Yields:
        The number of the first line of a row, and its text.
    """
    lines = iter(lines)
    skipped, header = 0, next(lines, "")
    if match := _SEPARATOR_LINE.match(header):
        separators, skipped, header = match[1], 1, next(lines, "")
    header = header.rstrip("\r\n")
    names, separator = _header(header, separators, field)
    if field not in names:
        raise missing(names)
    # A .tsv has no quoting, unless it quotes its first line or doubles quotes.
    quoting = csv.QUOTE_MINIMAL
    if separator == "\t" and not header.startswith('"'):
        sample = list(itertools.islice(lines, _SAMPLE))
        lines = itertools.chain(sample, lines)
        if not any(map(_doubles_quotes, sample)):
            quoting = csv.QUOTE_NONE
    reader = csv.reader(lines, delimiter=separator, quoting=quoting, strict=True)
    while True:
        number = skipped + reader.line_num + 2
        try:
            row = _next_row(reader)
        except csv.Error as error:
            last = skipped + reader.line_num + 1
            detail = f"{error}, in the row to line {last}; row not read"
            remedy = (
                'Quote a field with separators or quotes as "...", its quotes as ""'
            )
            report(number, "broken quoting", detail, remedy)
            continue
        if row is None:
            return
        if len(row) == len(names):
            yield number, row[names.index(field)]
        elif row:
            detail = f"{len(row)} columns, not {len(names)}; row not read"
            remedy = "Check the separators of that row"
            report(number, "another number of columns", detail, remedy)


def _doubles_quotes(line: str) -> bool:
    """Return whether a field of a .tsv is in quotes and has doubled ones within."""
    inner = [
        field[1:-1]
        for field in line.rstrip("\r\n").split("\t")
        if len(field) > 1 and field[0] == field[-1] == '"'
    ]
    return any('""' in text and '"' not in text.replace('""', "") for text in inner)


def _next_row(reader: Iterator[list[str]]) -> list[str] | None:
    """Return the next row, with long fields; None at the end."""
    before = csv.field_size_limit(MAX_ROW_BYTES)  # of all readers of the process
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(before)


def _header(line: str, separators: str, field: str) -> tuple[list[str], str]:
    """Return the names of the columns and their separator."""
    headers = []
    for separator in separators:
        try:
            names = next(csv.reader([line], delimiter=separator), [])
        except csv.Error:  # a carriage return within the line
            names = line.split(separator)
        headers.append((names, separator))
    found = [header for header in headers if field in header[0]]
    return (found or sorted(headers, key=lambda h: -len(h[0])))[0]


def parquet_values(
    open_file: Callable[[], BinaryIO],
    path: str,
    field: str,
    missing: _Missing,
    report: _Report,
) -> Iterator[Any]:
    """Yield the values of a column of a Parquet file."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            "pyarrow must be installed to read Parquet files",
            f"{path}, without pyarrow",
            "Install it: pip install pyarrow",
        ) from error
    number = 0
    try:
        with open_file() as file:
            table = pyarrow.parquet.ParquetFile(file)
            if field not in table.schema_arrow.names:
                raise missing(table.schema_arrow.names)
            _check_expansion(table, path, field)
            kind = table.schema_arrow.field(field).type
            if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
                # Equal texts of a page are stored once, and so stay in memory.
                table = pyarrow.parquet.ParquetFile(file, read_dictionary=[field])
            for batch in table.iter_batches(_PARQUET_ROWS, columns=[field]):
                for value in batch.column(0):  # one at a time in memory as text
                    number += 1
                    yield value.as_py()
    except (pyarrow.ArrowException, OSError) as error:
        # Arrow raises OSError for a page that cannot be decoded.
        detail = f"{error}; the rows before it were read"
        report(number, "broken Parquet", detail, "Write it again")


def _check_expansion(table: Any, path: str, field: str) -> None:
    """Raise an error for a column that expands to more than its size explains."""
    metadata = table.metadata
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            if column.path_in_schema.split(".")[0] != field:
                continue
            size, stored = column.total_uncompressed_size, column.total_compressed_size
            if size > MAX_ROW_BYTES + _MAX_PARQUET_RATIO * stored:
                raise InputError(
                    f"A column of a Parquet file must expand to at most "
                    f"{_MAX_PARQUET_RATIO} times its size",
                    f"{path}: {field!r} of {stored:,} bytes to {size:,} in row group "
                    f"{group}",
                    "Check that it is the right file, or write it with less "
                    "compression",
                )
