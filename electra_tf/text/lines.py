"""Read the lines of text files, of which some may be long or no UTF-8."""

import codecs
import contextlib
import functools
import io
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from electra_tf.text.files import BROKEN, ENCODING_REMEDY

MAX_ROW_SIZE = 64_000_000
"""Bytes of a line or characters of a row, at most; a row holds a whole document."""
BLOCK = 1 << 16
"""Bytes or characters that are read at once."""


class OpenFile(NamedTuple):
    """An open file."""

    path: str
    """Its suffix determines the format."""
    file: BinaryIO
    report: Callable[..., None]
    """Function of number, kind, detail and optionally remedy of a bad row; 0: of the
    whole file."""
    choose: Callable[[list[str]], Sequence[str]] = list
    """Function of the columns of a file that returns those to read.

    It is not called for JSON, whose rows may have other keys than the first one."""
    names: Sequence[str] | None = None
    """Columns of a .csv or .tsv without header."""

    def report_broken(self, error: Exception) -> None:
        """Report that a compressed file cannot be read to its end."""
        self.report(0, "broken archive", f"{error}; the text before it was read")


def read_lines(source: OpenFile, limit: int) -> Iterator[tuple[int, str, bool]]:
    """Yield number and text of each line, with its end, and whether it is a part.

    A line of more characters than the limit is reported, and yielded in parts that end
    between words. Bytes that are not UTF-8 become surrogates, which `invalid_bytes`
    describes.
    """
    number, rest, is_part = 1, "", False
    with decoded(source.file) as file:
        try:
            for text in iter(functools.partial(file.readline, limit), ""):
                text, rest = rest + text, ""
                if is_line := text.endswith("\n") or len(text) < limit:
                    yield number, text, is_part
                    number += 1
                else:
                    border = text.rfind(" ") + 1 or len(text)
                    text, rest = text[:border], text[border:]
                    if not is_part:
                        detail = (
                            f"over {limit:,} characters; read in parts of that size"
                        )
                        source.report(number, "long line", detail)
                    yield number, text, True
                is_part = not is_line
        except BROKEN as error:
            source.report_broken(error)
    if rest:
        yield number, rest, True


@contextlib.contextmanager
def decoded(file: BinaryIO) -> Iterator[io.TextIOWrapper]:
    """Yield a file as text, with surrogates for bytes that are not UTF-8."""
    text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="\n")
    try:
        yield text
    finally:
        if not file.closed:
            text.detach()  # the file stays open


class Lines:
    """Lines with their ends, and surrogates for bytes that are not UTF-8.

    A line over `MAX_ROW_SIZE` is reported, and empty.
    """

    def __init__(self, source: OpenFile):
        self._source = source
        self.size = 0
        """Bytes read; the user sets it back."""
        self.is_bad = False
        """True after a line with invalid bytes."""

    def __iter__(self) -> Iterator[str]:
        file, report = self._source.file, self._source.report
        readline = functools.partial(file.readline, MAX_ROW_SIZE)
        try:
            if file.peek(3).startswith(codecs.BOM_UTF8):
                file.read(3)
            for number, line in enumerate(iter(readline, b""), 1):
                size = len(line)
                if size == MAX_ROW_SIZE and not line.endswith(b"\n"):
                    report(number, "long line", f"over {size:,} bytes; not read")
                    while len(line) == MAX_ROW_SIZE and not line.endswith(b"\n"):
                        line = readline()
                    line = b"\n"
                self.size += size
                try:
                    text = line.decode()
                except UnicodeDecodeError:
                    text = line.decode("utf-8", "surrogateescape")
                    self.is_bad = True
                yield text
        except BROKEN as error:
            self._source.report_broken(error)


def invalid_bytes(text: str) -> str:
    """Describe the first byte of a text that is not UTF-8; empty: there is none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"byte 0x{ord(text[error.start]) - 0xDC00:02X}"
    return ""


def numbered_lines(source: OpenFile) -> Iterator[tuple[int, str]]:
    """Yield numbers and texts of lines without their ends; report invalid bytes."""
    for number, line in enumerate(Lines(source), 1):
        if invalid := invalid_bytes(line):
            source.report(number, "invalid UTF-8", invalid, ENCODING_REMEDY)
        yield number, line.rstrip("\r\n")
