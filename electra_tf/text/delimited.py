"""Parse .csv and .tsv in batches of bounded size, for tables and corpora alike.

A .csv has commas, or semicolons or tabs where its header has no comma, and quotes as in
RFC 4180. A .tsv has tabs; its quotes are characters. The first row names the columns.
Empty lines are skipped, but in a .tsv of one column they are empty texts.
"""

import collections
import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from electra_tf.errors import InputError
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import ENCODING_REMEDY, inner_suffix
from electra_tf.text.rows import MAX_ROW_BYTES

DELIMITED_SUFFIXES = (".csv", ".tsv")
"""Suffixes of delimited tables."""
BATCH_BYTES = 1 << 20
"""Size of a batch, but for its last row."""
_UNDECODED = re.compile("[\udc80-\udcff]")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')

DelimitedRows = tuple[Sequence[int], Sequence[Sequence[str]]]
"""Numbers of rows in sequence, the header being 1, and their values by column."""


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
        self._is_csv, self._number = inner_suffix(path) == ".csv", 1
        texts = iter(self._bytes)
        self._rows: Iterator[list[str]] = map(_split, texts)
        if self._is_csv:
            first = next(texts, "")
            plain = _QUOTED.sub("", first)
            separator = next((s for s in ",;\t" if s in plain), ",")
            texts = itertools.chain([first] if first else [], texts)
            self._rows = csv.reader(texts, delimiter=separator, strict=True)
        self.names = self._header() if names is None else list(names)
        """Names of the columns; equal ones of the file have their number added."""

    def __iter__(self) -> Iterator[DelimitedRows]:
        is_first = True
        while True:
            rows, error = self._next_rows()
            if is_first and not self._is_csv:
                self._refuse_quotes(rows)
            is_first = False
            first, self._number = self._number, self._number + len(rows)
            numbers: Sequence[int] = range(first, self._number)
            if self._bytes.is_bad or set(map(len, rows)) != {len(self.names)}:
                pairs = zip(numbers, rows, strict=True)
                pairs = [pair for pair in pairs if self._check(*pair)]
                numbers, rows = [n for n, _ in pairs], [row for _, row in pairs]
            if rows:
                yield numbers, list(zip(*rows, strict=True))
            if error:
                remedy = 'quote a field as "...", and write its quotes as ""'
                number, self._number = self._number, self._number + 1
                self._log.add(self._path, number, "broken quoting", error, remedy)
            elif first == self._number:
                return

    def column(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield number and text of the valid rows of a column."""
        index = self.names.index(name)
        for numbers, columns in self:
            yield from zip(numbers, columns[index], strict=True)

    def _header(self) -> list[str]:
        """Return the names in the first row."""
        rows, error = self._next_rows(1)
        self._number += 1
        names = rows[0] if rows else []
        error = error or self._bytes.invalid("".join(names))
        if error or not "".join(names).strip():
            reason = error or "it is empty"
            raise InputError(f"{self._path}:1 must name the columns: {reason}")
        return distinct_names(names)

    def _next_rows(self, count: int | None = None) -> tuple[list[list[str]], str]:
        """Return rows up to a number, or the size of a batch, and an error's text."""
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

    def _refuse_quotes(self, rows: Sequence[list[str]]) -> None:
        """Raise an error if all quotes are those around fields, doubled within."""
        fields = [f for row in rows for f in row if f[:1] == '"' or f[-1:] == '"']
        doubled = [field for field in fields if '""' in field[1:-1]]
        if doubled and all(map(_QUOTED.fullmatch, fields)):
            raise InputError(
                f"{self._path} must have no quotes around fields, as a .tsv, and "
                f"{doubled[0]!r:.80} has; write it as .csv"
            )

    def _check(self, number: int, row: list[str]) -> bool:
        """Return whether a row is valid; report another that is not blank."""
        width = len(self.names)
        if invalid := self._bytes.invalid("".join(row)):
            self._log.add(self._path, number, "invalid UTF-8", invalid, ENCODING_REMEDY)
        elif len(row) != width and row not in ([], [""]):
            detail = f"{len(row)} columns, not {width}; row not read"
            self._log.add(self._path, number, "another number of columns", detail)
        return not invalid and len(row) == width


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return the names of columns; equal ones have their number added."""
    counts = collections.Counter(names)
    return [
        f"{name} (column {number})".strip() if counts[name] > 1 else name
        for number, name in enumerate(names, 1)
    ]


def _split(line: str) -> list[str]:
    return line.removesuffix("\n").removesuffix("\r").split("\t")
