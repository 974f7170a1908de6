"""Parse the records of JSON: values on lines, the items of one list, or one object."""

import io
import json
from collections.abc import Iterator
from typing import Any

from electra_tf.errors import InputError, format_list
from electra_tf.text.data_errors import DataError, DataErrorLog
from electra_tf.text.rows import json_rows

SUFFIXES = (".jsonl", ".ndjson", ".json")


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
                log.add(DataError(path, number, kind, str(error), remedy))
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
