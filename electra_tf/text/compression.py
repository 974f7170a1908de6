"""Files that may be compressed, as the endings of their names say."""

import gzip
import lzma
import os
import zlib
from collections.abc import Callable
from typing import BinaryIO

SUFFIXES = ("", ".gz", ".xz")
"""Endings of a file that is read as if it were not compressed."""
BROKEN = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)
"""What reading an archive raises that ends too soon or is none."""
_OPENERS: dict[str, Callable[..., BinaryIO]] = {".gz": gzip.open, ".xz": lzma.open}


def open_compressed(path: str | os.PathLike, file: BinaryIO | None = None) -> BinaryIO:
    """Opens what a file holds.

    Args:
        path: Its name, whose ending tells how it is compressed, if it is.
        file: The same file, where it is open already, to be closed by the caller.

    Returns:
        Its bytes; reading them may raise `BROKEN`.

    Raises:
        OSError: It cannot be opened.
    """
    opener = _OPENERS.get(os.path.splitext(path)[1].lower())
    if opener:
        return opener(file or path, "rb")
    return file or open(path, "rb")


def inner_suffix(path: str | os.PathLike) -> str:
    """The ending that tells what a file holds: ".csv" for "a.csv.gz", in lower case."""
    stem, ending = os.path.splitext(os.fspath(path).lower())
    return os.path.splitext(stem)[1] if ending in _OPENERS else ending
