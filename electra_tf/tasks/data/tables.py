"""Read rows from TSV, CSV and JSON lines, plain or compressed, and from TFDS.

A .csv has quoting; a .tsv has none, as in GLUE. The first line names the columns,
unless the caller does.
"""

import collections
import contextlib
import csv
import dataclasses
import difflib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from electra_tf.errors import InputError, format_list
from electra_tf.text.bounded_files import (
    MAX_LINE,
    check_items,
    max_items,
    parse_json,
    read_file,
)
from electra_tf.text.compression import BROKEN, inner_suffix
from electra_tf.text.data_errors import DataError, DataErrorLog
from electra_tf.text.file_formats import encoding_remedy
from electra_tf.text.sources import load_tfds

TFDS = "tfds:"
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
# Of Chinese and Japanese keyboards.
_FULL_WIDTH = {"，": "full-width comma", "；": "full-width semicolon"}
FORMATS = (".tsv", ".csv", ".jsonl", ".ndjson")
_FIELD_LIMIT = 10_000_000  # characters; csv's own limit is 131,072
_ROW_VALUES = 4  # of memory, a row takes what this number of values does
_UNDECODED = re.compile("[\udc80-\udcff]")  # surrogates that stand for invalid bytes

# Lines of a record and its fields; None: invalid quoting.
_Record = tuple[range, list[str] | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One record of a table."""

    values: Mapping[str, str]
    """Value by column, without missing and null values of JSON."""
    source: str
    line: int
    """Number of the first line of the row, from 1."""
    nested: frozenset[str] = frozenset()
    """Columns whose values are objects or lists of JSON."""

    def __str__(self) -> str:
        return f"{self.source}:{self.line}"


def read_table(
    path: str, log: DataErrorLog, names: Sequence[str] | None = None
) -> list[Row]:
    """Read all rows of a file.

    Args:
        path: File with the suffix .tsv, .csv, .jsonl or .ndjson, and then optionally
            .gz or .xz.
        log: Collects bad rows.
        names: Names of the columns, for a file without a header line.

    Returns:
        The valid rows.

    Raises:
        InputError: The file is missing, empty, damaged, of an unknown format or too
            large for memory (`bounded_files`), its first line does not name columns,
            or `log` stops at an error.
    """
    kind = inner_suffix(path)
    if kind not in FORMATS:
        raise InputError(
            f"A table must be one of {', '.join(FORMATS)}, plain, .gz or .xz",
            repr(path),
            "Rename or convert it",
        )
    text = _decoded(path)
    bad = _undecoded(text, path, log)
    if kind in (".jsonl", ".ndjson"):
        rows = list(_json_rows(text, path, log, bad))
    else:
        if names is None:
            _check_separator(text, path, "," if kind == ".csv" else "\t")
        records = _tsv(text) if kind == ".tsv" else _csv(text, path, log)
        with _long_fields():
            rows = list(_named(records, path, log, names, bad))
    if not rows:
        raise InputError(
            "A table must have one or more rows", f"{path} with none", "Check the file"
        )
    return rows


def read_text(path: str, log: DataErrorLog) -> str:
    """Read a UTF-8 file, with or without a byte-order mark.

    Args:
        path: File, plain, .gz or .xz.
        log: Collects lines that are not UTF-8, which are dropped.

    Returns:
        The text of the file.

    Raises:
        InputError: The file is missing, empty or damaged, or `log` stops at an error.
    """
    text = _decoded(path, max_line=None)
    bad = _undecoded(text, path, log)
    if not bad:
        return text
    lines = enumerate(text.split("\n"), 1)
    return "\n".join(line for number, line in lines if number not in bad)


def require_columns(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Raise an error if a table lacks a column.

    Args:
        rows: Rows of one table.
        columns: Names of the required columns.

    Raises:
        InputError: A column is missing; the error lists the existing ones.
    """
    known = list(dict.fromkeys(name for row in rows for name in row.values))
    missing = [name for name in columns if name not in known]
    if missing:
        raise InputError(
            f"The table must have the columns {format_list(columns)}",
            f"{rows[0].source} without {format_list(missing)}; it has "
            f"{format_list(known, 30)}",
            _similar_columns(missing, known)
            + "Name columns of the first line, or check that this is the right file"
            + ", with commas between columns (.csv) or tabs (.tsv)" * (len(known) == 1),
        )


def _similar_columns(missing: Sequence[str], known: Sequence[str]) -> str:
    """Return hints to columns with similar names."""
    hints = []
    for name in missing:
        same = [k for k in known if k.strip(" \t\"'") == name.strip()]
        alike = [k for k in known if k.strip().casefold() == name.strip().casefold()]
        joined = [k for k in known if name in re.split("[，；、]", k) and k != name]
        close = difflib.get_close_matches(name, known, 1, 0.8)
        guess = next(iter([*same, *alike, *joined, *close]), None)
        if guess is None:
            continue
        why = ""
        if guess != guess.strip():
            why = ", with a space around its name in the first line: remove that space"
        elif guess in joined:
            why = ", where a full-width comma or semicolon joins two names: write ','"
        elif guess in same:
            why = ", with quotes, which a .tsv keeps: remove them from the first line"
        hints.append(f"For {name!r} did you mean {guess!r}{why}? ")
    return "".join(hints)


def read_tfds(name: str, split: str) -> list[Row]:
    """Read a split of a data set that TFDS has prepared on this machine.

    Args:
        name: Name in TFDS, such as `glue/cola`.
        split: `train`, `validation`, ...

    Returns:
        The rows, with class names; class -1 is an empty string.

    Raises:
        InputError: The data set is not prepared here, or the split is empty.
    """
    import tensorflow_datasets as tfds

    dataset, info = load_tfds(name, split)

    def to_text(column: str, value: Any) -> str:
        feature = info.features[column]
        if isinstance(feature, tfds.features.ClassLabel):
            return feature.int2str(int(value)) if value >= 0 else ""
        return value.decode() if isinstance(value, bytes) else str(value)

    source = f"tfds:{name}@{split}"
    rows = [
        Row({c: to_text(c, v) for c, v in values.items()}, source, number)
        for number, values in enumerate(dataset.as_numpy_iterator(), 1)
    ]
    if not rows:
        raise InputError(
            "A table must have one or more rows",
            f"{source} with none",
            "Check the split",
        )
    return rows


def read_rows(path: str, log: DataErrorLog) -> list[Row]:
    """Read a table file, or a split of a data set that TFDS has prepared.

    Args:
        path: File, or `tfds:NAME@SPLIT`.
        log: As for `read_table`.

    Returns:
        The rows.

    Raises:
        InputError: As for `read_table` and `read_tfds`.
    """
    if not path.startswith(TFDS):
        return read_table(path, log)
    name, _, split = path.removeprefix(TFDS).partition("@")
    return read_tfds(name, split)


def has_tfds(name: str, split: str) -> bool:
    """Return whether TFDS has prepared a split of a data set on this machine.

    Args:
        name: As for `read_tfds`.
        split: As for `read_tfds`.

    Returns:
        True if the split can be read; False also for an unknown data set.
    """
    import tensorflow_datasets as tfds

    try:
        folder = os.environ.get("TFDS_DATA_DIR")
        builder = tfds.builder(name, data_dir=folder, try_gcs=False)
    except (AssertionError, ValueError, ImportError, OSError):
        return False
    return split in builder.info.splits


def _decoded(path: str, max_line: int | None = MAX_LINE) -> str:
    """Return the text of a file, with surrogates for bytes that are not UTF-8."""
    if not os.path.isfile(path):
        raise InputError("The file must exist", repr(path), "Check the path")
    try:
        data = read_file(path, max_line)
    except (OSError, *BROKEN) as error:
        raise InputError(
            f"{path} must be readable to its end",
            str(error) or type(error).__name__,
            "Copy the file again, or check its permissions",
        ) from error
    text = data.decode("utf-8-sig", "surrogateescape")
    if not text or text.isspace():
        raise InputError(
            f"{path} must contain text", "an empty file", "Copy the file again"
        )
    return text


def _undecoded(text: str, path: str, log: DataErrorLog) -> frozenset[int]:
    """Return the numbers of the lines that are not UTF-8, and report each."""
    if not _UNDECODED.search(text):
        return frozenset()
    bad = set()
    for number, line in enumerate(text.split("\n"), 1):
        if match := _UNDECODED.search(line):
            byte, column = ord(match[0]) - 0xDC00, match.start() + 1
            detail = f"byte 0x{byte:02X} at character {column}"
            kind = "another encoding than UTF-8"
            log.add(DataError(path, number, kind, detail, encoding_remedy(path)))
            bad.add(number)
    return frozenset(bad)


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
    """Raise the limit of the csv module on the length of a field."""
    before = csv.field_size_limit(_FIELD_LIMIT)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _check_separator(text: str, path: str, expected: str) -> None:
    """Raise an error if the columns of the first line have another separator."""
    line = text.partition("\n")[0].removesuffix("\r")
    names = _SEPARATORS | _FULL_WIDTH
    counts = {character: line.count(character) for character in names}
    actual = max(counts, key=lambda character: counts[character])
    if counts[expected] or not counts[actual]:
        return
    number = f"{counts[actual]:,} {names[actual]}{'s' * (counts[actual] > 1)}"
    kind = {",": ".csv", "\t": ".tsv"}
    remedy = (
        f"Convert it: pandas.read_csv(FILE, sep={actual!r})"
        ".to_csv('NEW.csv', index=False)"
    )
    if actual in kind:
        remedy = f"Rename the file to {kind[actual]}"
    if actual in _FULL_WIDTH:
        remedy = (
            f"Between columns write the {_SEPARATORS[expected]} of an English "
            f"keyboard, {expected!r}, in this line and in all others; inside of a text "
            f"{actual!r} may stay"
        )
    raise InputError(
        f"A {kind[expected]} must have {_SEPARATORS[expected]}s between its columns",
        f"{path}:1 with {number} and no {_SEPARATORS[expected]}: {line!r:.80}",
        remedy,
    )


def _tsv(text: str) -> Iterator[_Record]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    # Drop empty lines at the end. With one column an empty line is an empty text.
    while "\t" in lines[0] and not lines[-1].removesuffix("\r"):
        lines.pop()
    for number, line in enumerate(lines, 1):
        yield range(number, number + 1), line.removesuffix("\r").split("\t")


def _csv(text: str, path: str, log: DataErrorLog) -> Iterator[_Record]:
    reader, line = csv.reader(io.StringIO(text, newline=""), strict=True), 1
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            detail = f"{error}, in the row from here to line {reader.line_num}"
            remedy = 'Quote a field with commas or quotes as "...", its quotes as ""'
            log.add(DataError(path, line, "broken quoting", detail, remedy))
            yield range(line, reader.line_num + 1), None
        else:
            if record:
                yield range(line, reader.line_num + 1), record
        line = reader.line_num + 1


def _named(
    records: Iterator[_Record],
    path: str,
    log: DataErrorLog,
    names: Sequence[str] | None,
    bad: frozenset[int],
) -> Iterator[Row]:
    """Yield the valid records as rows, and report those of another width."""
    values, most = 0, max_items(path)
    for lines, record in records:
        values += _ROW_VALUES + len(record or ())
        check_items(values, f"{path}:{lines[0]}", most)
        readable = record is not None and bad.isdisjoint(lines)
        if names is None:
            names = _header(record if readable else None, f"{path}:{lines[0]}")
        elif readable and len(record) == len(names):
            yield Row(dict(zip(names, record, strict=True)), path, lines[0])
        elif readable:
            kind = "another number of columns"
            detail = f"{len(record)} columns, not {len(names)}"
            if record == [""]:
                detail = f"an empty line, not {len(names)} columns"
            remedy = "Check the separators of that line"
            log.add(DataError(path, lines[0], kind, detail, remedy))


def _header(record: list[str] | None, place: str) -> list[str]:
    if record is None:
        raise InputError(
            "The first line must name the columns",
            f"{place}, unreadable",
            "Correct the line",
        )
    counts = collections.Counter(filter(None, record))
    repeated = {name for name, count in counts.items() if count > 1}
    if repeated:
        raise InputError(
            "Column names must be unique",
            f"{place}, with several columns {format_list(sorted(repeated))}",
            "Rename all but one of them",
        )
    return record


def _json_rows(
    text: str, path: str, log: DataErrorLog, bad: frozenset[int]
) -> Iterator[Row]:
    items, most = 0, max_items(path)
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or number in bad:
            continue
        try:
            values = parse_json(line, f"{path}:{number}")
            if not isinstance(values, dict):
                raise ValueError("not an object")
        except ValueError as error:
            log.add(
                DataError(path, number, "invalid JSON", str(error), "Correct the line")
            )
            continue
        items += _ROW_VALUES + len(values)
        check_items(items, f"{path}:{number}", most)
        known = {k: _to_text(v) for k, v in values.items() if v is not None}
        nested = {k for k, v in values.items() if isinstance(v, dict | list)}
        yield Row(known, path, number, frozenset(nested))


def _to_text(value: Any) -> str:
    """Return a value as text; 1.0 as 1, as tables with gaps write integers."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
