"""Read the rows of JSON, .csv, .tsv and Parquet files in order, with their lines.

JSON is one value on each line, one list, or one object.
"""

import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from electra_tf.errors import InputError, format_list
from electra_tf.text.data_errors import DataErrorLog

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
"""Suffixes of JSON."""
MAX_ROW_BYTES = 64_000_000
"""Size of a row, at most; it holds a whole document."""
SEPARATORS = {".csv": ",;\t|", ".tsv": "\t,;|"}
"""Separators of columns by suffix, the usual one first."""
_PARQUET_ROWS = 256  # per batch; a row may be a whole book
_SAMPLE = 100  # lines of a .tsv by which its quoting is recognised
_BLOCK = 1 << 16  # characters
_BETWEEN = re.compile(r"[\s,\ufeff]*")
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*\Z')


def json_rows(read: Callable[[int], str]) -> Iterator[tuple[int, str, Any]]:
    """Yield line, text and value of the items of a list, or of values in sequence.

    A ValueError names the line of a value that is not JSON; the values before it have
    been yielded. `read` returns at most the given number of characters.
    """
    decoder = json.JSONDecoder(strict=False)  # strings may have control characters
    text, start, line = read(_BLOCK), 0, 1
    first = _BETWEEN.match(text).end()
    is_list = text[first : first + 1] == "["
    if is_list:
        start, line = first + 1, line + text.count("\n", 0, first)
    while True:
        begin = _BETWEEN.match(text, start).end()
        line += text.count("\n", start, begin)
        if is_list and text[begin : begin + 1] == "]":
            _check_end(read, text[begin + 1 :], line)
            return
        try:
            value, start = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            rest = text[begin:]
            more = read(max(_BLOCK, len(rest))) if len(rest) < MAX_ROW_BYTES else ""
            if more:
                text, start = rest + more, 0
                continue
            if not rest and not is_list:
                return
            reason = getattr(error, "msg", None) or str(error)
            raise ValueError(f"{reason}, from line {line} on") from error
        yield line, text[begin:start], value
        line += text.count("\n", begin, start)


def _check_end(read: Callable[[int], str], text: str, line: int) -> None:
    while text:
        if text.strip():
            raise ValueError(f"text after the list, which ends on line {line}")
        text = read(_BLOCK)


def json_values(
    text: str, path: str, log: DataErrorLog
) -> Iterator[tuple[int, str, Any]]:
    """Yield each value with the number of its first line and its text."""
    if not _is_document(text.lstrip()):
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            try:
                yield number, line, json.loads(line)
            except (ValueError, RecursionError) as error:
                kind, remedy = "invalid JSON", "Correct the line"
                log.add(path, number, kind, str(error), remedy)
        return
    try:
        yield from list(json_rows(io.StringIO(text).read))
    except ValueError as error:
        raise InputError(
            "A file of JSON must be one list or one object, or have a record on each "
            "line",
            f"{path}, invalid JSON: {error}",
            "Correct the file, or write each record as a JSON object on its own line",
        ) from error


def _is_document(text: str) -> bool:
    """Return whether a text is a list or an indented object, not lines of records."""
    first, _, rest = text.partition("\n")
    if not first.startswith("{"):
        return first.startswith("[")
    return not is_json(first) and bool(rest) and not rest.lstrip().startswith("{")


def is_json(text: str) -> bool:
    """Return whether a text is valid JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def begins_json(line: str) -> bool:
    """Return whether the first line of a file is JSON, or begins an indented value."""
    line = line.removeprefix("\ufeff").strip()
    return line in ("[", "{") or (line.startswith(('{"', "[{", '["')) and is_json(line))


def describe_json(value: Any) -> str:
    """Describe a value of JSON, for a message."""
    if isinstance(value, dict):
        return f"an object with the keys {format_list(value) or 'none'}"
    return f"{type(value).__name__} {value!r:.60}"


def named_separator(line: str) -> str | None:
    """Return the separator that the first line of a table names, as in `sep=;`."""
    match = _SEPARATOR_LINE.match(line)
    return match and match[1]


def csv_rows(
    lines: Iterable[str],
    separator: str,
    path: str,
    log: DataErrorLog,
    first: int = 1,
    quoting: int = csv.QUOTE_MINIMAL,
) -> Iterator[tuple[range, list[str] | None]]:
    """Yield the lines and the fields of rows that are not empty.

    The fields are None in a row of invalid quoting, which is logged.
    """
    reader = csv.reader(lines, delimiter=separator, quoting=quoting, strict=True)
    while True:
        start = first + reader.line_num
        try:
            row = _next_row(reader)
        except csv.Error as error:
            last = first + reader.line_num - 1
            detail = f"{error}, in the row to line {last}; row not read"
            remedy = (
                'Quote a field with separators or quotes as "...", its quotes as ""'
            )
            log.add(path, start, "broken quoting", detail, remedy)
            row = None
        except StopIteration:
            return
        if row != []:
            yield range(start, first + reader.line_num), row


def _next_row(reader: Iterator[list[str]]) -> list[str]:
    """Return the next row, with long fields."""
    before = csv.field_size_limit(MAX_ROW_BYTES)  # of all readers of the process
    try:
        return next(reader)
    finally:
        csv.field_size_limit(before)


def column_values(
    lines: Iterable[str], separators: str, field: str, path: str, log: DataErrorLog
) -> Iterator[tuple[int, str]]:
    """Yield the texts of a column, each with the number of its row's first line."""
    lines = iter(lines)
    first, header = 2, next(lines, "")
    if separator := named_separator(header):
        separators, first, header = separator, 3, next(lines, "")
    header = header.rstrip("\r\n")
    names, separator = _header(header, separators, field)
    if field not in names:
        raise missing_field(path, field, names)
    # A .tsv has no quoting, unless it quotes its first line or doubles quotes.
    quoting = csv.QUOTE_MINIMAL
    if separator == "\t" and not header.startswith('"'):
        sample = list(itertools.islice(lines, _SAMPLE))
        lines = itertools.chain(sample, lines)
        if not any(map(_doubles_quotes, sample)):
            quoting = csv.QUOTE_NONE
    for numbers, row in csv_rows(lines, separator, path, log, first, quoting):
        if row is not None and len(row) != len(names):
            detail = f"{len(row)} columns, not {len(names)}; row not read"
            remedy = "Check the separators of that row"
            kind = "another number of columns"
            log.add(path, numbers[0], kind, detail, remedy)
        elif row is not None:
            yield numbers[0], row[names.index(field)]


def missing_field(path: str, field: str, fields: Iterable[str]) -> InputError:
    """Return the error for a corpus without the field of its texts."""
    return InputError(
        f"The input must have the field {field!r}",
        f"{path} with the fields {', '.join(fields)}",
        "Name one of them with --field",
    )


def _doubles_quotes(line: str) -> bool:
    """Return whether a field of a .tsv is in quotes and has doubled ones within."""
    inner = [
        field[1:-1]
        for field in line.rstrip("\r\n").split("\t")
        if len(field) > 1 and field[0] == field[-1] == '"'
    ]
    return any('""' in text and '"' not in text.replace('""', "") for text in inner)


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
    file: BinaryIO, path: str, field: str, log: DataErrorLog
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
        table = pyarrow.parquet.ParquetFile(file)
        if field not in table.schema_arrow.names:
            raise missing_field(path, field, table.schema_arrow.names)
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
        detail, kind = f"{error}; the rows before it were read", "broken Parquet"
        log.add(path, number, kind, detail, "Write it again")
