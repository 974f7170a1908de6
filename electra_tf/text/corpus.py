"""Read text files, tables, JSON and TFDS data sets as documents of lines."""

import codecs
import dataclasses
import functools
import json
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from tqdm import tqdm

from electra_tf.config.pretraining import CorpusConfig
from electra_tf.errors import InputError
from electra_tf.text.bounded_files import parse_json
from electra_tf.text.compression import BROKEN, inner_suffix, open_compressed
from electra_tf.text.data_errors import DataError, DataErrorLog
from electra_tf.text.file_formats import (
    FileFormatError,
    check_markup,
    encoding_remedy,
)
from electra_tf.text.rows import (
    MAX_ROW_BYTES,
    SEPARATORS,
    column_values,
    json_rows,
    parquet_values,
)
from electra_tf.text.sources import (
    LOCAL_FILES,
    LocalFiles,
    TfdsSource,
    expand,
    is_tfds,
)

MAX_LINE_BYTES = 1_000_000
_MAX_DOCUMENT_CHARACTERS = 16_000_000
_SAMPLE_BYTES = 8192
_CONTROL_BYTES = bytes([*range(9), *range(14, 27), *range(28, 32), 127])
_JSON = (".jsonl", ".ndjson", ".json")
# First bytes of a list of objects or an object over several lines, and of JSON lines.
_JSON_VALUES = re.compile(rb"\[\s*\{|\{[ \t\r]*\n")
_JSON_LINES = re.compile(rb'\{\s*"(?:[^"\\]|\\.)*"\s*:')
_UNDECODED = re.compile("[\udc80-\udcff]")  # surrogates that stand for invalid bytes
_COMPRESSION = {".gz": 3.0, ".xz": 4.0, ".parquet": 2.0}  # typical, for estimates


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """Consecutive lines of one text, stripped and not blank."""

    source: str
    line: int
    """Number of the first line or of the row, from 1."""
    lines: list[str]


class CorpusReader:
    """Iterate over the documents of files and data sets, in a fixed order.

    To bound memory, documents of more than 16 million characters are split at a line
    end. A row of JSONL may have up to 64 MB.
    """

    def __init__(
        self,
        patterns: Iterable[str],
        settings: CorpusConfig,
        error_log: DataErrorLog,
        files: LocalFiles = LOCAL_FILES,
    ):
        self.sources = expand(patterns, files)
        self._files = files
        self._settings = settings
        self._error_log = error_log
        self._finished_bytes = 0
        self._position: Callable[[], int] = int
        # Opened here, so that a missing data set is an error before any text is read.
        self._tfds = {s: TfdsSource(s) for s in self.sources if is_tfds(s)}
        self._sizes = {
            s: self._tfds[s].bytes if s in self._tfds else files.size(s)
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
            reader = self._data_set if source in self._tfds else self._file
            empty, errors = True, self._error_log.counts.total()
            for document in reader(source):
                empty = False
                yield document
            if empty and self._error_log.counts.total() == errors:
                remedy = "Remove it, or name a file with text"
                self._report(source, 0, "empty file", "no text in it", remedy)
            self._finished_bytes += self._sizes[source]
            self._position = int  # 0 bytes of the next source

    def _report(self, source: str, line: int, kind: str, detail: str, remedy: str):
        self._error_log.add(DataError(source, line, kind, detail, remedy))

    def _file(self, path: str) -> Iterator[Document]:
        if _suffix(path) == ".parquet":
            yield from self._parquet(path)
            return
        try:
            raw = self._files.open(path)
        except OSError as error:
            raise InputError(
                "Each file of --input must be readable",
                str(error),
                "Check its permissions",
            ) from error
        with raw:
            self._position = raw.tell
            stream = self._read(path, functools.partial(open_compressed, path), raw)
            if stream is None:
                return
            head = self._text_head(path, stream)
            if head is not None:
                yield from self._reader(path, head)(path, stream)

    def _reader(
        self, path: str, head: bytes
    ) -> Callable[[str, BinaryIO], Iterator[Document]]:
        """Return the method that reads a file of text."""
        kind = inner_suffix(path)
        if kind in SEPARATORS:
            return self._table
        if _JSON_VALUES.match(head) or (kind == ".json" and head.startswith(b"[")):
            return self._json_values
        is_lines = kind in _JSON or _JSON_LINES.match(head)
        return self._jsonl if is_lines else self._plain

    def _read(self, path: str, read: Callable[[Any], Any], argument: Any) -> Any:
        """Return the result of reading; None at the damaged part of an archive."""
        try:
            return read(argument)
        except BROKEN as error:
            self._report(
                path,
                0,
                "broken archive",
                f"{error}; the text before it was read",
                "Copy or compress it again",
            )
        except FileFormatError as error:
            self._report_format(path, error)
        return None

    def _report_format(self, path: str, error: FileFormatError) -> None:
        detail = f"{error.name}; file not read"
        self._report(path, 0, "another format", detail, error.remedy)

    def _text_head(self, path: str, stream: BinaryIO) -> bytes | None:
        """Return the first bytes of a text file; report another and return None."""
        sample = self._read(path, stream.peek, _SAMPLE_BYTES)
        if sample is None:
            return None
        sample = sample[:_SAMPLE_BYTES]
        head = sample.removeprefix(codecs.BOM_UTF8).lstrip()
        try:
            check_markup(path, inner_suffix(path), head)
        except FileFormatError as error:
            self._report_format(path, error)
            return None
        controls = len(sample) - len(sample.translate(None, _CONTROL_BYTES))
        invalid = sample[:-3].decode("utf-8", "replace").count("\ufffd")
        bad = controls + invalid
        if bad <= 8 or bad <= 0.1 * len(sample):
            return head
        self._report(
            path,
            0,
            "binary file",
            f"{bad / len(sample):.0%} of its first bytes are control or invalid bytes; "
            "file not read",
            "Leave it out of the glob if it is no text. " + encoding_remedy(path),
        )
        return None

    def _lines(
        self, path: str, stream: BinaryIO, limit: int
    ) -> Iterator[tuple[int, str]]:
        """Yield numbered, decoded lines; a line over the limit is split into parts."""
        number, rest, is_continued = 1, b"", False
        while raw := self._read(path, stream.readline, limit):
            is_complete = raw.endswith(b"\n")
            is_cut = not is_complete and len(raw) == limit
            raw, rest = rest + raw, b""
            if is_cut:
                # Split between words, or else between characters.
                border = raw.rfind(b" ") + 1
                border = border or codecs.utf_8_decode(raw, "ignore", False)[1]
                raw, rest = raw[:border], raw[border:]
            if is_cut and not is_continued:
                self._report(
                    path,
                    number,
                    "long line",
                    f"over {limit} bytes; read in parts of that size",
                    "Break it into sentences or paragraphs",
                )
            text = self._decode(path, number, raw)
            if number == 1 and not is_continued:
                text = text.removeprefix("\ufeff")
            # A blank part of a long line is not a blank line.
            if text.strip() or not (is_cut or is_continued):
                yield number, text
            is_continued = is_cut
            number += is_complete
        if rest:
            yield number, self._decode(path, number, rest)

    def _decode(self, source: str, number: int, raw: bytes) -> str:
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            text = raw.decode("utf-8", "ignore")
            self._report_undecoded(source, number, f"byte {error.start} of the line")
        return text

    def _report_undecoded(self, source: str, number: int, place: str) -> None:
        detail = f"{place}; invalid bytes dropped"
        remedy = encoding_remedy(source)
        self._report(source, number, "invalid UTF-8", detail, remedy)

    def _report_nul(self, source: str, number: int, text: str) -> None:
        if "\0" in text:
            self._report(source, number, "NUL", "dropped from the text", "Remove it")

    def _plain(self, path: str, stream: BinaryIO) -> Iterator[Document]:
        ends_at_blank = self._settings.documents == "blank_line"
        ends_at_line = self._settings.documents == "line"
        first, lines, size = 1, [], 0
        for number, text in self._lines(path, stream, MAX_LINE_BYTES):
            self._report_nul(path, number, text)
            text = text.strip()
            if text:
                if not lines:
                    first = number
                lines.append(text)
                size += len(text)
            if lines and (
                ends_at_line
                or (ends_at_blank and not text)
                or size > _MAX_DOCUMENT_CHARACTERS
            ):
                yield Document(path, first, lines)
                lines, size = [], 0
        if lines:
            yield Document(path, first, lines)

    def _jsonl(self, path: str, stream: BinaryIO) -> Iterator[Document]:
        for number, row in self._lines(path, stream, MAX_ROW_BYTES):
            if not row.strip():
                continue
            try:
                value = parse_json(row, f"{path}:{number}", strict=False)
            except ValueError as error:
                detail = f"{error}; row not read"
                remedy = "Correct the row; a file of plain text must end with .txt"
                self._report(path, number, "invalid JSON", detail, remedy)
                continue
            yield from self._row(path, number, value)

    def _json_values(self, path: str, stream: BinaryIO) -> Iterator[Document]:
        decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode

        def read(size: int) -> str:
            data = self._read(path, stream.read, size) or b""
            return decode(data, not data)

        number = 0
        try:
            for number, (text, row) in enumerate(json_rows(read), 1):
                if _UNDECODED.search(text):
                    self._report_undecoded(path, number, f"in row {number}")
                    row = json.loads(_UNDECODED.sub("", text), strict=False)
                yield from self._row(path, number, row)
        except json.JSONDecodeError as error:
            detail = f"{error.msg}; the {number:,} rows before it were read"
            self._report(path, number + 1, "invalid JSON", detail, "Correct the row")

    def _table(self, path: str, stream: BinaryIO) -> Iterator[Document]:
        field = self._settings.field
        texts = column_values(
            (line for _, line in self._lines(path, stream, MAX_ROW_BYTES)),
            SEPARATORS[inner_suffix(path)],
            field,
            functools.partial(_missing_field, path, field),
            functools.partial(self._report, path),
        )
        for number, text in texts:
            yield from self._row(path, number, {field: text})

    def _parquet(self, path: str) -> Iterator[Document]:
        field = self._settings.field
        missing = functools.partial(_missing_field, path, field)
        report = functools.partial(self._report, path)
        values = parquet_values(
            functools.partial(self._files.open, path), path, field, missing, report
        )
        for number, value in enumerate(values, 1):
            yield from self._row(path, number, {field: value})

    def _data_set(self, source: str) -> Iterator[Document]:
        bytes_read = 0
        self._position = lambda: min(bytes_read, self._sizes[source])
        for number, row in enumerate(self._tfds[source], 1):
            if self._settings.field not in row:
                raise _missing_field(source, self._settings.field, list(row))
            value = row[self._settings.field]
            if isinstance(value, bytes):
                bytes_read += len(value)
                value = self._decode(source, number, value)
            yield from self._row(source, number, {self._settings.field: value})

    def _row(self, source: str, number: int, row: Any) -> Iterator[Document]:
        """Yield the document of a row; newlines separate its lines."""
        field = self._settings.field
        text = row.get(field) if isinstance(row, dict) else None
        if not isinstance(text, str) or not text.strip():
            value = repr(row) if text is None else f"{field}: {text!r}"
            self._report(
                source,
                number,
                "row without text",
                f"{value[:80]}; row not read",
                f"Write a string in `{field}`, or name another field with --field",
            )
            return
        if len(text) > MAX_ROW_BYTES:
            self._report(
                source,
                number,
                "long row",
                f"over {MAX_ROW_BYTES:,} characters; row not read",
                "Split it into documents",
            )
            return
        self._report_nul(source, number, text)
        lines, size = [], 0
        for line in filter(None, map(str.strip, _split_lines(text))):
            lines.append(line)
            size += len(line)
            if size > _MAX_DOCUMENT_CHARACTERS:
                yield Document(source, number, lines)
                lines, size = [], 0
        if lines:
            yield Document(source, number, lines)


def progress_bar(reader: CorpusReader) -> tqdm:
    """Return a progress bar over the bytes of the input.

    Without a terminal it is updated every 30 s only.
    """
    return tqdm(
        total=reader.total_bytes or None,
        unit="B",
        unit_scale=True,
        mininterval=0.5 if sys.stderr.isatty() else 30,
        nrows=20,  # tqdm shows no bar in terminals that report 0 rows
    )


def _split_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text; a list of short ones takes 50 times its size."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


def _suffix(path: str) -> str:
    return pathlib.Path(path).suffix.lower()


def _missing_field(source: str, field: str, fields: list[str]) -> InputError:
    return InputError(
        f"The input must have the field {field!r}",
        f"{source} with the fields {', '.join(fields)}",
        "Name one of them with --field",
    )
