"""Tables of text -> rows: TSV, CSV and JSON lines, plain or compressed, and TFDS.

A .tsv has no quoting (GLUE's manner), a .csv has CSV's. The first line names the
columns, unless the caller does.
"""

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

from electra_tf.errors import InputError, listed
from electra_tf.text.compression import BROKEN, inner_suffix, open_compressed
from electra_tf.text.data_errors import DataError, DataErrorLog
from electra_tf.text.sources import load_tfds

TFDS = "tfds:"
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
FORMATS = (".tsv", ".csv", ".jsonl", ".ndjson")
_FIELD_LIMIT = 10_000_000  # characters; csv's own limit is 131,072
_UNDECODED = re.compile("[\udc80-\udcff]")  # what Python makes of bytes not UTF-8

# The lines that a record stands on; None: they are none.
_Record = tuple[range, list[str] | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One record of a table."""

    values: Mapping[str, str]
    """By column; what an object of JSON lacks, or has as null, is not there."""
    source: str
    line: int
    """Number of its first line, from 1."""
    nested: frozenset[str] = frozenset()
    """The columns whose values were objects or lists of JSON."""

    def __str__(self) -> str:
        return f"{self.source}:{self.line}"


def read_table(
    path: str, log: DataErrorLog, names: Sequence[str] | None = None
) -> list[Row]:
    """Reads all rows of a file.

    Args:
        path: Ends with .tsv, .csv, .jsonl or .ndjson, perhaps with .gz or .xz.
        log: Where bad rows are told.
        names: The columns, where no line of the file names them.

    Returns:
        The rows that could be read.

    Raises:
        InputError: No such file, an unknown format, an empty or broken file, a first
            line that does not name columns; with a log that stops, the first bad row.
    """
    kind = inner_suffix(path)
    if kind not in FORMATS:
        raise InputError(
            f"A table is one of {', '.join(FORMATS)}, perhaps compressed",
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
        raise InputError("A table has one row or more", f"{path}: none", "Check it")
    return rows


def read_text(path: str, log: DataErrorLog) -> str:
    """Reads a file of UTF-8, with or without a byte-order mark.

    Args:
        path: Plain, .gz or .xz.
        log: Where lines of another encoding are told; they are left out.

    Returns:
        Its text.

    Raises:
        InputError: No such file, an empty one, a broken archive.
    """
    text = _decoded(path)
    bad = _undecoded(text, path, log)
    if not bad:
        return text
    lines = enumerate(text.split("\n"), 1)
    return "\n".join(line for number, line in lines if number not in bad)


def require_columns(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Refuses a table without the columns that are asked for.

    Args:
        rows: Of one table.
        columns: Their names.

    Raises:
        InputError: One is missing; it lists those there are.
    """
    known = list(dict.fromkeys(name for row in rows for name in row.values))
    missing = [name for name in columns if name not in known]
    if missing:
        raise InputError(
            f"The table must have the columns {listed(columns)}",
            f"{rows[0].source} without {listed(missing)}; it has {listed(known, 30)}",
            _likely(missing, known)
            + "Name columns that the first line names, or check that this is the "
            "right file"
            + ", with commas between columns (.csv) or tabs (.tsv)"
            * (len(known) == 1),
        )


def _likely(missing: Sequence[str], known: Sequence[str]) -> str:
    """Name what each missing column probably is in the file."""
    told = []
    for name in missing:
        same = [k for k in known if k.strip(" \t\"'") == name.strip()]
        alike = [k for k in known if k.strip().casefold() == name.strip().casefold()]
        close = difflib.get_close_matches(name, known, 1, 0.8)
        found = next(iter([*same, *alike, *close]), None)
        if found is None:
            continue
        why = ""
        if found != found.strip():
            why = ", with a space around its name in the first line: remove that space"
        elif found in same:
            why = ", with quotes, which a .tsv keeps: remove them from the first line"
        told.append(f"For {name!r} did you mean {found!r}{why}? ")
    return "".join(told)


def read_tfds(name: str, split: str) -> list[Row]:
    """Reads a split of a data set that TFDS has prepared on this machine.

    Args:
        name: As TFDS has it, `glue/cola`.
        split: `train`, `validation`, ...

    Returns:
        Its rows; classes by their names, a class of -1 as an empty string.

    Raises:
        InputError: It is not prepared here, or the split is empty.
    """
    import tensorflow_datasets as tfds

    found, info = load_tfds(name, split)

    def word(column: str, value: Any) -> str:
        feature = info.features[column]
        if isinstance(feature, tfds.features.ClassLabel):
            return feature.int2str(int(value)) if value >= 0 else ""
        return value.decode() if isinstance(value, bytes) else str(value)

    source = f"tfds:{name}@{split}"
    rows = [
        Row({c: word(c, v) for c, v in values.items()}, source, number)
        for number, values in enumerate(found.as_numpy_iterator(), 1)
    ]
    if not rows:
        raise InputError("A table has one row or more", f"{source}: none", "Check it")
    return rows


def read_rows(path: str, log: DataErrorLog) -> list[Row]:
    """Reads a file, or a split of a data set that TFDS has prepared.

    Args:
        path: A file, or `tfds:NAME@SPLIT`.
        log: As for `read_table`.

    Returns:
        The rows.

    Raises:
        InputError: As `read_table` and `read_tfds`.
    """
    if not path.startswith(TFDS):
        return read_table(path, log)
    name, _, split = path.removeprefix(TFDS).partition("@")
    return read_tfds(name, split)


def has_tfds(name: str, split: str) -> bool:
    """Whether TFDS has prepared a split of a data set on this machine.

    Args:
        name: As for `read_tfds`.
        split: As for `read_tfds`.

    Returns:
        False also where there is no such data set.
    """
    import tensorflow_datasets as tfds

    try:
        folder = os.environ.get("TFDS_DATA_DIR")
        builder = tfds.builder(name, data_dir=folder, try_gcs=False)
    except (AssertionError, ValueError, ImportError, OSError):
        return False
    return split in builder.info.splits


def _decoded(path: str) -> str:
    """A file's text, bytes that are not UTF-8 as `_UNDECODED`."""
    if not os.path.isfile(path):
        raise InputError("The file is there", repr(path), "Check the path")
    try:
        with open_compressed(path) as file:
            data = file.read()
    except (OSError, *BROKEN) as error:
        raise InputError(
            f"{path} can be read to its end",
            str(error) or type(error).__name__,
            "Fetch the file again, or check who may read it",
        ) from error
    if not data.strip():
        raise InputError(f"{path} holds text", "an empty file", "Fetch it again")
    return data.decode("utf-8-sig", "surrogateescape")


def _undecoded(text: str, path: str, log: DataErrorLog) -> frozenset[int]:
    """The numbers of the lines that are not UTF-8, each of which is told."""
    if not _UNDECODED.search(text):
        return frozenset()
    bad = set()
    for number, line in enumerate(text.split("\n"), 1):
        if found := _UNDECODED.search(line):
            byte, place = ord(found[0]) - 0xDC00, found.start() + 1
            detail = f"the byte 0x{byte:02X} as its character {place}"
            kind, remedy = "another encoding than UTF-8", "Convert it with iconv"
            log.add(DataError(path, number, kind, detail, remedy))
            bad.add(number)
    return frozenset(bad)


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
    before = csv.field_size_limit(_FIELD_LIMIT)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _check_separator(text: str, path: str, wanted: str) -> None:
    """Refuse a first line whose columns have other separators."""
    line = text.partition("\n")[0].removesuffix("\r")
    counts = {sign: line.count(sign) for sign in _SEPARATORS}
    found = max(counts, key=lambda sign: counts[sign])
    if counts[wanted] or not counts[found]:
        return
    number = f"{counts[found]:,} {_SEPARATORS[found]}{'s' * (counts[found] > 1)}"
    kind = {",": ".csv", "\t": ".tsv"}
    raise InputError(
        f"A {kind[wanted]} must have {_SEPARATORS[wanted]}s between its columns",
        f"{path}:1 with {number} and no {_SEPARATORS[wanted]}: {line!r:.80}",
        f"Name the file {kind[found]}"
        if found in kind
        else "Convert it: pandas.read_csv(FILE, sep="
        f"{found!r}).to_csv('NEW.csv', index=False)",
    )


def _tsv(text: str) -> Iterator[_Record]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    # An empty line of a table with one column is an empty text.
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
    """Rows of the records that have not been told as bad yet."""
    for lines, record in records:
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
            "The first line names the columns", f"{place}, unreadable", "Mend it"
        )
    twice = {name for name in record if name and record.count(name) > 1}
    if twice:
        raise InputError(
            "Each column has a name of its own",
            f"{place}, with several columns {listed(sorted(twice))}",
            "Rename all but one of them",
        )
    return record


def _json_rows(
    text: str, path: str, log: DataErrorLog, bad: frozenset[int]
) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or number in bad:
            continue
        try:
            values = json.loads(line)
            if not isinstance(values, dict):
                raise ValueError("no object")
        except ValueError as error:
            log.add(DataError(path, number, "no JSON", str(error), "Mend that line"))
            continue
        known = {k: _plain(v) for k, v in values.items() if v is not None}
        nested = {k for k, v in values.items() if isinstance(v, dict | list)}
        yield Row(known, path, number, frozenset(nested))


def _plain(value: Any) -> str:
    """A value as in a CSV; 1.0 is 1, as tables with gaps make one of the other."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
