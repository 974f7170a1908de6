"""Whole files of text and JSON, names of TFDS, and formats that are no input."""

import os
import re
from collections.abc import Iterator
from typing import Any

from electra_tf.errors import InputError
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import (
    BROKEN,
    encoding_remedy,
    inner_suffix,
    open_compressed,
)
from electra_tf.text.rows import JSON_SUFFIXES, json_values

TFDS = "tfds:"
TABLES = (".tsv", ".csv", *JSON_SUFFIXES, ".parquet")
"""Suffixes of tables."""
_UNDECODED = re.compile("[\udc80-\udcff]")  # surrogates that stand for invalid bytes
_SPREADSHEETS = (".xlsx", ".xls", ".ods")


def conversion(path: str) -> str:
    """Return how to convert a file of a table that is not read; empty: unknown."""
    if inner_suffix(path) not in _SPREADSHEETS:
        return ""
    return (
        "Save it as .csv, or run pandas.read_excel(FILE).to_csv('NEW.csv', index=False)"
    )


def check_input_file(path: str | None) -> None:
    """Raise an error if a path cannot be an input of `predict`."""
    if path is None:
        return
    if not os.path.isfile(path):
        reason = "a folder" if os.path.isdir(path) else "no such file"
        raise InputError(
            "--input must be a file", f"{path!r}, {reason}", "Check the path"
        )
    if remedy := conversion(path):
        raise InputError(
            "--input must be lines of text, a table (.csv, .tsv, .jsonl, .json, "
            ".parquet), a column file for a tagger (.conll), or questions in SQuAD's "
            "format (.json)",
            f"{path!r}, a {inner_suffix(path)} file",
            remedy,
        )


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


def has_tfds(name: str, split: str) -> bool:
    """Return whether TFDS has prepared a split of a data set on this machine."""
    import tensorflow_datasets as tfds

    try:
        folder = os.environ.get("TFDS_DATA_DIR")
        builder = tfds.builder(name, data_dir=folder, try_gcs=False)
    except (AssertionError, ValueError, ImportError, OSError):
        return False
    return split in builder.info.splits
