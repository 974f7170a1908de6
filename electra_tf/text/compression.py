"""Text files, plain and compressed, recognised by the suffixes of their names."""

import contextlib
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable
from typing import BinaryIO

from electra_tf.text.file_formats import HEAD_BYTES, check_format

_OPENERS: dict[str, Callable[..., BinaryIO]] = {".gz": gzip.open, ".xz": lzma.open}
_MAGIC = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ"}
SUFFIXES = ("", *_OPENERS)
"""Compressed suffixes, and the empty suffix of a plain file."""
BROKEN = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)
"""Exceptions raised while reading a truncated or invalid archive."""


def open_compressed(path: str | os.PathLike, file: BinaryIO | None = None) -> BinaryIO:
    """Open a text file for reading and decompress it if its suffix requires that.

    Returns:
        A stream of the decompressed bytes, whose lines end with a line feed; reading
        may raise one of `BROKEN`.
    """
    suffix = os.path.splitext(path)[1].lower()
    is_compressed = suffix in _OPENERS
    if is_compressed:
        with open(path, "rb") if file is None else contextlib.nullcontext(file) as raw:
            if not (head := raw.peek(HEAD_BYTES)).startswith(_MAGIC[suffix]):
                check_format(path, head, is_decompressed=False)
        stream = _OPENERS[suffix](path if file is None else file, "rb")
    else:
        stream = open(path, "rb") if file is None else file  # noqa: SIM115 - returned
    try:
        head = stream.peek(HEAD_BYTES)
        check_format(path, head, is_compressed)
    except BaseException:
        if file is None:
            stream.close()
        raise
    if b"\r" in head and b"\n" not in head:
        return io.BufferedReader(_CarriageReturns(stream))
    return stream


def inner_suffix(path: str | os.PathLike) -> str:
    """Return the suffix of the decompressed file: ".csv" for "a.CSV.gz"."""
    stem, suffix = os.path.splitext(os.fspath(path).lower())
    return os.path.splitext(stem)[1] if suffix in _OPENERS else suffix


class _CarriageReturns(io.RawIOBase):
    """Bytes of a file whose lines end with carriage returns, as on old Macs."""

    def __init__(self, file: BinaryIO):
        super().__init__()
        self._file, self._is_within = file, False  # between "\r" and "\n"

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._file.read(len(buffer))
        if self._is_within and data == b"\n":
            data = self._file.read(len(buffer))
        elif self._is_within:
            data = data.removeprefix(b"\n")
        self._is_within = data.endswith(b"\r")
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
