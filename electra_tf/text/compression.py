"""Plain and compressed files, recognised by the suffixes of their names."""

import gzip
import lzma
import os
import zlib
from collections.abc import Callable
from typing import BinaryIO

SUFFIXES = ("", ".gz", ".xz")
"""Suffixes of the supported compressions; the empty one is of a plain file."""
BROKEN = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)
"""Exceptions raised while reading a truncated or invalid archive."""
_OPENERS: dict[str, Callable[..., BinaryIO]] = {".gz": gzip.open, ".xz": lzma.open}


def open_compressed(path: str | os.PathLike, file: BinaryIO | None = None) -> BinaryIO:
    """Open a file for reading and decompress it if its suffix requires that.

    Args:
        path: Path of the file; its suffix determines the compression.
        file: The same file, already open; the caller closes it.

    Returns:
        A stream of the decompressed bytes; reading may raise one of `BROKEN`.

    Raises:
        OSError: The file cannot be opened.
    """
    opener = _OPENERS.get(os.path.splitext(path)[1].lower())
    if opener:
        return opener(file or path, "rb")
    return file or open(path, "rb")


def inner_suffix(path: str | os.PathLike) -> str:
    """Return the suffix of the decompressed file: ".csv" for "a.CSV.gz"."""
    stem, suffix = os.path.splitext(os.fspath(path).lower())
    return os.path.splitext(stem)[1] if suffix in _OPENERS else suffix
