"""Read rows from TSV, CSV and JSON, plain or compressed, and from TFDS.

The first line of a .csv or .tsv names the columns, unless the caller does.
"""

import contextlib
import dataclasses
import difflib
import gc
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from electra_tf.errors import InputError, format_list
from electra_tf.tasks.delimited import SEPARATORS, named_records
from electra_tf.tasks.labels import fold, quote_names
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import (
    BROKEN,
    encoding_remedy,
    inner_suffix,
    load_tfds,
    open_compressed,
)
from electra_tf.text.rows import JSON_SUFFIXES, describe_json, json_values

TFDS = "tfds:"
FORMATS = (".tsv", ".csv", *JSON_SUFFIXES)
_UNDECODED = re.compile("[\udc80-\udcff]")  # surrogates that stand for invalid bytes
_CONVERSIONS = {
    ".parquet": "pandas.read_parquet(FILE).to_csv('NEW.csv', index=False)",
    **dict.fromkeys(
        [".xlsx", ".xls", ".ods"],
        "pandas.read_excel(FILE).to_csv('NEW.csv', index=False), or save it as CSV",
    ),
}


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


def print_note(line: str) -> None:
    """Print a line to standard error, as standard output may be data."""
    print(line, file=sys.stderr)


def read_table(
    path: str,
    log: DataErrorLog,
    names: Sequence[str] | None = None,
    notify: Callable[[str], None] | None = print_note,
) -> list[Row]:
    """Read all rows of a file, or of a split `tfds:NAME@SPLIT`."""
    if path.startswith(TFDS):
        name, _, split = path.removeprefix(TFDS).partition("@")
        return read_tfds(name, split)
    kind = inner_suffix(path)
    if kind in JSON_SUFFIXES:
        return _required(_json_rows(path, log), path)
    if kind not in FORMATS:
        raise InputError(
            f"A table must be one of {', '.join(FORMATS)}, plain, .gz or .xz",
            repr(path),
            conversion(path) or "Name a table",
        )
    text = read_text(path, log)
    records = named_records(text, path, SEPARATORS[kind], log, names, notify)
    is_bad = has_bad_bytes if has_bad_bytes(text) else lambda *_: False
    with _without_collections():
        return _required(
            (
                Row(values, path, line)
                for line, values in records
                if not is_bad(*values.values())
            ),
            path,
        )


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Stop garbage collections, which would visit all rows of a table again and again.

    The rows have no cycles.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _required(rows: Iterable[Row], source: str) -> list[Row]:
    rows = list(rows)
    if not rows:
        raise InputError(
            "A table must have one or more rows",
            f"{source} with none",
            "Name a file or a split with rows",
        )
    return rows


def _json_rows(path: str, log: DataErrorLog) -> Iterator[Row]:
    for number, values in read_json(path, log):
        if not isinstance(values, dict):
            detail = f"{describe_json(values)}, not an object"
            log.add(path, number, "invalid JSON", detail, "Correct the line")
            continue
        known = {k: _to_text(v) for k, v in values.items() if v is not None}
        nested = {k for k, v in values.items() if isinstance(v, dict | list)}
        yield Row(known, path, number, frozenset(nested))


def read_json(path: str, log: DataErrorLog) -> Iterator[tuple[int, Any]]:
    """Yield the values of a JSON file, each with the number of its first line."""
    for line, part, value in json_values(read_text(path, log), path, log):
        if not has_bad_bytes(part):
            yield line, value


def read_text(path: str, log: DataErrorLog) -> str:
    """Read a file, with surrogates for bytes that are not UTF-8, which are reported."""
    try:
        with open_compressed(path) as file:
            text = file.read().decode("utf-8-sig", "surrogateescape")
    except (OSError, *BROKEN) as error:
        raise InputError(
            f"{path} must be readable to its end",
            str(error) or type(error).__name__,
            "Check the path and its permissions, or copy the file again",
        ) from error
    if not text or text.isspace():
        raise InputError(
            f"{path} must contain text", "an empty file", "Copy the file again"
        )
    if has_bad_bytes(text):
        for number, line in enumerate(text.split("\n"), 1):
            if match := _UNDECODED.search(line):
                byte, column = ord(match[0]) - 0xDC00, match.start() + 1
                detail = f"byte 0x{byte:02X} at character {column}"
                kind = "another encoding than UTF-8"
                log.add(path, number, kind, detail, encoding_remedy(path))
    return text


def has_bad_bytes(*texts: str) -> bool:
    """Return whether a text of `read_text` has bytes that are not UTF-8."""
    return any(not text.isascii() and _UNDECODED.search(text) for text in texts)


def _to_text(value: Any) -> str:
    """Return a value as text; 1.0 as 1, as tables with gaps write integers."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def conversion(path: str) -> str:
    """Return how to convert a file of a table that is not read; empty: unknown."""
    command = _CONVERSIONS.get(inner_suffix(path))
    return f"Convert it: {command}" if command else ""


def require_columns(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Raise an error if a table lacks a column."""
    known = list(dict.fromkeys(name for row in rows for name in row.values))
    missing = [name for name in columns if name not in known]
    if not missing:
        return
    hints = "".join(dict.fromkeys(_similar_column(name, known) for name in missing))
    nested = dict.fromkeys(name for row in rows for name in sorted(row.nested))
    if nested:
        hints += (
            f"Keys within {format_list(nested)}, a list or an object, are no columns: "
            "write them as columns of their own, for example with "
            "pandas.json_normalize. "
        )
    raise InputError(
        f"The table must have the columns {format_list(columns)}",
        f"{rows[0].source} without {format_list(missing)}; it has "
        f"{format_list(known, 30)}",
        f"{hints}Name columns of the first line, or check that this is the right file"
        + ", with commas between columns (.csv) or tabs (.tsv)" * (len(known) == 1),
    )


def _similar_column(name: str, known: Sequence[str]) -> str:
    """Return a hint to a column with a similar name; empty: there is none."""
    for other in known:
        if "," in other and name in map(str.strip, other.split(",")):
            return f"A name with a comma needs quotes: --text_columns='\"{other}\"'. "
    forms = {fold(other.strip("\"' \t")): other for other in reversed(known)}
    joined = [other for other in known if name in re.split("[，；、]", other)]
    close = difflib.get_close_matches(fold(name), forms, 1, 0.8)
    guess = next(iter([*map(forms.get, close), *joined]), None)
    if guess is None:
        return ""
    name, guess = quote_names([name, guess])
    return f"For {name} did you mean {guess}? Correct the first line, or the name. "


def read_tfds(name: str, split: str) -> list[Row]:
    """Read a split of a data set that TFDS has prepared on this machine."""
    import tensorflow_datasets as tfds

    dataset, info = load_tfds(name, split)

    def to_text(column: str, value: Any) -> str:
        feature = info.features[column]
        if isinstance(feature, tfds.features.ClassLabel):
            return feature.int2str(int(value)) if value >= 0 else ""
        return value.decode() if isinstance(value, bytes) else str(value)

    source = f"{TFDS}{name}@{split}"
    rows = [
        Row({c: to_text(c, v) for c, v in values.items()}, source, number)
        for number, values in enumerate(dataset.as_numpy_iterator(), 1)
    ]
    return _required(rows, source)


def has_tfds(name: str, split: str) -> bool:
    """Return whether TFDS has prepared a split of a data set on this machine."""
    import tensorflow_datasets as tfds

    try:
        folder = os.environ.get("TFDS_DATA_DIR")
        builder = tfds.builder(name, data_dir=folder, try_gcs=False)
    except (AssertionError, ValueError, ImportError, OSError):
        return False
    return split in builder.info.splits
