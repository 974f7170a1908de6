"""Read the rows of .csv, .tsv, JSON and Parquet, of corpora and of tasks alike.

A reader yields batches of bounded size. It reports bad rows by a function that raises
an error or logs it; then it reads on.

A .csv has commas, or semicolons or tabs where its header has no comma, and quotes as in
RFC 4180. A .tsv has tabs; its quotes are characters. The first row names the columns.
Empty lines are skipped, but in a .tsv of one column they are empty texts.
"""

import codecs
import collections
import contextlib
import csv
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from electra_tf.errors import InputError, format_list
from electra_tf.text.files import BROKEN, ENCODING_REMEDY, inner_suffix
from electra_tf.text.lines import (
    BLOCK,
    MAX_ROW_SIZE,
    Lines,
    OpenFile,
    decoded,
    invalid_bytes,
    numbered_lines,
)

if TYPE_CHECKING:  # pyarrow takes a third of a second
    import pyarrow

TEXT = "text"
"""Column of texts that are no objects: lines, and strings of JSON."""
RECORDS_REMEDY = (
    "write an object for each row, with pandas to_json(FILE, orient='records')"
)
_BATCH_SIZE = 1 << 20  # characters of a batch, but for its last rows
_ROWS = 32  # that are read at once
_MOST_ROWS = 10_000  # of a batch of Parquet
_UNDECODED = re.compile("[\udc80-\udcff]")  # surrogates that stand for invalid bytes
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_BETWEEN = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder(strict=False)  # strings may have control characters

RowBatch = tuple[Sequence[int], Mapping[str, Iterable[Any]]]
"""Numbers of rows and their values by column."""


# .csv and .tsv.


def _delimited(source: OpenFile) -> Iterator[RowBatch]:
    lines, is_csv = Lines(source), inner_suffix(source.path) == ".csv"
    rows = _csv_rows(lines) if is_csv else map(_split, lines)
    number, is_first, names = 1, True, source.names
    if names is None:
        header, error = _next_rows(itertools.islice(rows, 1), lines)
        number, names = 2, _header(source.path, header, error)
    places = {name: names.index(name) for name in source.choose(list(names))}
    while True:
        batch, error = _next_rows(rows, lines)
        if is_first and not is_csv:
            _refuse_quotes(source.path, batch)
        is_first, numbers, valid = False, range(number, number + len(batch)), batch
        columns, widths = list(zip(*batch, strict=False)), set(map(len, batch))
        if lines.is_bad or widths != {len(names)}:
            numbers, valid = _valid_rows(source, numbers, batch, len(names))
            columns = list(zip(*valid, strict=True))
        if valid:
            yield numbers, {name: columns[place] for name, place in places.items()}
        number += len(batch)
        if error:
            remedy = 'quote a field as "...", and write its quotes as ""'
            source.report(number, "broken quoting", error, remedy)
            number += 1
        elif not batch:
            return


def _csv_rows(lines: Iterable[str]) -> Iterator[list[str]]:
    lines = iter(lines)
    first = next(lines, "")
    plain = _QUOTED.sub("", first)
    separator = next((mark for mark in ",;\t" if mark in plain), ",")
    lines = itertools.chain([first] if first else [], lines)
    return csv.reader(lines, delimiter=separator, strict=True)


def _split(line: str) -> list[str]:
    return line.removesuffix("\n").removesuffix("\r").split("\t")


def _next_rows(rows: Iterator[list[str]], lines: Lines) -> tuple[list[list[str]], str]:
    """Return the next rows, which have the size of a batch, and an error's text."""
    batch, lines.size, count, error = [], 0, -1, ""
    before = csv.field_size_limit(MAX_ROW_SIZE)  # of all readers of the process
    try:
        while lines.size <= _BATCH_SIZE and count < len(batch):
            count = len(batch)
            # The first row shows the size of the others; the list keeps the rows before
            # an error.
            batch.extend(itertools.islice(rows, _ROWS if batch else 1))
    except csv.Error as caught:
        error = str(caught)
    finally:
        csv.field_size_limit(before)
    return batch, error


def _header(path: str, rows: list[list[str]], error: str) -> list[str]:
    """Return the names of columns; equal ones have their number added."""
    names = rows[0] if rows else []
    error = error or invalid_bytes("".join(names))
    if error or not "".join(names).strip():
        raise InputError(f"{path}:1 must name the columns: {error or 'it is empty'}")
    return _distinct(names)


def _distinct(names: Sequence[str]) -> list[str]:
    counts = collections.Counter(names)
    return [
        f"{name} (column {number})".strip() if counts[name] > 1 else name
        for number, name in enumerate(names, 1)
    ]


def _valid_rows(
    source: OpenFile, numbers: Sequence[int], rows: list[list[str]], width: int
) -> tuple[Sequence[int], list[list[str]]]:
    """Return the valid rows with their numbers; report others that are not blank."""
    valid = []
    for number, row in zip(numbers, rows, strict=True):
        if invalid := invalid_bytes("".join(row)):
            detail = f"{invalid}; row not read"
            source.report(number, "invalid UTF-8", detail, ENCODING_REMEDY)
        elif len(row) == width:
            valid.append((number, row))
        elif row not in ([], [""]):
            detail = f"{len(row)} columns, not {width}; row not read"
            source.report(number, "another number of columns", detail)
    return [number for number, _ in valid], [row for _, row in valid]


def _refuse_quotes(path: str, rows: Sequence[list[str]]) -> None:
    """Reject a .tsv whose fields are quoted as in a .csv."""
    fields = [f for row in rows for f in row if f[:1] == '"' or f[-1:] == '"']
    doubled = [field for field in fields if '""' in field[1:-1]]
    if doubled and all(map(_QUOTED.fullmatch, fields)):
        raise InputError(
            f"{path} must have no quotes around fields, as a .tsv, and "
            f"{doubled[0]!r:.80} has; write it as .csv"
        )


# JSON.


def _json(source: OpenFile) -> Iterator[RowBatch]:
    head = source.file.peek(BLOCK).removeprefix(codecs.BOM_UTF8).lstrip()
    values = _document if _is_document(head.decode(errors="replace")) else _json_lines
    return _batches(_objects(source, values(source)))


def _is_document(head: str) -> bool:
    """Return whether JSON is one list, or objects over several lines."""
    first, _, rest = head.partition("\n")
    next_line = rest.lstrip()
    is_row = not next_line or next_line.startswith("{") or is_json(first)
    return first.startswith("[") or not is_row


def _objects(
    source: OpenFile, values: Iterable[tuple[int, str, Any]]
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield number, size and object of each value; that of a string is a text."""
    for number, text, value in values:
        if invalid := invalid_bytes(text):
            detail = f"{invalid}; invalid bytes dropped"
            source.report(number, "invalid UTF-8", detail, ENCODING_REMEDY)
            value = _DECODER.decode(_UNDECODED.sub("", text))
        value = {TEXT: value} if isinstance(value, str) else value
        if _is_by_columns(value):
            detail = f"{describe_json(value)}, not a row"
            source.report(number, "a table by columns", detail, RECORDS_REMEDY)
        elif isinstance(value, dict):
            yield number, len(text), value
        else:
            detail = f"{describe_json(value)}, not an object"
            source.report(number, "invalid JSON", detail)


def _document(source: OpenFile) -> Iterator[tuple[int, str, Any]]:
    with decoded(source.file) as text:
        try:
            yield from json_values(text.read, source.report)
        except BROKEN as error:
            source.report_broken(error)


def _json_lines(source: OpenFile) -> Iterator[tuple[int, str, Any]]:
    for number, line in enumerate(Lines(source), 1):
        if line.strip():
            try:
                yield number, line, _DECODER.decode(line)
            except (ValueError, RecursionError) as error:
                source.report(number, "invalid JSON", f"{error}; row not read")


def json_values(
    read: Callable[[int], str], report: Callable[..., None]
) -> Iterator[tuple[int, str, Any]]:
    """Yield line, text and value of the items of a list, or of values in sequence.

    It ends at a value that is not JSON, which is reported. `read` returns at most the
    given number of characters.
    """
    text, start, line = read(BLOCK), 0, 1
    first = _BETWEEN.match(text).end()
    is_list = text[first : first + 1] == "["
    if is_list:
        start, line = first + 1, line + text.count("\n", 0, first)
    while True:
        begin = _BETWEEN.match(text, start).end()
        line += text.count("\n", start, begin)
        if is_list and text[begin : begin + 1] == "]":
            rest = text[begin + 1 :]
            while rest:
                if rest.strip():
                    report(line, "invalid JSON", "text after the list")
                    return
                rest = read(BLOCK)
            return
        try:
            value, start = _DECODER.raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            rest = text[begin:]
            more = read(max(BLOCK, len(rest))) if len(rest) < MAX_ROW_SIZE else ""
            if more:
                text, start = rest + more, 0
                continue
            if rest or is_list:
                reason = getattr(error, "msg", None) or str(error)
                detail = f"{reason}; the rows before it were read"
                report(line, "invalid JSON", detail)
            return
        yield line, text[begin:start], value
        line += text.count("\n", begin, start)


def _is_by_columns(value: Any) -> bool:
    """Return whether a value is a whole table, in a layout of pandas's `to_json`."""
    if not isinstance(value, dict) or not value:
        return False
    if value.keys() in ({"columns", "index", "data"}, {"schema", "data"}):
        return True
    first = next(iter(value.values()))
    if not isinstance(first, dict) or not first:
        return False
    has_index = any(all(map(str.isdecimal, keys)) for keys in (value, first))
    return has_index and all(
        isinstance(one, dict) and one.keys() == first.keys() for one in value.values()
    )


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


def _batches(rows: Iterable[tuple[int, int, dict[str, Any]]]) -> Iterator[RowBatch]:
    """Yield rows, each a number, a size and an object; absent values are None."""
    batch, total = [], 0
    for number, size, row in rows:
        batch.append((number, row))
        total += size
        if total >= _BATCH_SIZE:
            yield _by_columns(batch)
            batch, total = [], 0
    if batch:
        yield _by_columns(batch)


def _by_columns(rows: Sequence[tuple[int, dict[str, Any]]]) -> RowBatch:
    names = dict.fromkeys(itertools.chain.from_iterable(row for _, row in rows))
    columns = {name: [row.get(name) for _, row in rows] for name in names}
    return [number for number, _ in rows], columns


# Texts on lines, and TFDS.


def _text_rows(source: OpenFile) -> Iterator[RowBatch]:
    """Yield the text of each line, or its JSON object."""
    return _batches(_lines_or_objects(source))


def _lines_or_objects(source: OpenFile) -> Iterator[tuple[int, int, dict[str, Any]]]:
    for number, line in numbered_lines(source):
        if number == 1 and begins_json(line) and not line.strip().startswith('{"'):
            raise InputError(
                f"{source.path}:1: a line must be a text or a JSON object, and "
                f"{line!r:.40} begins other JSON; save it as .json, or write a text as "
                '{"text": "..."}'
            )
        record = {TEXT: line}
        try:
            record = _DECODER.decode(line) if line.startswith("{") else record
        except (ValueError, RecursionError) as error:
            if line.startswith('{"'):  # another text may begin with a brace
                remedy = 'write a text as {"text": "..."}'
                source.report(number, "invalid JSON", str(error), remedy)
        yield number, len(line), record


def tfds_batches(rows: Iterable[dict[str, Any]]) -> Iterator[RowBatch]:
    """Yield the rows of a data set of TFDS, 64 in a batch."""
    size = _BATCH_SIZE // 64
    return _batches((number, size, row) for number, row in enumerate(rows, 1))


# Parquet.


def _parquet(source: OpenFile) -> Iterator[RowBatch]:
    import pyarrow.parquet

    number = 0
    try:
        file = pyarrow.parquet.ParquetFile(source.file)
        names = file.schema_arrow.names
        places = {name: place for place, name in enumerate(_distinct(names))}
        places = {name: places[name] for name in source.choose(list(places))}
        stored = list(dict.fromkeys(names[place] for place in places.values()))
        count = _rows_of_batch(file.metadata)
        for batch in file.iter_batches(count, columns=stored):
            values = {
                name: _values(_column(batch, names, place), name)
                for name, place in places.items()
            }
            yield range(number + 1, number + 1 + len(batch)), values
            number += len(batch)
    # Arrow raises OSError for a page that cannot be decoded.
    except (pyarrow.ArrowException, OSError) as error:
        detail = f"{error}; the rows before it were read"
        source.report(number, "broken Parquet", detail)


def _rows_of_batch(metadata: Any) -> int:
    """Return the number of rows that take the size of a batch, as they are stored."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    size = sum(group.total_byte_size for group in groups)
    count = _BATCH_SIZE * metadata.num_rows // max(1, size)
    return min(max(1, count), _MOST_ROWS)


def _column(
    batch: "pyarrow.RecordBatch", names: Sequence[str], place: int
) -> "pyarrow.Array":
    """Return the column at a place of the file; Arrow reads all columns of a name."""
    name = names[place]
    return batch.column(
        batch.schema.get_all_field_indices(name)[names[:place].count(name)]
    )


def _values(values: "pyarrow.Array", name: str) -> list[Any]:
    """Return a column's values; bytes of UTF-8 and what Python cannot hold as texts."""
    import pyarrow
    from pyarrow import types

    kind = values.type
    inner = kind.value_type if types.is_list(kind) else kind
    if types.is_binary(inner) or types.is_large_binary(inner):
        text = pyarrow.large_string()
        with contextlib.suppress(pyarrow.ArrowException):
            return values.cast(
                text if inner is kind else pyarrow.list_(text)
            ).to_pylist()
    try:
        return values.to_pylist()
    except (ValueError, OverflowError, KeyError):  # nanoseconds, far years, zones
        pass
    try:
        if types.is_timestamp(kind):
            values = values.cast(pyarrow.timestamp(kind.unit))
        return values.cast(pyarrow.string()).to_pylist()
    except pyarrow.ArrowException as error:
        raise InputError(
            f"The column {name!r} must have values of JSON, and has {kind}: {error}; "
            "write the file without it"
        ) from error


DELIMITED_SUFFIXES = (".csv", ".tsv")
"""Suffixes of delimited tables."""
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
"""Suffixes of JSON."""
READERS: dict[str, Callable[[OpenFile], Iterator[RowBatch]]] = {
    **dict.fromkeys(DELIMITED_SUFFIXES, _delimited),
    **dict.fromkeys(JSON_SUFFIXES, _json),
    ".parquet": _parquet,
}
"""Readers of tables by suffix."""


def read_rows(source: OpenFile) -> Iterator[RowBatch]:
    """Yield the rows of a file; one of another suffix has lines of text or objects."""
    return READERS.get(inner_suffix(source.path), _text_rows)(source)
