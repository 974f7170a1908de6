"""Open the files of a task's data, and read them as text."""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from electra_tf.errors import InputError
from electra_tf.text import files
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import TFDS_PREFIX
from electra_tf.text.lines import OpenFile

Notify = Callable[[str], None]  # function that gets a line for the user
STANDARD_INPUT = "standard input"
_STOP = DataErrorLog("stop")


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
def opened(path: str | None, names: Sequence[str] | None = None) -> Iterator[OpenFile]:
    """Open a file or standard input, whose first invalid row is an error.

    `names`: columns of a file without header.
    """
    if path is None and sys.stdin is None:
        raise InputError("--input must be set, as standard input is closed")
    name = path or STANDARD_INPUT
    report = functools.partial(_STOP.add, name)
    try:
        with sys.stdin.buffer if path is None else open(path, "rb") as stored:
            file = files.decompressed(name, stored)
            yield OpenFile(name, file, report, names=names)
    except (OSError, *files.BROKEN) as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"{name} must be readable to its end: {reason}") from error


def has_tfds(source: str) -> bool:
    """Return whether TFDS has prepared a split `tfds:NAME@SPLIT` on this machine."""
    import tensorflow_datasets as tfds

    name, _, split = source.removeprefix(TFDS_PREFIX).partition("@")
    try:
        folder = os.environ.get("TFDS_DATA_DIR")
        builder = tfds.builder(name, data_dir=folder, try_gcs=False)
    except (AssertionError, ValueError, ImportError, OSError):
        return False
    return split in builder.info.splits
