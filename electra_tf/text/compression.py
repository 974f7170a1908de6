"""Text files, plain and compressed, recognised by the suffixes of their names."""

import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable
from typing import BinaryIO

from electra_tf.text.file_formats import HEAD_BYTES, check_format

COMPRESSED = (".gz", ".xz")
"""Suffixes of the supported compressions."""
SUFFIXES = ("", *COMPRESSED)
"""Compressed suffixes, and the empty suffix of a plain file."""
BROKEN = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)
"""Exceptions raised while reading a truncated or invalid archive."""
_XZ_MEMORY = 1 << 27  # bytes; `xz -9` needs half of it
_BLOCK = 1 << 16  # bytes


def open_compressed(path: str | os.PathLike, file: BinaryIO | None = None) -> BinaryIO:
    """Open a text file for reading and decompress it if its suffix requires that.

    Returns:
        A stream of the decompressed bytes, whose lines end with a line feed; reading
        may raise one of `BROKEN`.
    """
    suffix = os.path.splitext(path)[1].lower()
    is_compressed = suffix in COMPRESSED
    if is_compressed:
        _check_archive(path, suffix, file)
    stream = _OPENERS.get(suffix, _open_plain)(file or path, "rb")
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


def _check_archive(path: str | os.PathLike, suffix: str, file: BinaryIO | None) -> None:
    """Raise an error for a compressed file of another kind than its suffix."""
    if file is None:
        with open(path, "rb") as own:
            head = own.read(HEAD_BYTES)
    else:
        head = file.peek(HEAD_BYTES)
    if not head.startswith(_MAGIC[suffix]):
        check_format(path, head, is_decompressed=False)


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


def _open_plain(file: BinaryIO | str | os.PathLike, mode: str) -> BinaryIO:
    return file if hasattr(file, "read") else open(file, mode)


def _open_xz(file: BinaryIO | str | os.PathLike, mode: str) -> BinaryIO:
    is_open = hasattr(file, "read")
    return io.BufferedReader(_XzFile(file if is_open else open(file, mode), is_open))


class _XzFile(io.RawIOBase):
    """Decompressed bytes of an .xz file; `lzma.open` has no limit of memory.

    The dictionary of a file may have up to 4 GB, whatever the file's own size.
    """

    def __init__(self, file: BinaryIO, is_shared: bool):
        super().__init__()
        self._file, self._is_shared = file, is_shared
        self._decoder = _decoder()
        self._is_between = False  # one file may have several streams

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while True:
            data = b""
            if self._decoder.eof:
                data = self._decoder.unused_data
                self._decoder, self._is_between = _decoder(), True
            if self._decoder.needs_input and not data:
                data = self._file.read(_BLOCK)
                if not data:
                    if self._is_between:
                        return 0
                    raise EOFError("the file ends within a compressed stream")
            if self._is_between:
                data = data.lstrip(b"\0")  # padding of streams
                if not data:
                    continue
                self._is_between = False
            output = self._decoder.decompress(data, max_length=len(buffer))
            if output:
                buffer[: len(output)] = output
                return len(output)

    def close(self) -> None:
        if not self.closed and not self._is_shared:
            self._file.close()
        super().close()


def _decoder() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(memlimit=_XZ_MEMORY)


_OPENERS: dict[str, Callable[..., BinaryIO]] = {".gz": gzip.open, ".xz": _open_xz}
_MAGIC = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ"}
