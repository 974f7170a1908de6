"""Parse .csv and .tsv in batches of bounded size, for tables and corpora alike.

A .csv has commas, or semicolons where its header has no comma, and quotes as in
RFC 4180. A .tsv has tabs; its quotes are characters. The first row names the columns.
"""

import collections
import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from electra_tf.errors import InputError
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import encoding_remedy, inner_suffix
from electra_tf.text.rows import MAX_ROW_BYTES

SUFFIXES = (".csv", ".tsv")
"""Suffixes of delimited tables."""
BATCH_BYTES = 1 << 20
"""Size of a batch, but for its last row."""
LAYOUTS = {
    ".csv": "the first row of a .csv names the columns, with commas between them, or "
    'semicolons throughout, and fields that hold these, quotes or line breaks in "..."',
    ".tsv": "the first row of a .tsv names the columns, with tabs between them and no "
    "quotes around fields",
}
"""Required layout of a file, by suffix."""
_UNDECODED = re.compile("[\udc80-\udcff]")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')


class Lines:
    """Decoded lines, with surrogates for bytes that are not UTF-8."""

    def __init__(self, lines: Iterable[bytes]):
        self._lines = lines
        self.size = 0
        """Bytes read; the user sets it back."""
        self.is_bad = False
        """True if a line so far had invalid bytes."""

    def __iter__(self) -> Iterator[str]:
        for number, raw in enumerate(self._lines):
            self.size += len(raw)
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                self.is_bad = True
                text = raw.decode("utf-8", "surrogateescape")
            yield text if number else text.removeprefix("\ufeff")

    def invalid(self, text: str) -> str:
        """Describe the first invalid byte of a text; empty: there is none."""
        match = _UNDECODED.search(text) if self.is_bad else None
        return f"byte 0x{ord(match[0]) - 0xDC00:02X}; not read" if match else ""


class Batch(NamedTuple):
    """Valid rows in sequence, by column."""

    numbers: Sequence[int]
    """Number of each row, the header being 1."""
    columns: Sequence[Sequence[str]]


class DelimitedReader:
    """Iterate over the valid rows of a table; the others are logged.

    Args:
        lines: Lines of the file, with their ends.
        path: Name of the file, whose suffix determines the dialect.
        log: Log of invalid rows.
        names: Names of the columns of a file without header.
    """

    def __init__(
        self,
        lines: Iterable[bytes],
        path: str,
        log: DataErrorLog,
        names: Sequence[str] | None = None,
    ):
        self._bytes, self._path, self._log = Lines(lines), path, log
        self._suffix, self._number = inner_suffix(path), 1
        self._lines = iter(self._bytes)
        self._is_csv = self._suffix == ".csv"
        if self._is_csv:
            self._rows = self._csv_reader()
        if names is None:
            names = _distinct(self._header())
            self._number = 2
        self.names = list(names)
        """Names of the columns; equal ones of the file have their number added."""

    def __iter__(self) -> Iterator[Batch]:
        for rows in self._csv_batches() if self._is_csv else self._tab_batches():
            first, self._number = self._number, self._number + len(rows)
            numbers: Sequence[int] = range(first, self._number)
            if self._bytes.is_bad or set(map(len, rows)) != {len(self.names)}:
                pairs = zip(numbers, rows, strict=True)
                pairs = [pair for pair in pairs if self._check(*pair)]
                numbers, rows = [n for n, _ in pairs], [row for _, row in pairs]
            if rows:
                yield Batch(numbers, list(zip(*rows, strict=True)))

    def column(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield number and text of the valid rows of a column."""
        index = self.names.index(name)
        for numbers, columns in self:
            yield from zip(numbers, columns[index], strict=True)

    def _csv_reader(self) -> Iterator[list[str]]:
        first = next(self._lines, "")
        if first.lower().lstrip('"').startswith("sep="):
            raise self._header_error(first, "Delete that line")
        plain = _QUOTED.sub("", first)
        separator = ";" if ";" in plain and "," not in plain else ","
        lines = itertools.chain([first] if first else [], self._lines)
        return csv.reader(lines, delimiter=separator, strict=True)

    def _header(self) -> list[str]:
        """Return the fields of the first row."""
        rows, error = [], ""
        if self._is_csv:
            rows, error = self._next_csv_rows(1)
        elif line := next(self._lines, ""):
            rows = [_split(line)]
        text = "\t".join(rows[0]) if rows else ""
        error = error or self._bytes.invalid(text) or "no names" * (not text.strip())
        if error:
            raise self._header_error(error, "Correct that row")
        if not self._is_csv and all(map(_QUOTED.fullmatch, rows[0])):
            raise self._header_error(text, "Write it as .csv, or without such quotes")
        return rows[0]

    def _header_error(self, received: str, remedy: str) -> InputError:
        layout = LAYOUTS[self._suffix]
        return InputError(
            f"{self._path} must be a table: {layout}",
            f"{self._path}:1: {received.strip()!r:.80}",
            remedy,
        )

    def _next_csv_rows(self, count: int | None = None) -> tuple[list[list[str]], str]:
        """Return rows up to a number, or the size of a batch, or an error's text."""
        rows, self._bytes.size, error = [], 0, ""
        before = csv.field_size_limit(MAX_ROW_BYTES)  # of all readers of the process
        try:
            for row in self._rows:
                rows.append(row)
                if self._bytes.size > BATCH_BYTES or len(rows) == count:
                    break
        except csv.Error as caught:
            error = str(caught)
        finally:
            csv.field_size_limit(before)
        return rows, error

    def _csv_batches(self) -> Iterator[list[list[str]]]:
        while True:
            rows, error = self._next_csv_rows()
            if rows:
                yield rows
            if error:
                self._report("broken quoting", self._number, error)
                self._number += 1
            elif not rows:
                return

    def _tab_batches(self) -> Iterator[list[list[str]]]:
        blank: list[list[str]] = []
        is_first, width = True, len(self.names)
        while lines := self._next_lines():
            rows = blank + [_split(line) for line in lines]
            if is_first:
                self._check_quotes(rows)
            is_first, end = False, len(rows)
            # With one column an empty line is an empty text.
            while width > 1 and end and rows[end - 1] == [""]:
                end -= 1
            rows, blank = rows[:end], rows[end:]
            yield rows

    def _next_lines(self) -> list[str]:
        lines, self._bytes.size = [], 0
        for line in self._lines:
            lines.append(line)
            if self._bytes.size > BATCH_BYTES:
                break
        return lines

    def _check_quotes(self, rows: Sequence[list[str]]) -> None:
        """Raise an error if all quotes are those around fields, doubled within."""
        fields = [f for row in rows for f in row if f[:1] == '"' or f[-1:] == '"']
        if not all(map(_QUOTED.fullmatch, fields)):
            return
        if field := next((f for f in fields if '""' in f[1:-1]), None):
            number = next(n for n, row in enumerate(rows, self._number) if field in row)
            raise InputError(
                f"{self._path} must be a table: {LAYOUTS['.tsv']}",
                f"{self._path}:{number}: {field!r:.80}",
                "Write it as .csv",
            )

    def _check(self, number: int, row: list[str]) -> bool:
        """Return whether a row is valid; report another that is not blank."""
        if invalid := self._bytes.invalid("".join(row)):
            self._report("invalid UTF-8", number, invalid)
        elif len(row) != len(self.names) and not (self._is_csv and not row):
            detail = f"{len(row)} columns, not {len(self.names)}; row not read"
            if row == [""]:
                detail = f"an empty line, not {len(self.names)} columns"
            self._report("another number of columns", number, detail)
        else:
            return bool(row)
        return False

    def _report(self, kind: str, number: int, detail: str) -> None:
        remedies = {
            "invalid UTF-8": encoding_remedy(self._path),
            "broken quoting": 'Quote a field as "...", and write its quotes as ""',
        }
        remedy = remedies.get(kind, "Check the separators of that row")
        self._log.add(self._path, number, kind, detail, remedy)


def _split(line: str) -> list[str]:
    return line.removesuffix("\n").removesuffix("\r").split("\t")


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names of columns, with the number of the column added to equal ones."""
    counts = collections.Counter(names)
    return [
        f"{name} (column {number})".strip() if counts[name] > 1 else name
        for number, name in enumerate(names, 1)
    ]
