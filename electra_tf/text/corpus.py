"""Read text files, tables, JSON and TFDS data sets as documents of lines."""

import codecs
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

from tqdm import tqdm

from electra_tf.config.data import CorpusConfig
from electra_tf.errors import InputError
from electra_tf.text import files
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.delimited import DELIMITED_SUFFIXES, DelimitedReader
from electra_tf.text.parquet import ParquetReader
from electra_tf.text.rows import (
    JSON_SUFFIXES,
    RECORDS_REMEDY,
    is_by_columns,
    json_rows,
)

MAX_LINE_BYTES = 1_000_000
_MAX_DOCUMENT_CHARACTERS = 16_000_000
_SAMPLE_BYTES = 8192
_CONTROL_BYTES = bytes([*range(9), *range(14, 27), *range(28, 32), 127])
# First bytes of a list of objects or an object over several lines, and of JSON lines.
_JSON_VALUES = re.compile(rb"\[\s*\{|\{[ \t\r]*\n")
_JSON_LINES = re.compile(rb'\{\s*"(?:[^"\\]|\\.)*"\s*:')
_UNDECODED = re.compile("[\udc80-\udcff]")  # surrogates that stand for invalid bytes
_COMPRESSION = {".gz": 3.0, ".xz": 4.0, ".parquet": 2.0}  # typical, for estimates
_REMEDIES = {
    "invalid UTF-8": files.ENCODING_REMEDY,
    "row without text": "write a string in the field, or pass another --field",
}


class Document(NamedTuple):
    """Consecutive lines of one text, stripped and not blank."""

    source: str
    line: int
    """Number of the first line or of the row, from 1."""
    lines: list[str]


class CorpusReader:
    """Iterate over the documents of files and data sets, in a fixed order.

    To bound memory, documents of more than 16 million characters are split at a line
    end. Objects at URLs are copied to local files, or with `fetch` false read where
    they are.
    """

    def __init__(
        self,
        patterns: Iterable[str],
        settings: CorpusConfig,
        error_log: DataErrorLog,
        fetch: bool = True,
    ):
        self.sources = files.expand(patterns, fetch)
        self._settings = settings
        self._log = error_log
        self._finished_bytes = 0
        self._position: Callable[[], int] = int
        # Opened here, so that a missing data set is an error before any text is read.
        self._tfds = {s: files.TfdsSource(s) for s in self.sources if files.is_tfds(s)}
        self._sizes = {
            s: self._tfds[s].bytes if s in self._tfds else files.source_size(s)
            for s in self.sources
        }

    @property
    def total_bytes(self) -> int:
        """Bytes of all files on the disk."""
        return sum(self._sizes.values())

    @property
    def position_bytes(self) -> int:
        """Number of `total_bytes` read so far."""
        return self._finished_bytes + self._position()

    @property
    def estimated_text_bytes(self) -> int:
        """Estimated size of the decompressed text."""
        sizes = self._sizes.items()
        return int(sum(n * _COMPRESSION.get(_suffix(s), 1.0) for s, n in sizes))

    def __iter__(self) -> Iterator[Document]:
        for source in self.sources:
            read = self._data_set if source in self._tfds else self._file
            empty, errors = True, self._log.counts.total()
            for document in read(source):
                empty = False
                yield document
            if empty and self._log.counts.total() == errors:
                self._report(source, 0, "empty file", "no text in it")
            self._finished_bytes += self._sizes[source]
            self._position = int  # 0 bytes of the next source

    def _file(self, path: str) -> Iterator[Document]:
        with files.open_source(path) as raw:
            self._position = raw.tell
            if _suffix(path) == ".parquet":
                yield from self._column(path, ParquetReader(raw, path, self._log))
            elif opened := self._open_text(path, raw):
                stream, head = opened
                kind = files.inner_suffix(path)
                if kind in DELIMITED_SUFFIXES:
                    lines = iter(lambda: self._read(path, stream.readline, -1), b"")
                    reader = DelimitedReader(lines, path, self._log)
                    yield from self._column(path, reader)
                    return
                if _JSON_VALUES.match(head) or (kind, head[:1]) == (".json", b"["):
                    read = self._json_values
                elif kind in JSON_SUFFIXES or _JSON_LINES.match(head):
                    read = self._json_lines
                else:
                    read = self._plain
                yield from read(path, stream)

    def _open_text(self, path: str, raw: BinaryIO) -> tuple[BinaryIO, bytes] | None:
        """Return a text file and its first bytes; report another and return None."""
        try:
            stream = files.open_compressed(path, raw)
            sample = stream.peek(_SAMPLE_BYTES)[:_SAMPLE_BYTES]
            head = sample.removeprefix(codecs.BOM_UTF8).lstrip()
            files.check_markup(path, files.inner_suffix(path), head)
        except files.BROKEN as error:
            self._report_broken(path, error)
            return None
        except files.FileFormatError as error:
            self._log.add(path, 0, "another format", f"{error.name}; file not read")
            return None
        controls = len(sample) - len(sample.translate(None, _CONTROL_BYTES))
        bad = controls + sample[:-3].decode("utf-8", "replace").count("\ufffd")
        if bad <= 8 or bad <= 0.1 * len(sample):
            return stream, head
        share = f"{bad / len(sample):.0%} of its first bytes"
        detail = f"{share} are control or invalid bytes; file not read"
        self._report(path, 0, "binary file", detail)
        return None

    def _report(self, source: str, line: int, kind: str, detail: str) -> None:
        self._log.add(source, line, kind, detail, _REMEDIES.get(kind, ""))

    def _report_broken(self, path: str, error: Exception) -> None:
        detail = f"{error}; the text before it was read"
        self._report(path, 0, "broken archive", detail)

    def _read(self, path: str, read: Callable[[int], bytes], size: int) -> bytes:
        """Return the result of reading; nothing at the damaged part of an archive."""
        try:
            return read(size)
        except files.BROKEN as error:
            self._report_broken(path, error)
            return b""

    def _lines(
        self, path: str, stream: BinaryIO, limit: int = -1
    ) -> Iterator[tuple[int, str]]:
        """Yield numbered, decoded lines; a line over the limit is split into parts."""
        number, rest, is_continued = 1, b"", False
        while raw := rest + self._read(path, stream.readline, limit):
            rest, is_complete = b"", raw.endswith(b"\n")
            is_cut = not is_complete and len(raw) >= limit > 0
            if is_cut:
                # Split between words, or else between characters.
                border = raw.rfind(b" ") + 1
                border = border or codecs.utf_8_decode(raw, "ignore", False)[1]
                raw, rest = raw[:border], raw[border:]
            if is_cut and not is_continued:
                detail = f"over {limit} bytes; read in parts of that size"
                self._report(path, number, "long line", detail)
            text = self._decode(path, number, raw)
            if number == 1 and not is_continued:
                text = text.removeprefix("\ufeff")
            # A blank part of a long line is not a blank line.
            if text.strip() or not (is_cut or is_continued):
                yield number, text
            is_continued = is_cut
            number += is_complete

    def _decode(self, source: str, number: int, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            detail = f"byte {error.start} of the line; invalid bytes dropped"
            self._report(source, number, "invalid UTF-8", detail)
            return raw.decode("utf-8", "ignore")

    def _plain(self, path: str, stream: BinaryIO) -> Iterator[Document]:
        lines = self._lines(path, stream, MAX_LINE_BYTES)
        checked = ((number, self._check_nul(path, number, t)) for number, t in lines)
        yield from _documents(path, checked, self._settings.documents)

    def _check_nul(self, source: str, number: int, text: str) -> str:
        if "\0" in text:
            self._report(source, number, "NUL", "dropped from the text")
        return text

    def _json_lines(self, path: str, stream: BinaryIO) -> Iterator[Document]:
        for number, row in self._lines(path, stream):
            if not row.strip():
                continue
            try:
                value = json.loads(row, strict=False)
            except (ValueError, RecursionError) as error:
                self._report(path, number, "invalid JSON", f"{error}; row not read")
            else:
                yield from self._row(path, number, value)

    def _json_values(self, path: str, stream: BinaryIO) -> Iterator[Document]:
        decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode

        def read(size: int) -> str:
            data = self._read(path, stream.read, size)
            return decode(data, not data)

        number = 0
        try:
            for number, (_, text, row) in enumerate(json_rows(read), 1):
                if _UNDECODED.search(text):
                    detail = f"in row {number}; invalid bytes dropped"
                    self._report(path, number, "invalid UTF-8", detail)
                    row = json.loads(_UNDECODED.sub("", text), strict=False)
                yield from self._row(path, number, row)
        except ValueError as error:
            detail = f"{error}; the {number:,} rows before it were read"
            self._report(path, number + 1, "invalid JSON", detail)

    def _column(
        self, path: str, reader: DelimitedReader | ParquetReader
    ) -> Iterator[Document]:
        field = self._settings.field
        if reader.names is None:
            return  # logged as broken
        if field not in reader.names:
            raise _missing_field(path, field, reader.names)
        for number, text in reader.column(field):
            yield from self._text(path, number, text)

    def _data_set(self, source: str) -> Iterator[Document]:
        bytes_read, field = 0, self._settings.field
        self._position = lambda: min(bytes_read, self._sizes[source])
        for number, row in enumerate(self._tfds[source], 1):
            if field not in row:
                raise _missing_field(source, field, row)
            value = row[field]
            bytes_read += len(value) if isinstance(value, bytes) else 0
            yield from self._text(source, number, value)

    def _row(self, source: str, number: int, row: Any) -> Iterator[Document]:
        """Yield the document of a value of JSON."""
        value = row.get(self._settings.field) if isinstance(row, dict) else None
        detail = f"{repr(row)[:80]}; row not read"
        if isinstance(value, list | dict) or is_by_columns(row):
            self._log.add(source, number, "row without text", detail, RECORDS_REMEDY)
        elif isinstance(row, dict) and self._settings.field in row:
            yield from self._text(source, number, value)
        else:
            self._report(source, number, "row without text", detail)

    def _text(self, source: str, number: int, text: Any) -> Iterator[Document]:
        """Yield the document of a row; newlines separate its lines."""
        if isinstance(text, bytes):
            text = self._decode(source, number, text)
        if not isinstance(text, str) or not text.strip():
            detail = f"{self._settings.field}: {text!r:.80}; row not read"
            self._report(source, number, "row without text", detail)
            return
        self._check_nul(source, number, text)
        lines = ((number, line) for line in text.split("\n"))
        yield from _documents(source, lines, "file")


def _documents(
    source: str, lines: Iterable[tuple[int, str]], end: str
) -> Iterator[Document]:
    """Group numbered lines, blank ones included, by `CorpusConfig.documents`."""
    first, group, size = 0, [], 0
    for number, text in lines:
        text = text.strip()
        if text:
            first = first if group else number
            group.append(text)
            size += len(text)
        is_end = end == "line" or (end == "blank_line" and not text)
        if group and (is_end or size > _MAX_DOCUMENT_CHARACTERS):
            yield Document(source, first, group)
            group, size = [], 0
    if group:
        yield Document(source, first, group)


def _missing_field(path: str, field: str, fields: Iterable[str]) -> InputError:
    """Return the error for a corpus without the field of its texts."""
    return InputError(
        f"{path} must have the field {field!r}, and has {', '.join(fields)}; name one "
        "of them with --field"
    )


def progress_bar(reader: CorpusReader) -> tqdm:
    """Return a progress bar over the bytes of the input, on a terminal only."""
    return tqdm(
        total=reader.total_bytes or None,
        unit="B",
        unit_scale=True,
        mininterval=0.5,
        disable=not sys.stderr.isatty(),
        nrows=20,  # tqdm shows no bar in terminals that report 0 rows
    )


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()
