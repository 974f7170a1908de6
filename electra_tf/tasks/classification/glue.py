"""GLUE as a table: a row for each task, and what the leaderboard wants to see."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from electra_tf.errors import InputError
from electra_tf.tasks.data.tables import TFDS, Row, has_tfds, read_table, read_tfds
from electra_tf.text.compression import SUFFIXES
from electra_tf.text.data_errors import DataErrorLog

_TFDS_COLUMNS = {  # theirs by ours, where ours is not there
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
    """A task's files, columns, labels, metric and published hyperparameters."""

    folder: str
    texts: tuple[str, ...]
    """The columns of the text, or of the pair."""
    label: str
    """The column of the label or score."""
    labels: tuple[str, ...] | None
    """The classes in order; None: a score."""
    metrics: tuple[str, ...]
    """What is measured; the first is the paper's (table 2)."""
    files: Mapping[str, int]
    """The leaderboard's files by name, with the rows of the published test sets."""
    header: tuple[str, ...] | None = None
    """The columns where train and dev files do not name them."""
    unordered: bool = False
    """Whether the two texts may change places."""
    epochs: int = 3
    """Published (paper, appendix B)."""
    dev: tuple[str, ...] = ("dev",)
    test: tuple[str, ...] = ("test",)
    """The stems of the files, one for each of `files`."""
    range: tuple[float, float] = (0.0, 1.0)
    """Of scores."""


_WORDS = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")
_BINARY = ("0", "1")

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
        labels=_BINARY, metrics=("accuracy",), files={"WNLI": 146},
    ),
    # The diagnostic set has no training data: MNLI's model answers it.
    "ax": GlueTask(
        folder="AX", texts=("sentence1", "sentence2"), label="gold_label",
        labels=_NLI, metrics=("mcc",), files={"AX": 1104}, dev=(), test=("diagnostic",),
    ),
}  # fmt: skip


def find(data: str, task: str, stem: str) -> str | None:
    """The file of a split.

    Args:
        data: GLUE's folder, a task's, or `tfds:glue`.
        task: A key of `TASKS`.
        stem: `train`, `dev`, `dev_matched`, ...

    Returns:
        Its path or TFDS name; None if there is none. A plain file goes before a
        compressed one of the same name.

    Raises:
        InputError: Several files that are parts of the published one.
    """
    if data.startswith(TFDS):
        name = _tfds_name(data, task, stem)
        known = has_tfds(*name.removeprefix(TFDS).split("@"))
        return name if known else None
    folder = pathlib.Path(data)
    for place in (folder / TASKS[task].folder, folder):
        for suffix in SUFFIXES:
            exact = place / f"{stem}.tsv{suffix}"
            if exact.exists():
                return str(exact)
        # Such as dev_matched.reduced.tsv, with some of the published columns.
        found = sorted(p for s in SUFFIXES for p in place.glob(f"{stem}.*.tsv{s}"))
        if len(found) > 1:
            raise InputError(
                f"There is one file of {task}'s {stem} in {place}",
                ", ".join(path.name for path in found),
                "Leave one of them there",
            )
        if found:
            return str(found[0])
    return None


def read(path: str, task: str, log: DataErrorLog) -> list[Row]:
    """The rows of a split, with the columns that `TASKS` names.

    Args:
        path: What `find` returned.
        task: A key of `TASKS`.
        log: Where bad rows are told.

    Returns:
        The rows.

    Raises:
        InputError: As `read_table`.
    """
    row = TASKS[task]
    if path.startswith(TFDS):
        name, split = path.removeprefix(TFDS).split("@")
        found = read_tfds(name, split)
        # TFDS shuffles as it writes, but an answer is told by its row's number.
        if "idx" in found[0].values:
            found.sort(key=lambda row: int(row.values["idx"]))
        return [_as_published(r, row, task) for r in found]
    stem = pathlib.Path(path).name.split(".")[0]
    names = row.header if stem in ("train", *row.dev) else None
    return read_table(path, log, names)


def require(data: str, task: str, stem: str) -> str:
    """The file of a split that has to be there.

    Args:
        data: As for `find`.
        task: As for `find`.
        stem: As for `find`.

    Returns:
        Its path.

    Raises:
        InputError: There is none; it says where it was looked for. What TFDS lacks
            `read` tells.
    """
    if data.startswith(TFDS):
        return _tfds_name(data, task, stem)
    path = find(data, task, stem)
    if path is None:
        raise InputError(
            f"--data holds {task}'s {stem}.tsv, as published, perhaps .gz or .xz",
            f"none in {data} and {data}/{TASKS[task].folder}",
            "Fetch GLUE's files, or name the folder they lie in",
        )
    return path


def _tfds_name(data: str, task: str, stem: str) -> str:
    split = stem.replace("dev", "validation").replace("diagnostic", "test")
    return f"{data.rstrip('/')}/{task}@{split}"


def _as_published(found: Row, row: GlueTask, task: str) -> Row:
    """A TFDS row under the published columns' names, with published labels."""
    values: dict[str, str] = {}
    for column in (*row.texts, row.label):
        theirs = column if column in found.values else _TFDS_COLUMNS.get(column)
        if theirs in found.values:
            values[column] = found.values[theirs]
    names: Sequence[str] = _TFDS_LABELS.get(task, ())
    if values.get(row.label) in names:
        values[row.label] = str(names.index(values[row.label]))
    return Row(values, found.source, found.line)
