"""Plain and compressed files, recognised by the suffixes of their names."""

import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable
from typing import BinaryIO

COMPRESSED = (".gz", ".xz")
"""Suffixes of the supported compressions."""
SUFFIXES = ("", *COMPRESSED)
"""Compressed suffixes, and the empty suffix of a plain file."""
BROKEN = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)
"""Exceptions raised while reading a truncated or invalid archive."""
_XZ_MEMORY = 1 << 27  # bytes; `xz -9` needs half of it
_BLOCK = 1 << 16  # bytes


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


def _open_xz(file: BinaryIO | str | os.PathLike, mode: str) -> BinaryIO:
    is_open = hasattr(file, "read")
    return io.BufferedReader(_XzFile(file if is_open else open(file, mode), is_open))


class _XzFile(io.RawIOBase):
    """Decompressed bytes of an .xz file; `lzma.open` has no limit of memory.

    The dictionary of a file may have up to 4 GB, whatever the file's own size.

    Args:
        file: The compressed file.
        is_shared: Whether the caller closes it.
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
