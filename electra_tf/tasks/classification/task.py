"""Tasks of one text or two with a class or a score: GLUE's, and any table."""

import collections
import dataclasses
import glob
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from electra_tf.config.finetuning import DataConfig, FinetuningConfig
from electra_tf.errors import InputError, listed
from electra_tf.tasks.batching import EncodedExamples
from electra_tf.tasks.classification import glue, metrics
from electra_tf.tasks.classification.model import TextClassifier, TextRegressor
from electra_tf.tasks.classification.splits import (
    empty_texts,
    split_dev,
    suspicious_labels,
)
from electra_tf.tasks.data.tables import (
    FORMATS,
    TFDS,
    Row,
    has_tfds,
    read_rows,
    require_columns,
)
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.tasks.task import Split, Task
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.compression import SUFFIXES
from electra_tf.text.data_errors import DataError, DataErrorLog

_SHOWN = 20
SCORE_METRICS = ("spearman", "pearson", "mse")
"""Of a table with a column of scores."""


class ClassificationTask(Task):
    """Classes or scores of texts or pairs.

    Args:
        name: As typed.
        parts: By name; targets are names of classes, or numbers.
        metrics: What is measured; the first tells trials apart.
        labels: The classes; None: scores.
        bounds: The lowest and the highest score.
        unordered: Train on both orders of the two texts.
        clipped: Whether scores beyond the bounds are brought to them.
    """

    def __init__(
        self,
        name: str,
        parts: dict[str, Split],
        metrics: Sequence[str],
        labels: Sequence[str] | None = None,
        bounds: tuple[float, float] = (0.0, 1.0),
        unordered: bool = False,
        clipped: bool = True,
    ):
        super().__init__(name, parts, metrics[0])
        self.metrics, self.labels = tuple(metrics), labels and tuple(labels)
        self.bounds, self.unordered, self._clipped = bounds, unordered, clipped

    @property
    def label_counts(self) -> str:
        """`2,443 of class '0'`, and so on, so that a class by mistake is seen."""
        if self.labels is None:
            return ""
        counts = collections.Counter(self.splits["train"].targets)
        words = [f"{counts[label]:,} of class {label!r}" for label in self.labels]
        more = [f"and {len(words) - _SHOWN:,} more"] * (len(words) > _SHOWN)
        return ", ".join(words[:_SHOWN] + more)

    def model(
        self, start: PretrainedEncoder, settings: FinetuningConfig, seed: int
    ) -> TextModel:
        """A classifier or a regressor."""
        if self.labels is None:
            return TextRegressor(start, *self.bounds, settings=settings, seed=seed)
        return TextClassifier(start, self.labels, settings, seed)

    def training_examples(self, model: TextModel) -> EncodedExamples:
        """The training part, both orders of it where that is published."""
        part = self.splits["train"]
        texts, targets = list(part.items), list(part.targets or ())
        if self.unordered and model.settings.data.double_unordered:
            texts += [tuple(reversed(pair)) for pair in texts]
            targets *= 2
        return model.examples(texts, targets)

    def score(self, part: Split, predictions: Any) -> dict[str, float]:
        """The task's metrics, times 100."""
        gold, said = self._compared(part, predictions)
        return {name: metrics.METRICS[name](gold, said) for name in self.metrics}

    def degenerate(self, part: Split, predictions: Any) -> str | None:
        """Whether it always says the same."""
        gold, said = self._compared(part, predictions)
        named = metrics.is_degenerate(said, gold)
        if named and self.labels is not None:
            return f"always predicts {self.labels[int(said[0])]}"
        return named

    def write(self, part: Split, predictions: Any, path: str) -> None:
        """A table in GLUE's form, with the rows' places if their numbers say none."""
        lines = ["index\tprediction", *self.answers(predictions)]
        if part.places is not None:
            ends = zip(lines, ["place", *part.places], strict=True)
            lines = [f"{line}\t{end}" for line, end in ends]
        pathlib.Path(f"{path}.tsv").write_text("\n".join(lines) + "\n", "utf-8")

    def answers(self, predictions: Any) -> list[str]:
        """Lines of number and label, or score.

        Args:
            predictions: What `predict` returned.

        Returns:
            One line for each item.
        """
        if self.labels is None:
            words = [f"{score:.7g}" for score in self._scores(predictions)]
        else:
            words = [self.labels[number] for number in np.argmax(predictions, -1)]
        return [f"{number}\t{word}" for number, word in enumerate(words)]

    def _scores(self, predictions: Any) -> np.ndarray:
        """As they are submitted, and so measured."""
        scores = np.array(predictions, np.float64)
        return np.clip(scores, *self.bounds) if self._clipped else scores

    def _compared(self, part: Split, predictions: Any) -> tuple[Any, Any]:
        targets = part.targets or ()
        if self.labels is None:
            return np.array(targets, np.float64), self._scores(predictions)
        numbers = [self.labels.index(label) for label in targets]
        return np.array(numbers), np.argmax(predictions, -1)


def glue_task(name: str, data: str, log: DataErrorLog) -> ClassificationTask:
    """Reads a GLUE task's files.

    Args:
        name: A key of `glue.TASKS`; the training data of `ax` is MNLI's.
        data: GLUE's folder, the task's own, or `tfds:glue`.
        log: Where bad rows are told.

    Returns:
        The task, with what files there are; train and dev have to be, for `ax` the
        diagnostic set too.

    Raises:
        InputError: No such files, or a bad row, unless the log goes on.
    """
    learnt = "mnli" if name == "ax" else name
    if name == "ax":
        glue.require(data, name, glue.TASKS[name].test[0])
    row, parts = glue.TASKS[learnt], {}
    parts["train"] = _glue_part(learnt, glue.require(data, learnt, "train"), log)
    glue.require(data, learnt, row.dev[0])
    for stem in row.dev:
        if path := glue.find(data, learnt, stem):
            parts[stem] = _glue_part(learnt, path, log)
    tests = {stem: learnt for stem in row.test}
    tests |= {stem: "ax" for stem in glue.TASKS["ax"].test if learnt == "mnli"}
    for stem, of in tests.items():
        if path := glue.find(data, of, stem):
            parts[stem] = _glue_part(of, path, log, labelled=False)
    return ClassificationTask(
        name, parts, row.metrics, row.labels, row.range, row.unordered
    )


def csv_task(
    data: str,
    settings: DataConfig,
    log: DataErrorLog,
    tell: Callable[[str], None] = print,
) -> ClassificationTask:
    """Reads any table of texts with a column of classes or scores.

    Args:
        data: A file, or a folder with train.csv (or .tsv, .jsonl) and perhaps dev and
            test; or `tfds:NAME`.
        settings: Names of the columns; how dev is split off where it is missing.
        log: Where bad rows are told.
        tell: Called with lines about suspicious labels, the dev part and the metrics.

    Returns:
        The task; its classes are those of the training data.

    Raises:
        InputError: Columns that are not there, classes that only dev has, no rows.
    """
    target, scores = _target_column(settings), settings.label_column is None
    parts: dict[str, Split] = {}
    labels = None
    for name, path in _files(data).items():
        told = log.counts.total()
        rows = read_rows(path, log)
        told_of = (row.values.get(target, "") for row in rows)
        labelled = name != "test" or any(map(str.strip, told_of))
        columns = (*settings.text_columns, *([target] if labelled else []))
        require_columns(rows, columns)
        asked = target if labelled else None
        part = _part(rows, settings.text_columns, asked, scores, log, labels)
        for line in empty_texts(part):
            tell(f"csv: warning: {line}")
        # Those of train are needed if dev is split off.
        parts[name] = part if name == "train" else _numbered(part, path, log, told)
        if name == "train" and not scores:
            labels = sorted(set(part.targets))
            for line in suspicious_labels(rows, target):
                tell(f"csv: warning: {path}: {line}")
    if "dev" not in parts:
        split = split_dev(parts["train"], settings, scores, tell)
        parts = {**split, **{k: v for k, v in parts.items() if k != "train"}}
    return _scored(parts, labels, target, tell)


def _scored(
    parts: dict[str, Split],
    labels: Sequence[str] | None,
    target: str,
    tell: Callable[[str], None],
) -> ClassificationTask:
    """The task with the metrics that its classes or scores need, which are printed."""
    if labels is None:
        values = parts["train"].targets
        bounds = float(min(values)), float(max(values))
        if bounds[0] == bounds[1]:
            raise InputError(
                "Scores differ", f"{target}: all are {bounds[0]}", "Check the column"
            )
        metrics = ("spearman", "pearson", "mse")  # there may be more than in train
        tell(
            f"csv: {target!r} holds numbers, so it is scored by {', '.join(metrics)}; "
            "spearman compares trials"
        )
        return ClassificationTask("csv", parts, metrics, None, bounds, clipped=False)
    if len(labels) < 2:
        raise InputError(
            "There must be two classes or more",
            f"only {labels} in the column {target!r}",
            "Check the label column",
        )
    binary = set(labels) == {"0", "1"}
    metrics = ("accuracy", "mcc", "f1" if binary else "macro_f1")
    reason = (
        "f1 is that of the class '1', as the classes are '0' and '1'"
        if binary
        else f"macro_f1 is the mean F1 of the {len(labels):,} classes, as they are not "
        "'0' and '1'"
    )
    tell(f"csv: scored by {', '.join(metrics)}; {reason}; accuracy compares trials")
    return ClassificationTask("csv", parts, metrics, labels)


def _target_column(settings: DataConfig) -> str:
    """The column of classes or scores, of settings that say what is needed."""
    texts = settings.text_columns
    targets = [c for c in (settings.label_column, settings.score_column) if c]
    if len(texts) in (1, 2) and len(targets) == 1 and targets[0] not in texts:
        return targets[0]
    raise InputError(
        "--task=csv needs the names of the table's columns: one or two of text, and "
        "another one of labels or of scores",
        f"--text_columns={','.join(texts)} and --label_column="
        f"{settings.label_column} and --score_column={settings.score_column}",
        "Pass --text_columns=review --label_column=label, or --score_column=stars",
    )


def class_metrics(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics of a table with a column of classes.

    Args:
        labels: The classes.

    Returns:
        Names of `scoring.METRICS`.
    """
    return ("accuracy", "mcc", "f1" if set(labels) == {"0", "1"} else "macro_f1")


def labelled_part(
    rows: list[Row],
    texts: Sequence[str],
    target: str,
    labels: Sequence[str] | None,
    bounds: tuple[float, float],
    log: DataErrorLog,
) -> Split:
    """Return the texts and targets of the rows of a labelled table.

    Args:
        rows: One or more.
        texts: The columns of the texts.
        target: The column of the label or the score.
        labels: The classes; None: scores.
        bounds: The lowest and the highest score there may be.
        log: Gets the rows that are bad.

    Returns:
        A part.

    Raises:
        InputError: No row is usable.
    """
    return _part(rows, texts, target, labels is None, log, labels, bounds)


def _glue_part(name: str, path: str, log: DataErrorLog, labelled: bool = True) -> Split:
    row, told = glue.TASKS[name], log.counts.total()
    rows = glue.read(path, name, log)
    require_columns(rows, (*row.texts, *([row.label] if labelled else [])))
    target = row.label if labelled else None
    scores = row.labels is None
    part = _part(rows, row.texts, target, scores, log, row.labels, row.range)
    return _numbered(part, path, log, told)


def _part(
    rows: list[Row],
    texts: Sequence[str],
    target: str | None,
    scores: bool,
    log: DataErrorLog,
    labels: Sequence[str] | None = None,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> Split:
    """Texts and targets of the rows that have both."""
    items, targets, places = [], [], []
    for row in rows:
        missing = [column for column in texts if column not in row.values]
        nested = [c for c in (*texts, target) if c in row.nested]
        kind, detail, value = None, "", None
        if missing:
            kind, detail = "no text", f"without {listed(missing)}"
        elif nested:
            value = row.values[nested[0]]
            kind = "a nested value"
            detail = f"{nested[0]!r} is a list or an object: {value:.60}"
        elif target is not None:
            value, kind = _target(row.values.get(target, ""), scores, labels, bounds)
            detail = f"{target!r} is {row.values.get(target)!r}"
            detail += "" if kind is None else _expected(scores, labels, bounds)
        if kind:
            log.add(DataError(row.source, row.line, kind, detail, "Mend that row"))
            continue
        targets.append(value)
        places.append(str(row))
        columns = tuple(row.values[column] for column in texts)
        items.append(columns[0] if len(columns) == 1 else columns)
    if not items:
        raise InputError(
            f"{rows[0].source} has one usable row or more",
            f"{len(rows)} rows, all of them bad",
            "Check the columns and the labels",
        )
    return Split(items, None if target is None else targets, places)


def _target(
    value: str,
    scores: bool,
    labels: Sequence[str] | None,
    bounds: tuple[float, float],
) -> tuple[Any, str | None]:
    """A class or a score without white space around it, and what is wrong with it."""
    if not scores:
        value = value.strip()
        if not value:
            return value, "no label"
        known = labels is None or value in labels
        return value, None if known else "an unknown label"
    try:
        number = float(value)
    except ValueError:
        return value, "no number"
    if not np.isfinite(number):
        return value, "no finite number"
    good = bounds[0] <= number <= bounds[1]
    return number, None if good else "a score out of range"


def _expected(
    scores: bool, labels: Sequence[str] | None, bounds: tuple[float, float]
) -> str:
    if scores and np.all(np.isfinite(bounds)):
        return f"; scores are from {bounds[0]:g} to {bounds[1]:g}"
    if scores or labels is None:
        return ""
    return f"; known: {listed(labels)}"


def _numbered(part: Split, path: str, log: DataErrorLog, told: int) -> Split:
    """The part without places, unless its file has lost rows since `told` problems."""
    lost = log.counts.total() - told
    if not lost:
        return dataclasses.replace(part, places=None)
    if part.targets is None:
        raise InputError(
            "All rows of a file without labels can be read, as an answer is told by "
            "the number of its row",
            f"{path}, with {lost} bad ones",
            "Mend the rows that the file of problems lists",
        )
    return part


def _files(data: str) -> dict[str, str]:
    """The files of the parts, train first."""
    if data.startswith(TFDS):
        splits = {"train": "train", "dev": "validation", "test": "test"}
        name = data.removeprefix(TFDS)
        return {
            part: f"{data}@{split}"
            for part, split in splits.items()
            if part == "train" or has_tfds(name, split)
        }
    if os.path.isfile(data):
        return {"train": data}
    found = {}
    for name in ("train", "dev", "test"):
        places = [
            f"{glob.escape(data)}/{name}{kind}{suffix}"
            for kind in FORMATS
            for suffix in SUFFIXES
        ]
        files = [path for place in places for path in glob.glob(place)]
        if len(files) > 1:
            raise InputError(
                f"There is one file of {name} in {data}",
                ", ".join(pathlib.Path(file).name for file in files),
                "Leave one of them there",
            )
        if files:
            found[name] = files[0]
    if "train" not in found:
        raise InputError(
            "--data is a table, or a folder with a train.csv (or .tsv, .jsonl), and "
            "perhaps dev and test",
            f"{data!r}, where there is no such file",
            "Check the path",
        )
    return found
