"""Parse the records of JSON: values on lines, the items of one list, or one object."""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

from electra_tf.errors import InputError, format_list
from electra_tf.text.data_errors import DataError, DataErrorLog
from electra_tf.text.json_file import parse_json

SUFFIXES = (".jsonl", ".ndjson", ".json")
_BETWEEN = re.compile(r"[\s,]*")


def json_values(
    text: str, path: str, log: DataErrorLog, bad: Collection[int] = frozenset()
) -> Iterator[tuple[int, Any]]:
    """Yield the values of a text, each with the number of its first line."""
    start = re.search(r"\S", text).start()
    document = _document(text, start, path)
    if text[start] == "[":
        yield from _items(text, start, path, bad)
    elif document is not None:
        if not bad:
            yield 1, document
    else:
        yield from _lines(text, path, log, bad)


def begins_json(line: str) -> bool:
    """Return whether the first line of a file is JSON, or begins an indented value."""
    line = line.removeprefix("\ufeff").strip()
    if line in ("[", "{"):
        return True
    try:
        return line.startswith(('{"', "[{", '["')) and bool(parse_json(line))
    except ValueError:
        return False


def describe_json(value: Any) -> str:
    """Describe a value of JSON, for a message."""
    if isinstance(value, dict):
        return f"an object with the keys {format_list(value) or 'none'}"
    return f"{type(value).__name__} {value!r:.60}"


def _document(text: str, start: int, path: str) -> dict[str, Any] | None:
    """Return the object that a text is; None for lines of objects."""
    end = text.find("\n", start)
    if text[start] != "{" or end < 0:
        return None
    try:
        parse_json(text[start:end])
    except ValueError:
        if text[end:].lstrip().startswith("{"):
            return None
        return _whole(
            text, path, "A file that begins with '{' alone must be one object"
        )
    return None


def _whole(text: str, path: str, rule: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise InputError(
            rule,
            f"{path}, invalid JSON: {error}",
            "Correct the file, or write each record as a JSON object on its own line",
        ) from error


def _items(
    text: str, start: int, path: str, bad: Collection[int]
) -> Iterator[tuple[int, Any]]:
    values = _whole(text, path, "A file that begins with '[' must be one JSON list")
    decoder, position = json.JSONDecoder(), start + 1
    line = 1 + text.count("\n", 0, position)
    for value in values:
        begin = _BETWEEN.match(text, position).end()
        line += text.count("\n", position, begin)
        _, position = decoder.raw_decode(text, begin)
        last = line + text.count("\n", begin, position)
        if not bad or not any(number in bad for number in range(line, last + 1)):
            yield line, value
        line = last


def _lines(
    text: str, path: str, log: DataErrorLog, bad: Collection[int]
) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or number in bad:
            continue
        try:
            yield number, parse_json(line)
        except ValueError as error:
            remedy = "Correct the line"
            log.add(DataError(path, number, "invalid JSON", str(error), remedy))
