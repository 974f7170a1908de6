"""Read files from elsewhere in bounded memory.

A small compressed file can expand to any size, a line can be endless, and a JSON of
brackets takes 20 times its size when it is parsed.
"""

import json
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from electra_tf.errors import InputError
from electra_tf.text.compression import COMPRESSED, open_compressed

MAX_LINE = 16_000_000
"""Bytes of a line, at most."""
MAX_JSON = 400_000_000
"""Bytes of a JSON document, at most."""
_EXPANDED, _RATIO = 1 << 25, 20
_ITEMS, _BYTES_PER_ITEM = 6_000_000, 2
_BLOCK = 1 << 20
_BRACKETS = re.compile(rb"[\[{,]")
_BRACKET_CHARACTERS = re.compile(r"[\[{,]")


def read_file(path: str | os.PathLike, max_line: int | None = MAX_LINE) -> bytearray:
    """Return the content of a file, decompressed if its suffix requires that.

    Args:
        path: A plain file, .gz or .xz.
        max_line: Bytes of a line, at most; None: a document of at most `MAX_JSON`
            bytes.

    Returns:
        All bytes.
    """
    limit = _expansion(path)
    if max_line is None:
        limit = min(limit or MAX_JSON, MAX_JSON)
    content, line, line_start = bytearray(), 1, 0
    with open_compressed(path) as file:
        while block := file.read(_BLOCK):
            if limit is not None and len(content) + len(block) > limit:
                raise _too_large(path, limit)
            start = len(content)
            content += block
            if max_line is None:
                continue
            end = content.find(b"\n", start)
            if (end if end >= 0 else len(content)) - line_start > max_line:
                raise long_line(path, line, max_line)
            if end >= 0:
                line += block.count(b"\n")
                line_start = content.rfind(b"\n", start) + 1
    return content


def read_lines(
    path: str | os.PathLike, max_line: int = MAX_LINE
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that is decompressed if its suffix requires that.

    Args:
        path: A plain file, .gz or .xz.
        max_line: Bytes of a line, at most.

    Yields:
        The number of the line, from 1, and its bytes with the newline.
    """
    limit, size = _expansion(path), 0
    with open_compressed(path) as file:
        number = 0
        while line := file.readline(max_line + 1):
            number += 1
            size += len(line)
            if len(line) > max_line:
                raise long_line(path, number, max_line)
            if limit is not None and size > limit:
                raise _too_large(path, limit)
            yield number, line


def read_small_file(path: str | os.PathLike, limit: int) -> bytes:
    """Return the content of a regular file of limited size.

    Args:
        path: Not a pipe or a device, which may have no end.
        limit: Bytes, at most.
    """
    path = pathlib.Path(path)
    if path.exists() and not path.is_file():
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


def parse_json(
    text: str | bytes | bytearray, place: str, most: int = _ITEMS, strict: bool = True
) -> Any:
    """Parse JSON without more objects than memory allows."""
    if len(text) > most:  # counted only where there can be so many
        brackets = _BRACKET_CHARACTERS if isinstance(text, str) else _BRACKETS
        count = sum(1 for _ in brackets.finditer(text))
        check_items(count, place, most)
    try:
        return json.loads(text, strict=strict)
    except RecursionError as error:
        raise ValueError("too many brackets within brackets") from error


def max_items(path: str | os.PathLike) -> int:
    """Return the number of values that a file may hold."""
    return _ITEMS + os.stat(path).st_size // _BYTES_PER_ITEM


def check_items(count: int, place: str, most: int) -> None:
    """Raise an error for a file of more values than its size explains."""
    if count > most:
        raise InputError(
            f"A file must hold at most {most:,} values: {_ITEMS:,}, and one for each "
            f"{_BYTES_PER_ITEM} bytes on the disk",
            f"{place}, with more",
            "Check that it is the right file; decompress or split it",
        )


def long_line(path: str | os.PathLike, number: int, limit: int) -> InputError:
    """Return the error for a line that is too long.

    Args:
        path: The file.
        number: The line, from 1.
        limit: Bytes, at most.
    """
    return InputError(
        f"A line must have at most {limit:,} bytes",
        f"{os.fspath(path)}, line {number}, which is longer",
        "Check that it is the right file, and break the line",
    )


def _expansion(path: str | os.PathLike) -> int | None:
    """Return the bytes that a compressed file may expand to; None for a plain file."""
    if os.path.splitext(path)[1].lower() not in COMPRESSED:
        return None
    return _EXPANDED + _RATIO * os.stat(path).st_size


def _too_large(path: str | os.PathLike, limit: int) -> InputError:
    return InputError(
        f"A file that is read into memory must have at most {limit:,} bytes, "
        "decompressed",
        f"{os.fspath(path)} of {os.stat(path).st_size:,} bytes, which is larger",
        "Check that it is the right file; decompress or split it",
    )
