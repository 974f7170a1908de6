"""Read text files, tables, JSON and TFDS data sets as documents of lines."""

import codecs
import functools
import itertools
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
from electra_tf.text.lines import OpenFile, invalid_bytes, read_lines
from electra_tf.text.rows import READERS, RECORDS_REMEDY, RowBatch, tfds_batches

MAX_LINE_CHARACTERS = 1_000_000
_MAX_DOCUMENT_CHARACTERS = 16_000_000
_SAMPLE_BYTES = 8192
_CONTROL_BYTES = bytes([*range(9), *range(14, 27), *range(28, 32), 127])
# First bytes of a list of objects or an object over several lines, and of JSON lines.
_JSON = re.compile(rb'\[\s*\{|\{[ \t\r]*\n|\{\s*"(?:[^"\\]|\\.)*"\s*:')
_COMPRESSION = {".gz": 3.0, ".xz": 4.0, ".parquet": 2.0}  # typical, for estimates


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
        self._settings, self._log = settings, error_log
        # Opened here, so that a missing data set is an error before any text is read.
        self._tfds = {s: files.TfdsSource(s) for s in self.sources if files.is_tfds(s)}
        self._sizes = {
            s: self._tfds[s].bytes if s in self._tfds else files.source_size(s)
            for s in self.sources
        }
        self._finished_bytes = 0
        self._current: BinaryIO | files.TfdsSource | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes of all files on the disk."""
        return sum(self._sizes.values())

    @property
    def position_bytes(self) -> int:
        """Number of `total_bytes` read so far."""
        current = self._current.tell() if self._current else 0
        return self._finished_bytes + current

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
                self._log.add(source, 0, "empty file", "no text in it")
            self._finished_bytes += self._sizes[source]
            self._current = None

    def _file(self, path: str) -> Iterator[Document]:
        """Yield the documents of a file: a table, JSON or plain text."""
        report = functools.partial(self._log.add, path)
        with files.open_source(path) as file:
            self._current = file
            suffix = files.inner_suffix(path)
            if suffix != ".parquet":
                file = _open_text(path, file, report)
            if file is None:
                return
            if suffix not in READERS and _JSON.match(_head(file)):
                suffix = ".json"
            source = OpenFile(path, file, report, functools.partial(self._choose, path))
            if suffix in READERS:
                yield from self._rows(path, READERS[suffix](source))
            else:
                lines = self._lines(source)
                yield from _documents(path, lines, self._settings.documents)

    def _choose(self, source: str, fields: Iterable[str]) -> list[str]:
        """Return the field of the texts, which a table must have."""
        if self._settings.field not in fields:
            raise InputError(
                f"{source} must have the field {self._settings.field!r}, and has "
                f"{', '.join(fields)}; name one of them with --field"
            )
        return [self._settings.field]

    def _lines(self, source: OpenFile) -> Iterator[tuple[int, str]]:
        """Yield numbered lines without invalid bytes."""
        for number, line, is_part in read_lines(source, MAX_LINE_CHARACTERS):
            line = self._valid(source.path, number, line)
            # A blank part of a long line is not a blank line.
            if line.strip() or not is_part:
                yield number, self._check_nul(source.path, number, line)

    def _valid(self, source: str, number: int, text: str) -> str:
        """Return a decoded text without the surrogates for invalid bytes."""
        if not (invalid := invalid_bytes(text)):
            return text
        detail = f"{invalid}; invalid bytes dropped"
        self._log.add(source, number, "invalid UTF-8", detail, files.ENCODING_REMEDY)
        return text.encode("utf-8", "ignore").decode()

    def _check_nul(self, source: str, number: int, text: str) -> str:
        if "\0" in text:
            self._log.add(source, number, "NUL", "dropped from the text")
        return text

    def _data_set(self, source: str) -> Iterator[Document]:
        self._current = rows = self._tfds[source]
        for batch in tfds_batches(rows):
            self._choose(source, batch[1])
            yield from self._rows(source, [batch])

    def _rows(self, source: str, batches: Iterable[RowBatch]) -> Iterator[Document]:
        """Yield the documents of rows."""
        field, missing = self._settings.field, itertools.repeat(None)
        for numbers, columns in batches:
            texts = columns.get(field, missing)
            for number, text in zip(numbers, texts, strict=False):
                yield from self._text(source, number, text)

    def _text(self, source: str, number: int, text: Any) -> Iterator[Document]:
        """Yield the document of a row; newlines separate its lines."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogateescape")
            text = self._valid(source, number, text)
        if not isinstance(text, str) or not text.strip():
            detail = f"{self._settings.field}: {text!r:.80}; row not read"
            remedy = "write a string in the field, or pass another --field"
            remedy = RECORDS_REMEDY if isinstance(text, list | dict) else remedy
            self._log.add(source, number, "row without text", detail, remedy)
            return
        self._check_nul(source, number, text)
        lines = ((number, line) for line in text.split("\n"))
        yield from _documents(source, lines, "file")


def _open_text(
    path: str, stored: BinaryIO, report: Callable[..., None]
) -> BinaryIO | None:
    """Return a file, decompressed; report one that is no text, and return None."""
    try:
        file = files.decompressed(path, stored)
        files.check_markup(path, files.inner_suffix(path), _head(file))
    except files.BROKEN as error:
        report(0, "broken archive", f"{error}; file not read")
        return None
    except files.FileFormatError as error:
        report(0, "another format", f"{error.name}; file not read")
        return None
    sample = file.peek(_SAMPLE_BYTES)[:_SAMPLE_BYTES]
    controls = len(sample) - len(sample.translate(None, _CONTROL_BYTES))
    bad = controls + sample[:-3].decode("utf-8", "replace").count("\ufffd")
    if bad > 8 and bad > 0.1 * len(sample):
        share = f"{bad / len(sample):.0%} of its first bytes"
        detail = f"{share} are control or invalid bytes; file not read"
        report(0, "binary file", detail)
        return None
    return file


def _head(file: BinaryIO) -> bytes:
    """Return the first bytes of a file, without white space before them."""
    sample = file.peek(_SAMPLE_BYTES)[:_SAMPLE_BYTES]
    return sample.removeprefix(codecs.BOM_UTF8).lstrip()


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
