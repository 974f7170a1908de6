"""GLUE tasks as a table of files, columns, labels and metrics; their files."""

import dataclasses
import os
import pathlib
import zipfile
from collections.abc import Mapping, Sequence

from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.tasks.data import table as table_reader
from electra_tf.tasks.data.columns import Columns
from electra_tf.tasks.data.files import has_tfds
from electra_tf.tasks.data.splits import find_file
from electra_tf.tasks.data.table import Table
from electra_tf.text.files import COMPRESSION_SUFFIXES, is_tfds


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueTask(Columns):
    """Columns, files, metrics and published epochs of a task."""

    folder: str  # name of the published folder
    metrics: tuple[str, ...]  # names of the metrics; the first is the paper's (table 2)
    files: Mapping[str, int]  # rows of each test set, by its leaderboard file
    header: tuple[str, ...] | None = None  # columns of train and dev without a header
    unordered: bool = False  # whether the order of the two texts has no meaning
    epochs: int = 3  # published number of epochs (paper, appendix B)
    dev: tuple[str, ...] = ("dev",)  # stems of the dev files
    test: tuple[str, ...] = ("test",)  # stems of the test files, those of `files`
    tfds_texts: tuple[str, ...] = ()  # columns of TFDS in place of `texts`
    tfds_labels: tuple[str, ...] = ()  # names of TFDS in place of `labels`


_WORDS = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")
_BINARY = ("0", "1")

ALL = "glue"
"""Value of --task for all tasks that have data."""
TASKS: dict[str, GlueTask] = {
    "cola": GlueTask(
        folder="CoLA", texts=("sentence",), target="label", labels=_BINARY,
        metrics=("mcc", "accuracy"), files={"CoLA": 1063},
        header=("source", "label", "mark", "sentence"),
        tfds_labels=("unacceptable", "acceptable"),
    ),
    "sst2": GlueTask(
        folder="SST-2", texts=("sentence",), target="label", labels=_BINARY,
        metrics=("accuracy",), files={"SST-2": 1821},
        tfds_labels=("negative", "positive"),
    ),
    "mrpc": GlueTask(
        folder="MRPC", texts=("#1 String", "#2 String"), target="Quality",
        labels=_BINARY, metrics=("accuracy", "f1"), files={"MRPC": 1725},
        unordered=True, tfds_texts=("sentence1", "sentence2"),
        tfds_labels=("not_equivalent", "equivalent"),
    ),
    "stsb": GlueTask(
        folder="STS-B", texts=("sentence1", "sentence2"), target="score", labels=None,
        metrics=("spearman", "pearson"), files={"STS-B": 1379}, unordered=True,
        epochs=10, bounds=(0.0, 5.0),
    ),
    "qqp": GlueTask(
        folder="QQP", texts=("question1", "question2"), target="is_duplicate",
        labels=_BINARY, metrics=("accuracy", "f1"), files={"QQP": 390965},
        tfds_labels=("not_duplicate", "duplicate"),
    ),
    "mnli": GlueTask(
        folder="MNLI", texts=("sentence1", "sentence2"), target="gold_label",
        labels=_NLI, metrics=("accuracy",), files={"MNLI-m": 9796, "MNLI-mm": 9847},
        dev=("dev_matched", "dev_mismatched"),
        test=("test_matched", "test_mismatched"), tfds_texts=("premise", "hypothesis"),
    ),
    "qnli": GlueTask(
        folder="QNLI", texts=("question", "sentence"), target="label", labels=_WORDS,
        metrics=("accuracy",), files={"QNLI": 5463},
    ),
    "rte": GlueTask(
        folder="RTE", texts=("sentence1", "sentence2"), target="label", labels=_WORDS,
        metrics=("accuracy",), files={"RTE": 3000}, epochs=10,
    ),
    "wnli": GlueTask(
        folder="WNLI", texts=("sentence1", "sentence2"), target="label",
        labels=_BINARY, metrics=("accuracy",), files={"WNLI": 146},
        tfds_labels=("not_entailment", "entailment"),
    ),
    # The diagnostic set has no training data; the model of MNLI predicts it.
    "ax": GlueTask(
        folder="AX", texts=("sentence1", "sentence2"), target="gold_label",
        labels=_NLI, metrics=("mcc",), files={"AX": 1104}, dev=(), test=("diagnostic",),
        tfds_texts=("premise", "hypothesis"),
    ),
}  # fmt: skip


def training_task(name: str) -> str:
    """Return the task whose training data and model a task has."""
    return "mnli" if name == "ax" else name


def find(data: str, task: str, stem: str, is_required: bool = False) -> str | None:
    """Return path or TFDS name of a split, a plain file first; None: there is none.

    A required name of TFDS is returned unchecked, as reading it raises the error.
    """
    if is_tfds(data):
        split = stem.replace("dev", "validation").replace("diagnostic", "test")
        name = f"{data.rstrip('/')}/{task}@{split}"
        return name if is_required or has_tfds(name) else None
    # dev_matched.reduced.tsv, for example, has some of the published columns.
    groups = [[f"{stem}.tsv{suffix}"] for suffix in COMPRESSION_SUFFIXES]
    groups.append([f"{stem}.*.tsv{suffix}" for suffix in COMPRESSION_SUFFIXES])
    for folder in (os.path.join(data, TASKS[task].folder), data):
        if path := find_file(folder, f"{task}'s {stem}", *groups):
            return path
    if is_required:
        raise InputError(
            f"--data must contain {task}'s {stem}.tsv, optionally .gz or .xz, and "
            f"there is none in {data} or {data}/{TASKS[task].folder}"
        )
    return None


def labelled_files(data: str, task: str) -> dict[str, str]:
    """Return the dev files of a folder or of TFDS by stem, or one file as `data`."""
    if not (os.path.isdir(data) or (is_tfds(data) and "@" not in data)):
        return {"data": data}
    stems = TASKS[task].dev
    files = {stem: path for stem in stems if (path := find(data, task, stem))}
    return files or {stems[0]: find(data, task, stems[0], is_required=True)}


def read(path: str, task: str) -> Table:
    """Read the rows of a split, with the columns named in `TASKS`."""
    row, stem = TASKS[task], pathlib.Path(path).name.split(".")[0]
    if not is_tfds(path):
        names = row.header if stem in ("train", *row.dev) else None
        return table_reader.read(path, names=names)
    table = table_reader.read(path)
    # TFDS shuffles rows on writing; a prediction is identified by its row's number.
    if numbers := table.columns.get("idx"):
        table = table.take(sorted(range(len(table)), key=lambda n: int(numbers[n])))
    names = dict(zip(row.tfds_texts or row.texts, row.texts, strict=True))
    columns = {
        names[name]: table.texts(name) for name in names if name in table.columns
    }
    if "label" in table.columns:
        labels = dict(zip(row.tfds_labels, row.labels or (), strict=False))
        cells = table.texts("label")
        columns[row.target] = [labels.get(cell, cell) for cell in cells]
    return dataclasses.replace(table, columns=columns)


def submission_files() -> dict[str, tuple[str, str, int]]:
    """Return (task, stem of the test file, rows) by name of the submitted file."""
    return {
        name: (task, stem, rows)
        for task, row in TASKS.items()
        for (name, rows), stem in zip(row.files.items(), row.test, strict=True)
    }


def write_submission(path: str, predictions: Mapping[str, Sequence[str]]) -> list[str]:
    """Write the leaderboard's zip; return its files that hold a constant."""
    filled = []
    with (
        durable_files.replacing(path, "wb") as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, (task, _, rows) in submission_files().items():
            words = predictions.get(name)
            if words is None:
                labels = TASKS[task].labels
                words = [labels[0] if labels else "0.000"] * rows
                filled.append(name)
            lines = ["index\tprediction", *(f"{n}\t{w}" for n, w in enumerate(words))]
            # A fixed date, so that equal predictions give equal bytes.
            entry = zipfile.ZipInfo(f"{name}.tsv", (1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, "\n".join(lines) + "\n", zipfile.ZIP_DEFLATED)
    return filled
