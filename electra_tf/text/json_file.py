"""Parse JSON, and read small files that may come from strangers."""

import json
import os
import pathlib
from typing import Any

from electra_tf.errors import InputError, report_damage

_MAX_BYTES = 1 << 25  # the tokenizer.json of the largest vocabularies
_MAX_VALUES = 6_000_000  # parsed, a value may take 20 times its bytes


def read_json(path: str | os.PathLike) -> dict[str, Any]:
    """Return the object in a JSON file."""
    required = f"{os.fspath(path)!r} must be a JSON object"
    with report_damage(required, "Copy or download it again"):
        value = parse_small_json(read_small_file(path, _MAX_BYTES), os.fspath(path))
        if isinstance(value, dict):
            return value
        raise ValueError(f"a JSON {type(value).__name__}, not an object")


def parse_small_json(content: bytes, place: str) -> Any:
    """Parse JSON of a stranger, whose number of values is checked first."""
    if sum(map(content.count, (b"[", b"{", b","))) > _MAX_VALUES:
        raise InputError(
            f"A file must hold at most {_MAX_VALUES:,} values",
            f"{place}, with more",
            "Check that it is the right file",
        )
    return parse_json(content)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError for any that is invalid."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("too many brackets within brackets") from error


def read_small_file(path: str | os.PathLike, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes."""
    path = pathlib.Path(path)
    if path.exists() and not path.is_file():  # a pipe may have no end
        raise OSError(f"{str(path)!r} is no regular file")
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise InputError(
            f"{path} must have at most {limit:,} bytes",
            f"{path.stat().st_size:,} bytes",
            "Check that it is the right file",
        )
    return content
