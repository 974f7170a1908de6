"""Classes and scores of texts and pairs: the tasks of GLUE, and any table."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks import text_data
from electra_tf.tasks.class_report import ClassReport, label_set_report
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.data import glue
from electra_tf.tasks.data.columns import Columns
from electra_tf.tasks.data.held_out import with_dev
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.labels import SEPARATOR, multi_hot
from electra_tf.tasks.metrics import describe_degenerate
from electra_tf.tasks.score import ScoredSplit
from electra_tf.tasks.task import LabelTask, check_count
from electra_tf.tasks.task_data import UNBOUNDED, Labelled, Reading, TaskData


class _TextTask(LabelTask):
    """Texts and pairs with a column of targets."""

    columns = (
        "text_columns",
        "label_column",
        "label_separator",
        "score_column",
        "split_column",
        "missing_text",
    )
    published: ClassVar = {n: {"epochs": t.epochs} for n, t in glue.TASKS.items()}

    def separator(self, model: TextClassifier | TextRegressor) -> str | None:
        """Return the separator of the classes in a cell; None: it has one target."""
        return None

    def training_data(self, name: str, data: str, reading: Reading) -> TaskData:
        """Read a task of GLUE, or a table."""
        if name in glue.TASKS:
            return _read_glue(name, data, reading)
        return text_data.read_tables(name, data, reading)

    def stored_columns(
        self, name: str | None, model: TextClassifier | TextRegressor
    ) -> DataConfig:
        """Return the columns of training; those of GLUE are published."""
        data, row = model.settings.data, glue.TASKS.get(name or "")
        texts, label = data.text_columns, data.label_column or data.score_column
        if row and not (texts or data.label_column):
            texts, label = row.texts, row.target
        return dataclasses.replace(data, text_columns=texts, label_column=label)

    def labelled_data(
        self,
        model: TextClassifier | TextRegressor,
        name: str | None,
        data: str,
        reading: Reading,
    ) -> Labelled:
        """Read dev of GLUE, or tables, whose classes must be the model's."""
        name, columns = name or "csv", self._columns(model, data, reading)
        names, bounds = text_data.metric_names(columns), UNBOUNDED
        glue_name = glue.training_task(name)
        if glue_name in glue.TASKS and not {*reading.given} - {"missing_text"}:
            row = glue.TASKS[glue_name]
            columns = dataclasses.replace(row, labels=columns.labels)
            found = {
                split: columns.read(glue.read(file, glue_name))
                for split, file in glue.labelled_files(data, glue_name).items()
            }
            names = row.metrics
            bounds = bounds if columns.labels else (model.low, model.high)
        else:
            found = _read_tables(data, columns, reading)
        return Labelled(name, found, names, bounds=bounds)

    def _columns(
        self, model: TextClassifier | TextRegressor, data: str, reading: Reading
    ) -> Columns:
        """Return the columns of tables to score a model on, and its classes."""
        settings, given = reading.settings, reading.given
        texts, target = settings.text_columns, settings.label_column
        if "score_column" in given:
            target = settings.score_column
        flags = ["--text_columns"] * (not texts) + ["--label_column"] * (target is None)
        if flags:
            raise InputError(
                f"the model's settings have no columns for {data}; pass "
                f"{' and '.join(flags)}"
            )
        if model.pairs is not None:
            check_count(texts, [1 + model.pairs], model)
        labels, separator = model.output_names or None, self.separator(model)
        unused = {"score_column"} if labels else set()
        unused |= {"label_separator"} if separator is None else set()
        if wrong := sorted(unused.intersection(given)):
            kind = type(model).__name__
            raise InputError(f"--{wrong[0]} has no effect on this {kind}")
        bounds = None if labels else UNBOUNDED
        return Columns(texts, target, labels, bounds, separator)


class ClassificationTask(_TextTask):
    """Classes of texts."""

    models = (TextClassifier,)

    def record(self, model: TextClassifier, item: Any, details: Any) -> dict[str, Any]:
        """Return the label or labels, and the probabilities."""
        [label] = model.labels_of(details[None])
        values = zip(model.labels, map(float, details), strict=True)
        found = {"labels": list(label)} if model.multi_label else {"label": label}
        return found | {"probabilities": dict(values)}


class LabelSetTask(ClassificationTask):
    """Sets of classes of texts."""

    def separator(self, model: TextClassifier) -> str:
        """Return the separator of the classes in a cell."""
        return model.settings.data.label_separator or SEPARATOR

    def cell(self, model: TextClassifier, value: Sequence[str]) -> str:
        """Return the labels of a text as one string."""
        return self.separator(model).join(value)

    def predictions(self, scored: ScoredSplit) -> Sequence[tuple[str, ...]]:
        """Return the labels above the threshold."""
        return scored.model.labels_of(np.asarray(scored.details))

    def sides(self, scored: ScoredSplit) -> list[np.ndarray]:
        """Return targets and predictions as rows of zeros and ones."""
        sides = scored.split.targets, scored.predictions
        return [multi_hot(side, scored.model.labels) for side in sides]

    def class_report(self, scored: ScoredSplit) -> ClassReport:
        """Return the scores of each class, each against its absence."""
        return label_set_report(*self.sides(scored), scored.model.labels)

    def sizes(self, scored: ScoredSplit) -> np.ndarray:
        """Return the probability of the most certain wrong class of each text."""
        gold_NC, _ = self.sides(scored)
        return np.abs(np.asarray(scored.details) - gold_NC).max(-1)

    def degenerate(self, scored: ScoredSplit) -> str | None:
        """Describe predictions of one set for all texts."""
        columns = scored.predictions, scored.split.targets
        sets, gold = (set(map(frozenset, column)) for column in columns)
        if len(sets) > 1 or sets == gold or len(scored.predictions) < 2:
            return None
        return f"always predicts {format_list(sorted(sets.pop())) or 'no class'}"


class RegressionTask(_TextTask):
    """Scores of texts."""

    models, measure = (TextRegressor,), "difference"

    def record(self, model: TextRegressor, item: Any, details: Any) -> dict[str, Any]:
        """Return the score."""
        return {"score": float(details)}

    def predictions(self, scored: ScoredSplit) -> np.ndarray:
        """Return the scores within their bounds."""
        return np.clip(np.array(scored.details, np.float64), *scored.bounds)

    def sides(self, scored: ScoredSplit) -> list[np.ndarray]:
        """Return targets and predictions."""
        return [np.asarray(scored.split.targets, np.float64), scored.predictions]

    def class_report(self, scored: ScoredSplit) -> None:
        """Return None: scores have no classes."""

    def sizes(self, scored: ScoredSplit) -> np.ndarray:
        """Return the differences from gold."""
        return np.abs(np.subtract(*self.sides(scored)))

    def degenerate(self, scored: ScoredSplit) -> str | None:
        """Describe scores that are constant or not finite."""
        return describe_degenerate(scored.predictions, scored.split.targets)


# Tasks of GLUE.


def _read_glue(name: str, data: str, reading: Reading) -> TaskData:
    """Read the files of a task; the diagnostic set has MNLI's training data."""
    training_name = glue.training_task(name)
    task = glue.TASKS[training_name]
    tests = {
        stem: other
        for other, row in glue.TASKS.items()
        if glue.training_task(other) == training_name
        for stem in row.test
    }
    required = ["train", task.dev[0], *glue.TASKS[name].test * (name != training_name)]
    found = {}
    for stem in ("train", *task.dev, *tests):
        own_name = tests.get(stem, training_name)
        if path := glue.find(data, own_name, stem, stem in required):
            split = task.read(glue.read(path, own_name), stem not in tests)
            found[stem] = dataclasses.replace(split, is_whole=True)
    found = with_dev(found, name, "rows", reading)
    options = {"bounds": task.bounds or UNBOUNDED, "unordered": task.unordered}
    return text_data.task_data(name, found, task.metrics, task, **options)


def _read_tables(data: str, columns: Columns, reading: Reading) -> dict[str, Split]:
    found = {}
    for part, rows in text_data.read_parts(data, reading, is_training=False):
        if part == "train":
            source = f"train of {rows.source}"
            reading.notify(f"{source}, {len(rows):,} rows, is not scored")
        elif part == "test" and not rows.has_values(columns.target):
            reading.notify(f"test of {rows.source} has no labels, and is not scored")
        else:
            found[part] = columns.read(rows)
    return found
