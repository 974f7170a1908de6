"""Parse .csv and .tsv: records of fields, named by the first line or by the caller."""

import collections
import contextlib
import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence

from electra_tf.errors import InputError, format_list
from electra_tf.text.data_errors import DataError, DataErrorLog
from electra_tf.text.json_records import begins_json

_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
# Of Chinese and Japanese keyboards.
_FULL_WIDTH = {"，": "full-width comma", "；": "full-width semicolon"}
_SUFFIXES = {",": ".csv", "\t": ".tsv"}
# First line in which Excel names the separator.
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?\n')
_QUOTED_FIELD = re.compile(r'(?:^|[\t\n])"')
_FIELD_LIMIT = 10_000_000  # characters; csv's own limit is 131,072

# Lines of a record and its fields; None: invalid quoting.
_Record = tuple[range, list[str] | None]


def named_records(
    text: str,
    path: str,
    separator: str,
    log: DataErrorLog,
    names: Sequence[str] | None,
    bad: frozenset[int],
    notify: Callable[[str], None] | None,
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the first line's number and values by column of the valid records."""
    first, has_quotes = 1, separator == ","
    if match := _SEPARATOR_LINE.match(text):
        separator, text, first, has_quotes = match[1], text[match.end() :], 2, True
    elif names is None:
        line = text.partition("\n")[0]
        if begins_json(line):
            raise InputError(
                f"A {_SUFFIXES[separator]} must have the names of columns in its first "
                "line",
                f"{path}:1: JSON: {line!r:.60}",
                "Rename the file to .json",
            )
        if separator == "," and ";" in line and "," not in line:
            separator = ";"  # of Excel where numbers have a decimal comma
        _check_separator(line.removesuffix("\r"), path, separator)
    if not has_quotes and notify:
        has_quotes = _is_quoted(text, path, notify)
    with _long_fields():
        records = _tsv(text, first)
        if has_quotes:
            records = _csv(text, first, path, separator, log)
        yield from _named(records, path, log, names, bad)


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
    """Raise the limit of the csv module on the length of a field."""
    before = csv.field_size_limit(_FIELD_LIMIT)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _check_separator(line: str, path: str, expected: str) -> None:
    """Raise an error if the columns of the first line have another separator."""
    names = _SEPARATORS | _FULL_WIDTH
    counts = {character: line.count(character) for character in names}
    actual = max(counts, key=lambda character: counts[character])
    if counts[expected] or not counts[actual]:
        return
    number = f"{counts[actual]:,} {names[actual]}{'s' * (counts[actual] > 1)}"
    remedy = (
        f"Convert it: pandas.read_csv(FILE, sep={actual!r})"
        ".to_csv('NEW.csv', index=False)"
    )
    if actual in _SUFFIXES:
        remedy = f"Rename the file to {_SUFFIXES[actual]}"
    if actual in _FULL_WIDTH:
        remedy = (
            f"Between columns write the {_SEPARATORS[expected]} of an English "
            f"keyboard, {expected!r}, in this line and in all others; inside of a text "
            f"{actual!r} may stay"
        )
    raise InputError(
        f"A {_SUFFIXES[expected]} must have {_SEPARATORS[expected]}s between its "
        "columns",
        f"{path}:1 with {number} and no {_SEPARATORS[expected]}: {line!r:.80}",
        remedy,
    )


def _is_quoted(text: str, path: str, notify: Callable[[str], None]) -> bool:
    """Return whether quotes around the fields of a .tsv are its writer's, not texts'.

    GLUE's files have quotes as characters; pandas and Excel write them around fields.
    """
    if not _QUOTED_FIELD.search(text):
        return False
    plain = [line for _, line in _tsv(text, 1)]
    header = plain[0]
    try:
        with _long_fields():
            reader = csv.reader(io.StringIO(text, newline=""), "excel-tab", strict=True)
            parsed = [record for record in reader if record]
        problem = None
    except csv.Error as error:
        parsed, problem = [], f"line {reader.line_num}: {error}"
    is_quoted = all(_in_quotes(name) for name in header) or (
        {len(record) for record in parsed} == {len(header)}
        and _shows_quoting(plain, parsed)
    )
    share = sum(any(map(_in_quotes, line)) for line in plain[1:]) / len(plain)
    if is_quoted:
        notify(f'{path}: fields in quotes are read without them, and "" within as "')
    elif share > 0.5:
        notify(
            f"warning: {path}: quotes are read as characters of the texts"
            + (f", as {problem}" if problem else "")
        )
    return is_quoted


def _shows_quoting(plain: Sequence[list[str]], parsed: Sequence[list[str]]) -> bool:
    """Return whether a .tsv that is valid with quoting is not meant without it."""
    plain = [line for line in plain if line != [""] or len(plain[0]) == 1]
    if {len(line) for line in plain} != {len(plain[0])}:
        return True  # quotes join parts of lines, or lines
    if len(plain) != len(parsed):
        return False  # a line can begin with a quote, and a later one end with one
    pairs = zip(plain[1:], parsed[1:], strict=True)
    doubled = any(
        raw.startswith('"') and '"' in value
        for line, record in pairs
        for raw, value in zip(line, record, strict=True)
    )
    columns = zip(*plain[1:], strict=True)
    return doubled or (len(plain) > 2 and any(all(map(_in_quotes, c)) for c in columns))


def _in_quotes(field: str) -> bool:
    return len(field) > 1 and field[0] == field[-1] == '"'


def _tsv(text: str, first: int) -> Iterator[_Record]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    # Drop empty lines at the end. With one column an empty line is an empty text.
    while "\t" in lines[0] and not lines[-1].removesuffix("\r"):
        lines.pop()
    for number, line in enumerate(lines, first):
        yield range(number, number + 1), line.removesuffix("\r").split("\t")


def _csv(
    text: str, first: int, path: str, separator: str, log: DataErrorLog
) -> Iterator[_Record]:
    file, line = io.StringIO(text, newline=""), first
    reader = csv.reader(file, delimiter=separator, strict=True)
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            last = reader.line_num + first - 1
            detail = f"{error}, in the row from here to line {last}"
            remedy = 'Quote a field with commas or quotes as "...", its quotes as ""'
            log.add(DataError(path, line, "broken quoting", detail, remedy))
            yield range(line, last + 1), None
        else:
            if record:
                yield range(line, reader.line_num + first), record
        line = reader.line_num + first


def _named(
    records: Iterator[_Record],
    path: str,
    log: DataErrorLog,
    names: Sequence[str] | None,
    bad: frozenset[int],
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the valid records, and report those of another width."""
    for lines, record in records:
        readable = record is not None and bad.isdisjoint(lines)
        if names is None:
            names = _header(record if readable else None, f"{path}:{lines[0]}")
        elif readable and len(record) == len(names):
            yield lines[0], dict(zip(names, record, strict=True))
        elif readable:
            kind = "another number of columns"
            detail = f"{len(record)} columns, not {len(names)}"
            if record == [""]:
                detail = f"an empty line, not {len(names)} columns"
            remedy = "Check the separators of that line"
            log.add(DataError(path, lines[0], kind, detail, remedy))


def _header(record: list[str] | None, place: str) -> list[str]:
    if record is None:
        raise InputError(
            "The first line must name the columns",
            f"{place}, unreadable",
            "Correct the line",
        )
    counts = collections.Counter(filter(None, record))
    repeated = {name for name, count in counts.items() if count > 1}
    if repeated:
        raise InputError(
            "Column names must be unique",
            f"{place}, with several columns {format_list(sorted(repeated))}",
            "Rename all but one of them",
        )
    return record
