"""Submission to the GLUE leaderboard: a zip with one file for each test set."""

import pathlib
import zipfile
from collections.abc import Mapping, Sequence

from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.tasks import glue

_HEADER = "index\tprediction"
_DATE = (1980, 1, 1, 0, 0, 0)  # so that equal predictions give equal bytes


def submission_files() -> dict[str, tuple[str, str, int]]:
    """Return (task, stem of the test file, rows) by name of the submitted file."""
    return {
        name: (task, stem, rows)
        for task, row in glue.TASKS.items()
        for (name, rows), stem in zip(row.files.items(), row.test, strict=True)
    }


def write_submission(
    path: str | pathlib.Path, predictions: Mapping[str, Sequence[str]]
) -> list[str]:
    """Write the zip atomically, with a constant for tasks without predictions.

    Returns:
        Names of the files that hold a constant.
    """
    partial = pathlib.Path(path).with_suffix(".partial")
    filled = []
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (task, _, rows) in submission_files().items():
            words = predictions.get(name)
            if words is None:
                labels = glue.TASKS[task].labels
                words = [labels[0] if labels else "0.000"] * rows
                filled.append(name)
            if len(words) != rows:
                raise InputError(
                    f"{name} must have the {rows} rows of the published test set",
                    f"{len(words)} predictions",
                    "Use the whole test file",
                )
            lines = [_HEADER, *(f"{n}\t{word}" for n, word in enumerate(words))]
            entry = zipfile.ZipInfo(f"{name}.tsv", _DATE)
            archive.writestr(entry, "\n".join(lines) + "\n", zipfile.ZIP_DEFLATED)
    durable_files.publish(partial, path)
    return filled
