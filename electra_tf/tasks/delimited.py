"""Parse .csv and .tsv: records of fields, named by the first line or by the caller."""

import collections
import csv
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from electra_tf.errors import InputError, format_list
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.rows import MAX_ROW_BYTES, begins_json

SEPARATORS = {".csv": ",", ".tsv": "\t"}
_NAMES = {
    ",": "comma",
    ";": "semicolon",
    "\t": "tab",
    "|": "vertical bar",
    "，": "full-width comma",  # of Chinese and Japanese keyboards
    "；": "full-width semicolon",
}

_QUOTED_NAME = re.compile(r'(?:(?<=[,;\t|])|^)"(?:[^"]|"")*"(?=[,;\t|]|$)')

_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*\Z')
_SHORT, _MAX_SHORT = 32, 1000  # characters, and number of shared texts

Rows = Iterator[tuple[range, list[str] | None]]
"""Lines of each row and its fields; None: invalid quoting."""


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


class Record(Mapping[str, str]):
    """Values of a row by column, in half of the memory of a dictionary."""

    __slots__ = ("_columns", "_fields")

    def __init__(self, columns: Mapping[str, int], fields: tuple[str, ...]):
        self._columns, self._fields = columns, fields

    def __getitem__(self, name: str) -> str:
        """Return the value of a column."""
        return self._fields[self._columns[name]]

    def __contains__(self, name: object) -> bool:
        """Return whether the row has a column."""
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        """Return the names of the columns."""
        return iter(self._columns)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._columns)


class _ShortTexts(dict):
    """One object for all equal short texts, of which labels have many."""

    def __missing__(self, text: str) -> str:
        if len(text) <= _SHORT and len(self) < _MAX_SHORT:
            self[text] = text
        return text


def _csv_lines(text: str) -> Iterator[str]:
    """Yield the lines with their ends; io.StringIO would take 4 bytes a character."""
    return (match[0] for match in _LINE.finditer(text))


def named_records(
    text: str,
    path: str,
    separator: str,
    log: DataErrorLog,
    names: Sequence[str] | None,
    notify: Callable[[str], None] | None,
) -> Iterator[tuple[int, "Record"]]:
    """Yield the first line's number and the values by column of the valid rows."""
    end = text.find("\n")
    header = text[:end] if end >= 0 else text
    first, is_quoted = 1, separator == ","
    if stated := named_separator(header):
        text = text[end + 1 :] if end >= 0 else ""
        separator, first, is_quoted = stated, 2, True
    elif names is None:
        separator = _actual_separator(header.removesuffix("\r"), path, separator)
    if not is_quoted and notify:
        is_quoted = _is_quoted(text, path, notify)
    if is_quoted:
        rows = csv_rows(_csv_lines(text), separator, path, log, first)
    else:
        rows = _tab_rows(text, first)
    columns = {name: index for index, name in enumerate(names or ())}
    shared = _ShortTexts().__getitem__
    for lines, row in rows:
        if names is None:
            names = _column_names(row, f"{path}:{lines[0]}", notify)
            columns = {name: index for index, name in enumerate(names)}
        elif row is not None and len(row) == len(names):
            yield lines[0], Record(columns, tuple(map(shared, row)))
        elif row is not None:
            kind = "another number of columns"
            detail = f"{len(row)} columns, not {len(names)}"
            if row == [""]:
                detail = f"an empty line, not {len(names)} columns"
            remedy = "Check the separators of that line"
            log.add(path, lines[0], kind, detail, remedy)


def _actual_separator(header: str, path: str, expected: str) -> str:
    """Return the separator of the first line; raise an error for an unusual one."""
    suffixes = {separator: suffix for suffix, separator in SEPARATORS.items()}
    if begins_json(header):
        raise InputError(
            f"A {suffixes[expected]} must have the names of columns in its first line",
            f"{path}:1: JSON: {header!r:.60}",
            "Rename the file to .json",
        )
    # A quoted name may have separators: "Review, full";label.
    plain = _QUOTED_NAME.sub("", header) if expected == "," else header
    counts = {character: plain.count(character) for character in _NAMES}
    actual = max(counts, key=counts.get)
    if counts[expected] or not counts[actual]:
        return expected
    if (expected, actual) == (",", ";"):
        return actual  # of Excel where numbers have a decimal comma
    if actual in suffixes:
        remedy = f"Rename the file to {suffixes[actual]}"
    elif actual in "，；":
        remedy = f"Write {expected!r} between the columns, in all lines"
    else:
        remedy = (
            f"Convert it: pandas.read_csv(FILE, sep={actual!r})"
            ".to_csv('NEW.csv', index=False)"
        )
    raise InputError(
        f"A {suffixes[expected]} must have {_NAMES[expected]}s between its columns",
        f"{path}:1 with {counts[actual]:,} {_NAMES[actual]}{'s' * (counts[actual] > 1)}"
        f" and no {_NAMES[expected]}: {header!r:.80}",
        remedy,
    )


def _is_quoted(text: str, path: str, notify: Callable[[str], None]) -> bool:
    """Return whether quotes around the fields of a .tsv are its writer's, not texts'.

    GLUE's files have quotes as characters; pandas and Excel write them around fields.
    """
    if '\t"' not in text and '\n"' not in text and not text.startswith('"'):
        return False
    plain, problem = [row for _, row in _tab_rows(text, 1)], ""
    errors = DataErrorLog("stop", "")
    try:
        parsed = [row for _, row in csv_rows(_csv_lines(text), "\t", path, errors)]
    except InputError as error:
        parsed, problem = [], f", as {error.received}"
    is_quoted = all(map(_in_quotes, plain[0])) or _shows_quoting(plain, parsed)
    if is_quoted:
        notify(f'{path}: fields in quotes are read without them, and "" within as "')
    elif sum(any(map(_in_quotes, row)) for row in plain[1:]) > len(plain) / 2:
        notify(f"warning: {path}: quotes are read as characters of the texts{problem}")
    return is_quoted


def _shows_quoting(plain: Sequence[list[str]], parsed: Sequence[list[str]]) -> bool:
    """Return whether a .tsv is valid with quoting and not meant without it."""
    width = len(plain[0])
    plain = [row for row in plain if row != [""] or width == 1]
    if {len(row) for row in parsed} != {width}:
        return False
    if {len(row) for row in plain} != {width}:
        return True  # quotes join parts of lines, or lines
    if len(plain) != len(parsed):
        return False  # a line can begin with a quote, and a later one end with one
    pairs = itertools.chain(*map(zip, plain[1:], parsed[1:]))
    if any(raw.startswith('"') and '"' in value for raw, value in pairs):
        return True
    columns = zip(*plain[1:], strict=True)
    return len(plain) > 2 and any(all(map(_in_quotes, c)) for c in columns)


def _in_quotes(field: str) -> bool:
    return len(field) > 1 and field[0] == field[-1] == '"'


def _tab_rows(text: str, first: int) -> Rows:
    """Yield the rows of a .tsv without quoting."""
    lines = text.removesuffix("\n").split("\n")
    # With one column an empty line is an empty text.
    while "\t" in lines[0] and not lines[-1].removesuffix("\r"):
        lines.pop()
    for number, line in enumerate(lines, first):
        yield range(number, number + 1), line.removesuffix("\r").split("\t")


def _column_names(
    row: list[str] | None, place: str, notify: Callable[[str], None] | None
) -> list[str]:
    """Return the names of the columns; equal ones get their number, from 1."""
    if row is None or any("\udc80" <= c <= "\udcff" for name in row for c in name):
        raise InputError(
            "The first line must name the columns",
            f"{place}, unreadable",
            "Correct the line",
        )
    counts = collections.Counter(filter(None, row))
    if counts.total() == len(counts):
        return row
    names = [
        f"{name} (column {number})" if counts[name] > 1 else name
        for number, name in enumerate(row, 1)
    ]
    if notify:
        new = [name for name, old in zip(names, row, strict=True) if name != old]
        notify(f"{place}: several columns have one name: read as {format_list(new)}")
    return names
