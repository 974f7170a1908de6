"""Read the values of JSON in order: one on each line, one list, or one object."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from electra_tf.errors import format_list

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
"""Suffixes of JSON."""
MAX_ROW_BYTES = 64_000_000
"""Size of a row, at most; it holds a whole document."""
RECORDS_REMEDY = (
    "write an object for each row, with pandas to_json(FILE, orient='records')"
)
_BLOCK = 1 << 16  # characters
_BETWEEN = re.compile(r"[\s,\ufeff]*")


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
            rest = text[begin + 1 :]
            while rest:
                if rest.strip():
                    raise ValueError(f"text after the list, which ends on line {line}")
                rest = read(_BLOCK)
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


def is_by_columns(value: Any) -> bool:
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
