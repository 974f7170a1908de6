"""Read records of JSON, and lines of text, each with the number of its line."""

import io
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks.data.files import STANDARD_INPUT, opened
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.delimited import Lines
from electra_tf.text.files import encoding_remedy
from electra_tf.text.rows import begins_json, describe_json, is_json, json_rows
from electra_tf.untrusted_files import parse_json

TEXT = "text"
"""Column of the lines of a text."""
Records = Iterator[tuple[int, dict[str, Any]]]
"""Number of the line on which each record begins, and the record."""
Values = Iterator[tuple[int, str, Any]]
"""Number of the first line of each value of JSON, its text, and the value."""


def read_json(path: str, log: DataErrorLog) -> Iterator[tuple[int, Any]]:
    """Yield the values of a JSON file, each with the number of its first line."""
    with opened(path) as file:
        yield from _values(file, path, log)


def read_lines_or_objects(path: str | None, log: DataErrorLog) -> Records:
    """Yield the lines of a file or of standard input, as `line_records` does."""
    with opened(path) as file:
        yield from line_records(file, path or STANDARD_INPUT, log)


def json_records(file: Iterable[bytes], source: str, log: DataErrorLog) -> Records:
    """Yield the objects of a list, one on each line, or one of several lines.

    A string is a record with a text.
    """
    for number, value in _values(file, source, log):
        if isinstance(value, str):
            value = {TEXT: value}
        if isinstance(value, dict):
            yield number, value
        else:
            detail = f"{describe_json(value)}, not an object"
            log.add(source, number, "invalid JSON", detail, "Write it as an object")


def _values(
    file: Iterable[bytes], source: str, log: DataErrorLog
) -> Iterator[tuple[int, Any]]:
    lines = Lines(file)
    for number, text, value in _parsed(iter(lines), source, log):
        if invalid := lines.invalid(text):
            log.add(source, number, "invalid UTF-8", invalid, encoding_remedy(source))
        else:
            yield number, value


def _parsed(lines: Iterator[str], source: str, log: DataErrorLog) -> Values:
    first = _to_next_text(lines)
    is_document = bool(first) and first[-1].lstrip().startswith("[")
    second = [] if is_document else _to_next_text(lines)
    if second and second[-1].strip() and not is_json(first[-1]):
        pair = first[-1].lstrip(), second[-1].lstrip()
        is_document = [line.startswith("{") for line in pair] == [True, False]
    lines = itertools.chain(first, second, lines)
    if is_document:
        yield from _document("".join(lines), source)
        return
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = parse_json(line)
        except ValueError as error:
            log.add(source, number, "invalid JSON", str(error), "Correct the line")
        else:
            yield number, line, value


def _to_next_text(lines: Iterator[str]) -> list[str]:
    """Return the next lines, to the first that is not blank."""
    taken = []
    for line in lines:
        taken.append(line)
        if line.strip():
            break
    return taken


def _document(text: str, source: str) -> Values:
    """Yield the values of a list, or one object."""
    try:
        yield from json_rows(io.StringIO(text).read)
    except ValueError as error:
        raise InputError(
            "A file of JSON must be one list or one object, or have a record on each "
            "line",
            f"{source}, invalid JSON: {error}",
            "Correct the file, or write each record as a JSON object on its own line",
        ) from error


def line_records(file: Iterable[bytes], source: str, log: DataErrorLog) -> Records:
    """Yield the text of each line, or the JSON object on it."""
    lines = Lines(file)
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if number == 1:
            _check_first(line, source)
        if invalid := lines.invalid(line):
            remedy = encoding_remedy(source)
            log.add(source, number, "invalid UTF-8", invalid, remedy)
        elif not line.startswith("{"):
            yield number, {TEXT: line}
        elif (record := _object(line, source, number, log)) is not None:
            yield number, record


def _check_first(line: str, source: str) -> None:
    """Raise an error for a part of a JSON document."""
    if begins_json(line) and not line.strip().startswith('{"'):
        raise InputError(
            "A line must be a text or a JSON object",
            f"{source}:1: {line!r:.40}, which begins a JSON list or an object of "
            "several lines",
            'Save it as .json; if it is a text, write it as {"text": "..."}',
        )


def _object(
    line: str, source: str, number: int, log: DataErrorLog
) -> dict[str, Any] | None:
    """Return the object of a line that begins with a brace, or its text."""
    try:
        return parse_json(line)
    except ValueError as error:
        if not line.startswith('{"'):  # a text may begin with a brace
            return {TEXT: line}
        remedy = 'Correct the line, or write the text itself as {"text": "..."}'
        log.add(source, number, "invalid JSON", str(error), remedy)
    return None
