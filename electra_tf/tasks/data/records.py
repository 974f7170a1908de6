"""Read records of JSON and of TFDS, and lines of text, each with its number."""

import io
import itertools
from collections.abc import Iterator
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks.data.files import STANDARD_INPUT, TFDS, opened
from electra_tf.text.data_errors import data_error
from electra_tf.text.delimited import Lines
from electra_tf.text.files import ENCODING_REMEDY, load_tfds
from electra_tf.text.rows import (
    RECORDS_REMEDY,
    begins_json,
    describe_json,
    is_by_columns,
    is_json,
    json_rows,
)
from electra_tf.untrusted_files import parse_json

TEXT = "text"  # column of the lines of a text


Records = Iterator[tuple[int, dict[str, Any]]]  # line on which each begins, and record


def _read_json(path: str) -> Iterator[tuple[int, Any]]:
    """Yield the values of a JSON file, each with the number of its first line."""
    with opened(path) as file:
        lines = Lines(file)
        for number, text, value in _values(iter(lines), path):
            _require_utf8(lines, text, path, number)
            yield number, value


def _require_utf8(lines: Lines, text: str, source: str, number: int) -> None:
    if invalid := lines.invalid(text):
        raise data_error(source, number, "invalid UTF-8", invalid, ENCODING_REMEDY)


def json_records(path: str) -> Records:
    """Yield the objects of a list or of lines, or the only one; a string is a text."""
    for number, value in _read_json(path):
        if is_by_columns(value):
            detail = f"{describe_json(value)}, not a row"
            raise data_error(path, number, "a table by columns", detail, RECORDS_REMEDY)
        if isinstance(value, dict):
            yield number, value
        elif isinstance(value, str):
            yield number, {TEXT: value}
        else:
            detail = f"{describe_json(value)}, not an object"
            raise data_error(path, number, "invalid JSON", detail)


def _values(lines: Iterator[str], path: str) -> Iterator[tuple[int, str, Any]]:
    """Yield the number of the first line of each value, its text, and the value."""
    first = _to_next_text(lines)
    is_document = bool(first) and first[-1].lstrip().startswith("[")
    second = [] if is_document else _to_next_text(lines)
    if second and second[-1].strip() and not is_json(first[-1]):
        pair = first[-1].lstrip(), second[-1].lstrip()
        is_document = [line.startswith("{") for line in pair] == [True, False]
    lines = itertools.chain(first, second, lines)
    if is_document:
        try:
            yield from json_rows(io.StringIO("".join(lines)).read)
        except ValueError as error:
            raise InputError(
                f"{path} must be one list or one object of JSON, or have a record on "
                f"each line: invalid JSON, {error}"
            ) from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                value = parse_json(line)
            except ValueError as error:
                raise data_error(path, number, "invalid JSON", str(error)) from error
            yield number, line, value


def _to_next_text(lines: Iterator[str]) -> list[str]:
    """Return the next lines, to the first that is not blank."""
    taken = []
    for line in lines:
        taken.append(line)
        if line.strip():
            break
    return taken


def read_lines_or_objects(path: str | None) -> Records:
    """Yield the text of each line of a file or standard input, or its JSON object."""
    source = path or STANDARD_INPUT
    with opened(path) as file:
        lines = Lines(file)
        for number, line in enumerate(lines, 1):
            line = line.rstrip("\r\n")
            if number == 1 and begins_json(line) and not line.strip().startswith('{"'):
                raise InputError(
                    f"{source}:1: a line must be a text or a JSON object, and "
                    f"{line!r:.40} begins other JSON; save it as .json, or write a "
                    "text "
                    'as {"text": "..."}'
                )
            _require_utf8(lines, line, source, number)
            record = {TEXT: line}
            try:
                record = parse_json(line) if line.startswith("{") else record
            except ValueError as error:
                if line.startswith('{"'):  # another text may begin with a brace
                    remedy = 'write a text as {"text": "..."}'
                    error = data_error(
                        source, number, "invalid JSON", str(error), remedy
                    )
                    raise error from None
            yield number, record


def tfds_records(source: str) -> Records:
    """Yield the rows of `tfds:NAME@SPLIT`; labels have their names, -1 is missing."""
    name, _, split = source.removeprefix(TFDS).partition("@")
    dataset, info = load_tfds(name, split)
    for number, row in enumerate(dataset.as_numpy_iterator(), 1):
        features = info.features
        yield number, {key: _plain(item, features[key]) for key, item in row.items()}


def _plain(value: Any, feature: Any) -> Any:
    """Return a value of TFDS as one of JSON."""
    import numpy as np

    feature = getattr(feature, "feature", feature)  # of a sequence
    if isinstance(value, dict):
        return {name: _plain(one, feature[name]) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return [_plain(one, feature) for one in value]
    if isinstance(value, bytes):
        return value.decode()
    if hasattr(feature, "int2str"):
        return feature.int2str(int(value)) if value >= 0 else None
    # 3.8 of 32 bits is 3.7999999523 of 64.
    return float(str(value)) if isinstance(value, np.floating) else value.item()
