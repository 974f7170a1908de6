"""Files of a task's data: open them, read them as text, refuse those of no use."""

import contextlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from electra_tf.errors import InputError
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import (
    BROKEN,
    HEAD_BYTES,
    check_format,
    encoding_remedy,
    inner_suffix,
    open_compressed,
)

Notify = Callable[[str], None]
"""Function that gets a line for the user."""
TFDS = "tfds:"
STANDARD_INPUT = "standard input"
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


@contextlib.contextmanager
def opened(path: str | None) -> Iterator[Any]:
    """Open a file, or standard input, as lines."""
    with reported(path or STANDARD_INPUT):
        if path is not None:
            with open_compressed(path) as file:
                yield file
            return
        stream = sys.stdin.buffer
        first = stream.readline()
        check_format("FILE", first[:HEAD_BYTES], is_decompressed=False)
        yield itertools.chain([first] if first else [], stream)


@contextlib.contextmanager
def reported(source: str) -> Iterator[None]:
    """Raise an InputError for a file that cannot be read."""
    try:
        yield
    except (OSError, *BROKEN) as error:
        raise InputError(
            f"{source} must be readable to its end",
            str(error) or type(error).__name__,
            "Check the path and its permissions, or copy the file again",
        ) from error


def read_text(path: str, log: DataErrorLog) -> str:
    """Read a file, with surrogates for bytes that are not UTF-8, which are reported."""
    with opened(path) as file:
        text = file.read().decode("utf-8-sig", "surrogateescape")
    if not text or text.isspace():
        raise InputError(
            f"{path} must contain text", "an empty file", "Copy the file again"
        )
    if has_bad_bytes(text):
        for number, line in enumerate(text.split("\n"), 1):
            if match := _UNDECODED.search(line):
                byte, column = ord(match[0]) - 0xDC00, match.start() + 1
                detail = f"byte 0x{byte:02X} at character {column}"
                remedy = encoding_remedy(path)
                log.add(path, number, "invalid UTF-8", detail, remedy)
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
