"""GLUE tasks as a table of files, columns, labels and metrics; their files."""

import dataclasses
import os
import pathlib
import zipfile
from collections.abc import Mapping, Sequence

from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.tasks.data import table as table_reader
from electra_tf.tasks.data.files import has_tfds
from electra_tf.tasks.data.splits import find_file
from electra_tf.tasks.data.table import Table
from electra_tf.text.files import COMPRESSION_SUFFIXES, is_tfds

_TFDS_COLUMNS = {  # column of TFDS by the published column that it replaces
    "#1 String": "sentence1", "#2 String": "sentence2", "Quality": "label",
    "sentence1": "premise", "sentence2": "hypothesis",
    "is_duplicate": "label", "gold_label": "label", "score": "label",
}  # fmt: skip
_TFDS_LABELS = {"mrpc": ("not_equivalent", "equivalent"),
                "qqp": ("not_duplicate", "duplicate"),
                "cola": ("unacceptable", "acceptable"),
                "sst2": ("negative", "positive"),
                "wnli": ("not_entailment", "entailment")}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueTask:
    """Files, columns, labels, metrics and published epochs of a task."""

    folder: str  # name of the published folder
    texts: tuple[str, ...]  # column of the text, or the two of a pair
    label: str  # column of the label or score
    labels: tuple[str, ...] | None  # names of the classes in order; None: scores
    metrics: tuple[str, ...]  # names of the metrics; the first is the paper's (table 2)
    files: Mapping[str, int]  # rows of each test set, by its leaderboard file
    header: tuple[str, ...] | None = None  # columns of train and dev without a header
    unordered: bool = False  # whether the order of the two texts has no meaning
    epochs: int = 3  # published number of epochs (paper, appendix B)
    dev: tuple[str, ...] = ("dev",)  # stems of the dev files
    test: tuple[str, ...] = ("test",)  # stems of the test files, those of `files`
    range: tuple[float, float] = (0.0, 1.0)  # lowest and highest score
    in_mean: bool = True  # whether the mean of all tasks includes it


_WORDS = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")
_BINARY = ("0", "1")

ALL = "glue"
"""Value of --task for all tasks that have data."""
TASKS: dict[str, GlueTask] = {
    "cola": GlueTask(
        folder="CoLA", texts=("sentence",), label="label", labels=_BINARY,
        metrics=("mcc", "accuracy"), files={"CoLA": 1063},
        header=("source", "label", "mark", "sentence"),
    ),
    "sst2": GlueTask(
        folder="SST-2", texts=("sentence",), label="label", labels=_BINARY,
        metrics=("accuracy",), files={"SST-2": 1821},
    ),
    "mrpc": GlueTask(
        folder="MRPC", texts=("#1 String", "#2 String"), label="Quality",
        labels=_BINARY, metrics=("accuracy", "f1"), files={"MRPC": 1725},
        unordered=True,
    ),
    "stsb": GlueTask(
        folder="STS-B", texts=("sentence1", "sentence2"), label="score", labels=None,
        metrics=("spearman", "pearson"), files={"STS-B": 1379}, unordered=True,
        epochs=10, range=(0.0, 5.0),
    ),
    "qqp": GlueTask(
        folder="QQP", texts=("question1", "question2"), label="is_duplicate",
        labels=_BINARY, metrics=("accuracy", "f1"), files={"QQP": 390965},
    ),
    "mnli": GlueTask(
        folder="MNLI", texts=("sentence1", "sentence2"), label="gold_label",
        labels=_NLI, metrics=("accuracy",), files={"MNLI-m": 9796, "MNLI-mm": 9847},
        dev=("dev_matched", "dev_mismatched"),
        test=("test_matched", "test_mismatched"),
    ),
    "qnli": GlueTask(
        folder="QNLI", texts=("question", "sentence"), label="label", labels=_WORDS,
        metrics=("accuracy",), files={"QNLI": 5463},
    ),
    "rte": GlueTask(
        folder="RTE", texts=("sentence1", "sentence2"), label="label", labels=_WORDS,
        metrics=("accuracy",), files={"RTE": 3000}, epochs=10,
    ),
    "wnli": GlueTask(
        folder="WNLI", texts=("sentence1", "sentence2"), label="label",
        labels=_BINARY, metrics=("accuracy",), files={"WNLI": 146}, in_mean=False,
    ),
    # The diagnostic set has no training data; the model of MNLI predicts it.
    "ax": GlueTask(
        folder="AX", texts=("sentence1", "sentence2"), label="gold_label",
        labels=_NLI, metrics=("mcc",), files={"AX": 1104}, dev=(), test=("diagnostic",),
    ),
}  # fmt: skip


def training_task(name: str) -> str:
    """Return the task whose training data and model a task has."""
    return "mnli" if name == "ax" else name


def find(data: str, task: str, stem: str) -> str | None:
    """Return path or TFDS name of a split, a plain file first; None: there is none."""
    if is_tfds(data):
        name = _tfds_name(data, task, stem)
        return name if has_tfds(name) else None
    # dev_matched.reduced.tsv, for example, has some of the published columns.
    groups = [[f"{stem}.tsv{suffix}"] for suffix in COMPRESSION_SUFFIXES]
    groups.append([f"{stem}.*.tsv{suffix}" for suffix in COMPRESSION_SUFFIXES])
    for folder in (os.path.join(data, TASKS[task].folder), data):
        if path := find_file(folder, f"{task}'s {stem}", *groups):
            return path
    return None


def require(data: str, task: str, stem: str) -> str:
    """Return the path of a split, or its TFDS name, which `read` checks."""
    if is_tfds(data):
        return _tfds_name(data, task, stem)
    path = find(data, task, stem)
    if path is None:
        raise InputError(
            f"--data must contain {task}'s {stem}.tsv, optionally .gz or .xz, and "
            f"there is none in {data} or {data}/{TASKS[task].folder}"
        )
    return path


def is_whole(data: str) -> bool:
    """Return whether data is a folder or a data set of TFDS, and not one split."""
    return os.path.isdir(data) or (is_tfds(data) and "@" not in data)


def dev_files(data: str, task: str) -> dict[str, str]:
    """Return the dev files of a folder or of TFDS by stem; there must be one."""
    stems = TASKS[task].dev
    files = {stem: find(data, task, stem) for stem in stems}
    files = {stem: path for stem, path in files.items() if path}
    return files or {stems[0]: require(data, task, stems[0])}


def read(path: str, task: str) -> Table:
    """Read the rows of a split, with the columns named in `TASKS`."""
    glue_task = TASKS[task]
    if is_tfds(path):
        table = table_reader.read(path)
        # TFDS shuffles rows on writing; a prediction is identified by its row's number.
        if numbers := table.columns.get("idx"):
            table = table.take(sorted(range(len(table)), key=lambda n: int(numbers[n])))
        columns: dict[str, Sequence[str]] = {}
        for column in (*glue_task.texts, glue_task.label):
            in_tfds = column if column in table.columns else _TFDS_COLUMNS.get(column)
            if in_tfds in table.columns:
                columns[column] = table.texts(in_tfds)
        names = {name: str(n) for n, name in enumerate(_TFDS_LABELS.get(task, ()))}
        if labels := columns.get(glue_task.label):
            columns[glue_task.label] = [names.get(label, label) for label in labels]
        return dataclasses.replace(table, columns=columns)
    stem = pathlib.Path(path).name.split(".")[0]
    has_no_header = stem in ("train", *glue_task.dev)
    names = glue_task.header if has_no_header else None
    return table_reader.read(path, names=names)


def _tfds_name(data: str, task: str, stem: str) -> str:
    split = stem.replace("dev", "validation").replace("diagnostic", "test")
    return f"{data.rstrip('/')}/{task}@{split}"


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
            if len(words) != rows:
                raise InputError(
                    f"{name} must have predictions for the {rows} rows of the "
                    f"published test set, and has {len(words)} predictions"
                )
            lines = ["index\tprediction", *(f"{n}\t{w}" for n, w in enumerate(words))]
            # A fixed date, so that equal predictions give equal bytes.
            entry = zipfile.ZipInfo(f"{name}.tsv", (1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, "\n".join(lines) + "\n", zipfile.ZIP_DEFLATED)
    return filled
