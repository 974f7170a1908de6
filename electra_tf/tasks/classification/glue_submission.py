"""What GLUE's leaderboard takes: a zip of one file for each test set."""

import pathlib
import zipfile
from collections.abc import Mapping, Sequence

from electra_tf.errors import InputError
from electra_tf.tasks.classification import glue

_HEADER = "index\tprediction"
_DATE = (1980, 1, 1, 0, 0, 0)  # the same answers give the same bytes


def submission_files() -> dict[str, tuple[str, str, int]]:
    """The leaderboard's files: task, stem of the test file and number of rows."""
    return {
        name: (task, stem, rows)
        for task, row in glue.TASKS.items()
        for (name, rows), stem in zip(row.files.items(), row.test, strict=True)
    }


def write_submission(
    path: str | pathlib.Path, answers: Mapping[str, Sequence[str]]
) -> list[str]:
    """Writes the zip, whole; a task without answers gets one answer for all rows.

    Args:
        path: Of the zip.
        answers: By the leaderboard's file, a label or score for each row.

    Returns:
        The files that were filled up so.

    Raises:
        InputError: Another number of rows than the published test set has.
    """
    partial = pathlib.Path(path).with_suffix(".partial")
    filled = []
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (task, _, rows) in submission_files().items():
            words = answers.get(name)
            if words is None:
                labels = glue.TASKS[task].labels
                words = [labels[0] if labels else "0.000"] * rows
                filled.append(name)
            if len(words) != rows:
                raise InputError(
                    f"{name} has the {rows} rows of the published test set",
                    f"{len(words)} predictions",
                    "Use the whole test file",
                )
            lines = [_HEADER, *(f"{n}\t{word}" for n, word in enumerate(words))]
            entry = zipfile.ZipInfo(f"{name}.tsv", _DATE)
            archive.writestr(entry, "\n".join(lines) + "\n", zipfile.ZIP_DEFLATED)
    partial.replace(path)
    return filled
