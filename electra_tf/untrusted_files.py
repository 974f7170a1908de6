"""Read small files, JSON and checksums of files that may come from strangers."""

import json
import os
import pathlib
import struct
from typing import Any

import google_crc32c
import numpy as np

from electra_tf.errors import InputError, report_damage

_MAX_BYTES = 1 << 25  # the tokenizer.json of the largest vocabularies
_MAX_VALUES = 6_000_000  # parsed, a value may take 20 times its bytes


def read_json(path: str | os.PathLike) -> dict[str, Any]:
    """Return the object in a JSON file."""
    with report_damage(os.fspath(path)):
        value = parse_small_json(read_small_file(path, _MAX_BYTES), os.fspath(path))
        if isinstance(value, dict):
            return value
        raise ValueError(f"a JSON {type(value).__name__}, not an object")


def parse_small_json(content: bytes, place: str) -> Any:
    """Parse JSON of a stranger, whose number of values is checked first."""
    if sum(map(content.count, (b"[", b"{", b","))) > _MAX_VALUES:
        raise InputError(f"{place} has more than {_MAX_VALUES:,} values")
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
        size = path.stat().st_size
        raise InputError(f"{path} has {size:,} bytes; at most {limit:,} are read")
    return content


def masked_crc(data: bytes | np.ndarray) -> bytes:
    """Return the checksum of TensorFlow's files for some bytes."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
