"""Open the files of a task's data, and read them as text."""

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from electra_tf.errors import InputError
from electra_tf.text import files
from electra_tf.text.data_errors import data_error

Notify = Callable[[str], None]  # function that gets a line for the user
TFDS = "tfds:"
STANDARD_INPUT = "standard input"


def print_note(line: str) -> None:
    """Print a line to standard error, as standard output may be data."""
    print(line, file=sys.stderr)


def refuse_binary(path: str) -> None:
    """Raise an error for a spreadsheet or a DocBin, with what converts it."""
    if files.inner_suffix(path) in (".xlsx", ".xls", ".ods"):
        raise InputError(
            f"{path} must be .csv, .tsv, .jsonl, .json or .parquet; save it as .csv, "
            "or run pandas.read_excel(FILE).to_csv('NEW.csv', index=False)"
        )
    if files.inner_suffix(path) == ".spacy":
        raise InputError(
            f"{path} must be text, not a DocBin of spaCy 3; write json.dumps("
            "doc.to_json()) of each document as a line of a .jsonl"
        )


def check_input_file(path: str | None) -> None:
    """Raise an error if a path cannot be an input of `predict`."""
    if path is None:
        return
    if not os.path.isfile(path):
        raise InputError(f"--input must be a file, and {path!r} is none")
    refuse_binary(path)


@contextlib.contextmanager
def opened(path: str | None) -> Iterator[Any]:
    """Open a file, or standard input, as lines."""
    with reported(path or STANDARD_INPUT):
        if path is not None:
            with files.open_compressed(path) as file:
                yield file
            return
        if sys.stdin is None:
            raise InputError("--input must be set, as standard input is closed")
        stream = sys.stdin.buffer
        first = stream.readline()
        files.check_format(STANDARD_INPUT, first[: files.HEAD_BYTES])
        yield itertools.chain([first] if first else [], stream)


@contextlib.contextmanager
def reported(source: str) -> Iterator[None]:
    """Raise an InputError for a file that cannot be read."""
    try:
        yield
    except (OSError, *files.BROKEN) as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"{source} must be readable to its end: {reason}") from error


def read_text(path: str) -> str:
    """Read a file of UTF-8 text, which is not empty."""
    with opened(path) as file:
        content = file.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        content = error.object  # without the byte order mark
        line = content.count(b"\n", 0, error.start) + 1
        start = content.rfind(b"\n", 0, error.start) + 1
        column = len(content[start : error.start].decode()) + 1
        detail = f"byte 0x{content[error.start]:02X} at character {column}"
        remedy = files.ENCODING_REMEDY
        raise data_error(path, line, "invalid UTF-8", detail, remedy) from error
    if not text or text.isspace():
        raise InputError(f"{path} must have text, and is empty")
    return text


def has_tfds(source: str) -> bool:
    """Return whether TFDS has prepared a split `tfds:NAME@SPLIT` on this machine."""
    import tensorflow_datasets as tfds

    name, _, split = source.removeprefix(TFDS).partition("@")
    try:
        folder = os.environ.get("TFDS_DATA_DIR")
        builder = tfds.builder(name, data_dir=folder, try_gcs=False)
    except (AssertionError, ValueError, ImportError, OSError):
        return False
    return split in builder.info.splits
