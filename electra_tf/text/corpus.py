"""Readers: text files, JSONL, Parquet and TFDS names -> documents of lines."""

import codecs
import dataclasses
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from tqdm import tqdm

from electra_tf.config.pretraining import CorpusConfig
from electra_tf.errors import InputError
from electra_tf.text.compression import BROKEN, inner_suffix, open_compressed
from electra_tf.text.data_errors import DataError, DataErrorLog
from electra_tf.text.sources import TfdsSource, expand, is_tfds

MAX_LINE_BYTES = 1_000_000
_MAX_ROW_BYTES = 64_000_000  # a row of JSONL holds a whole document
_MAX_DOCUMENT_CHARACTERS = 16_000_000
_PARQUET_ROWS = 256  # at a time, as a row may be a whole book
_SAMPLE_BYTES = 8192
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"PK\3\4", b"PAR1", b"%PDF")
_CONTROL_BYTES = bytes([*range(9), *range(14, 27), *range(28, 32), 127])
_COMPRESSION = {".gz": 3.0, ".xz": 4.0, ".parquet": 2.0}  # typical, for estimates


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """Consecutive lines of one text, stripped, none of them blank."""

    source: str
    line: int
    """Number of the first line (or row), from 1."""
    lines: list[str]


class CorpusReader:
    """Iterates over the documents of files and data sets, in a fixed order.

    A document of more than 16 million characters is cut at a line's end, so memory
    stays bounded; a row of JSONL may have 64 MB.

    Args:
        patterns: Paths, globs and `tfds:NAME[/CONFIG][@SPLIT]` names. Files of a glob
            are sorted; a file matched twice is read once.
        settings: How files are read.
        problems: Where bad input is reported.

    Raises:
        InputError: A pattern matches no file.
    """

    def __init__(
        self, patterns: Iterable[str], settings: CorpusConfig, problems: DataErrorLog
    ):
        self.sources = expand(patterns)
        self._settings = settings
        self._problems = problems
        self._finished_bytes = 0
        self._position: Callable[[], int] = int
        # Prepared data sets are opened now: what is missing should be told at once.
        self._tfds = {s: TfdsSource(s) for s in self.sources if is_tfds(s)}
        self._sizes = {
            s: self._tfds[s].bytes if s in self._tfds else os.path.getsize(s)
            for s in self.sources
        }

    @property
    def total_bytes(self) -> int:
        """Bytes of all files as they lie on the disk."""
        return sum(self._sizes.values())

    @property
    def position_bytes(self) -> int:
        """How many of `total_bytes` have been read."""
        return self._finished_bytes + self._position()

    @property
    def estimated_text_bytes(self) -> int:
        """Rough size of the text once decompressed."""
        sizes = self._sizes.items()
        return int(sum(n * _COMPRESSION.get(_suffix(s), 1.0) for s, n in sizes))

    def __iter__(self) -> Iterator[Document]:
        for source in self.sources:
            reader = self._data_set if source in self._tfds else self._file
            empty, known = True, self._problems.counts.total()
            for document in reader(source):
                empty = False
                yield document
            if empty and self._problems.counts.total() == known:
                self._report(source, 0, "empty file", "no text in it", "Remove it")
            self._finished_bytes += self._sizes[source]
            self._position = int  # nothing of the next source yet

    def _report(self, source: str, line: int, kind: str, detail: str, remedy: str):
        self._problems.add(DataError(source, line, kind, detail, remedy))

    def _file(self, path: str) -> Iterator[Document]:
        kind = inner_suffix(path)
        if kind == ".parquet":
            yield from self._parquet(path)
            return
        try:
            raw = open(path, "rb")  # noqa: SIM115 (closed by the `with` below)
        except OSError as error:
            raise InputError(
                "Each file of the input can be read",
                str(error),
                "Check its permissions",
            ) from error
        with raw:
            self._position = raw.tell
            stream = open_compressed(path, raw)
            if not self._is_binary(path, stream):
                jsonl = kind in (".jsonl", ".ndjson", ".json")
                yield from (self._jsonl if jsonl else self._plain)(path, stream)

    def _read(
        self, path: str, read: Callable[[int], bytes], limit: int
    ) -> bytes | None:
        """Reads; None where an archive is broken, and the text ends."""
        try:
            return read(limit)
        except BROKEN as error:
            self._report(
                path,
                0,
                "broken archive",
                f"{error}; what came before was read",
                "Copy or compress it again",
            )
            return None

    def _is_binary(self, path: str, stream: BinaryIO) -> bool:
        """Whether there is nothing to read as text, which is then reported."""
        sample = self._read(path, stream.peek, _SAMPLE_BYTES)
        if sample is None:
            return True
        sample = sample[:_SAMPLE_BYTES]
        controls = len(sample) - len(sample.translate(None, _CONTROL_BYTES))
        invalid = sample[:-3].decode("utf-8", "replace").count("\ufffd")
        bad, marked = controls + invalid, sample.startswith(_MARKS)
        if not marked and (bad <= 8 or bad <= 0.1 * len(sample)):
            return False
        what = f"begins with {sample[:4]!r}"
        if not marked:
            what = f"{bad / len(sample):.0%} of its first bytes are odd"
        self._report(
            path,
            0,
            "binary file",
            f"{what}: no UTF-8 text; not read",
            "Leave it out of the glob or convert it to UTF-8",
        )
        return True

    def _lines(
        self, path: str, stream: BinaryIO, limit: int
    ) -> Iterator[tuple[int, str]]:
        """Numbered lines, decoded; one over the limit comes in pieces."""
        number, rest, continued = 1, b"", False
        while raw := self._read(path, stream.readline, limit):
            ended = raw.endswith(b"\n")
            cut = not ended and len(raw) == limit
            raw, rest = rest + raw, b""
            if cut:
                # Between words, or at least not within a character.
                border = raw.rfind(b" ") + 1
                border = border or codecs.utf_8_decode(raw, "ignore", False)[1]
                raw, rest = raw[:border], raw[border:]
            if cut and not continued:
                self._report(
                    path,
                    number,
                    "long line",
                    f"over {limit} bytes; read in pieces of that size",
                    "Break it into sentences or paragraphs",
                )
            text = self._decode(path, number, raw)
            if number == 1 and not continued:
                text = text.removeprefix("\ufeff")
            # A blank piece is no blank line.
            if text.strip() or not (cut or continued):
                yield number, text
            continued = cut
            number += ended
        if rest:
            yield number, self._decode(path, number, rest)

    def _decode(self, source: str, number: int, raw: bytes) -> str:
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            text = raw.decode("utf-8", "ignore")
            self._report(
                source,
                number,
                "invalid UTF-8",
                f"byte {error.start} of the line; invalid bytes dropped",
                "Convert it to UTF-8",
            )
        return text

    def _note_nul(self, source: str, number: int, text: str) -> None:
        if "\0" in text:
            self._report(source, number, "NUL", "dropped from the text", "Remove it")

    def _plain(self, path: str, stream: BinaryIO) -> Iterator[Document]:
        blank_ends = self._settings.documents == "blank_line"
        first, lines, size = 1, [], 0
        for number, text in self._lines(path, stream, MAX_LINE_BYTES):
            self._note_nul(path, number, text)
            text = text.strip()
            if text:
                if not lines:
                    first = number
                lines.append(text)
                size += len(text)
            if lines and ((not text and blank_ends) or size > _MAX_DOCUMENT_CHARACTERS):
                yield Document(path, first, lines)
                lines, size = [], 0
        if lines:
            yield Document(path, first, lines)

    def _jsonl(self, path: str, stream: BinaryIO) -> Iterator[Document]:
        for number, row in self._lines(path, stream, _MAX_ROW_BYTES):
            if not row.strip():
                continue
            try:
                value = json.loads(row, strict=False)
            except (ValueError, RecursionError) as error:
                self._report(
                    path, number, "invalid JSON", f"{error}; row not read", "Mend it"
                )
                continue
            yield from self._row(path, number, value)

    def _parquet(self, path: str) -> Iterator[Document]:
        try:
            import pyarrow.parquet
        except ImportError as error:
            raise InputError(
                "Reading Parquet takes the library pyarrow",
                f"{path}, and no pyarrow installed",
                "Install it: pip install pyarrow",
            ) from error
        number = 0
        try:
            table = pyarrow.parquet.ParquetFile(path)
            known = table.schema_arrow.names
            if self._settings.field not in known:
                raise _missing_field(path, self._settings.field, known)
            for batch in table.iter_batches(
                _PARQUET_ROWS, columns=[self._settings.field]
            ):
                for row in batch.to_pylist():
                    number += 1
                    yield from self._row(path, number, row)
        except (pyarrow.ArrowException, OSError) as error:
            # OSError is what Arrow calls a page that cannot be decoded.
            self._report(
                path,
                number,
                "broken Parquet",
                f"{error}; what came before was read",
                "Write it again",
            )

    def _data_set(self, source: str) -> Iterator[Document]:
        read = 0
        self._position = lambda: min(read, self._sizes[source])
        for number, row in enumerate(self._tfds[source], 1):
            if self._settings.field not in row:
                raise _missing_field(source, self._settings.field, list(row))
            value = row[self._settings.field]
            if isinstance(value, bytes):
                read += len(value)
                value = self._decode(source, number, value)
            yield from self._row(source, number, {self._settings.field: value})

    def _row(self, source: str, number: int, row: Any) -> Iterator[Document]:
        """The one document of a row, its lines ended by newlines."""
        field = self._settings.field
        text = row.get(field) if isinstance(row, dict) else None
        if not isinstance(text, str) or not text.strip():
            found = repr(row) if text is None else f"{field}: {text!r}"
            self._report(
                source,
                number,
                "row without text",
                f"{found[:80]}; row not read",
                f"Give the row a string in `{field}`, or name its field with --field",
            )
            return
        self._note_nul(source, number, text)
        lines, size = [], 0
        for line in filter(None, map(str.strip, text.split("\n"))):
            lines.append(line)
            size += len(line)
            if size > _MAX_DOCUMENT_CHARACTERS:
                yield Document(source, number, lines)
                lines, size = [], 0
        if lines:
            yield Document(source, number, lines)


def progress_bar(reader: CorpusReader) -> tqdm:
    """A bar over the bytes of the input; a line every 30 s where no one watches."""
    return tqdm(
        total=reader.total_bytes or None,
        unit="B",
        unit_scale=True,
        mininterval=0.5 if sys.stderr.isatty() else 30,
        nrows=20,  # some containers say that their terminals have none, and get no bar
    )


def _suffix(path: str) -> str:
    return pathlib.Path(path).suffix.lower()


def _missing_field(source: str, field: str, known: list[str]) -> InputError:
    return InputError(
        f"The input has the field `{field}`",
        f"{source} with the fields {', '.join(known)}",
        "Name one of them with --field",
    )
