"""Classes and scores of texts and pairs: the tasks of GLUE, and any table."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks import text_data
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.data import glue, splits
from electra_tf.tasks.data.duplicates import EqualTexts
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.data.table import READERS, Table
from electra_tf.tasks.labels import SEPARATOR
from electra_tf.tasks.task import LINE_OF_PAIR, Task, check_count, probability_cells
from electra_tf.tasks.task_data import Labelled, Reading, TaskData
from electra_tf.text.files import inner_suffix


class _TextTask(Task):
    """Texts and pairs with a column of targets."""

    columns = (
        "text_columns",
        "label_column",
        "label_separator",
        "score_column",
        "split_column",
    )
    published: ClassVar = {n: {"epochs": t.epochs} for n, t in glue.TASKS.items()}

    def columns_of(self, name: str) -> tuple[str, ...]:
        """Return the settings of columns; those of GLUE are published."""
        return () if name in glue.TASKS else self.columns

    def columns_for(self, model: TextClassifier | TextRegressor) -> tuple[str, ...]:
        """Return the settings of columns; sets of classes alone have a separator."""
        are_sets = model.metric_kind == "label_sets"
        names = [n for n in self.columns if are_sets or n != "label_separator"]
        return *names, "missing_text"

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
            texts, label = row.texts, row.label
        return dataclasses.replace(data, text_columns=texts, label_column=label)

    def complete(self, table: Table, names: Sequence[str], reading: Reading) -> Table:
        """Return the rows of a table whose texts are not missing; lines are kept."""
        if inner_suffix(table.source) not in READERS:
            return table
        names = names[:1] if names == LINE_OF_PAIR else names
        return text_data.complete_table(table, names, reading)

    def labelled_data(
        self,
        model: TextClassifier | TextRegressor,
        name: str | None,
        data: str,
        reading: Reading,
    ) -> Labelled:
        """Read dev of GLUE, or tables, whose classes must be the model's."""
        name, settings = name or "csv", reading.settings
        labels = model.output_names or None
        texts, target = settings.text_columns, settings.label_column
        flags = ["--text_columns"] * (not texts) + ["--label_column"] * (target is None)
        if flags:
            raise InputError(
                f"the model's settings have no columns for {data}; pass "
                f"{' and '.join(flags)}"
            )
        if model.pairs is not None:
            check_count(texts, [1 + model.pairs], model)
        columns = text_data.Columns(
            texts, target, labels, None if labels else text_data.UNBOUNDED
        )
        names, limits = text_data.metric_names(columns), text_data.UNBOUNDED
        glue_name = glue.training_task(name)
        if glue_name in glue.TASKS and not {*reading.given} - {"missing_text"}:
            row = glue.TASKS[glue_name]
            columns = dataclasses.replace(_glue_columns(row), labels=labels)
            found = _read_glue_splits(glue_name, data, columns, reading)
            names = row.metrics
            limits = limits if labels else (model.low, model.high)
        else:
            if model.metric_kind == "label_sets":
                separator = settings.label_separator or SEPARATOR
                columns = dataclasses.replace(columns, separator=separator)
            found = _read_tables(data, columns, reading)
        return Labelled(name, found, text_data.text_scorer(columns, names, limits))


class ClassificationTask(_TextTask):
    """Classes, or sets of classes, of texts."""

    models = (TextClassifier,)

    def line(self, model: TextClassifier, item: Any, prediction: Any) -> str:
        """Return the label or labels."""
        [label] = model.labels_of(prediction[None])
        return self.gold_cell(model, item, label)

    def record(
        self, model: TextClassifier, item: Any, prediction: Any
    ) -> dict[str, Any]:
        """Return the label or labels, and the probabilities."""
        [label] = model.labels_of(prediction[None])
        record = {"labels": list(label)} if model.multi_label else {"label": label}
        values = zip(model.labels, map(float, prediction), strict=True)
        return record | {"probabilities": dict(values)}

    def cells(self, model: TextClassifier, prediction: Any) -> dict[str, Any]:
        """Return the label or labels, and the probabilities."""
        cells = probability_cells(model.labels, prediction)
        return {"prediction": self.line(model, None, prediction)} | cells

    def gold_cell(self, model: TextClassifier, item: Any, gold: Any) -> Any:
        """Return the labels of a text as one string, and other values unchanged."""
        if not isinstance(gold, tuple):
            return gold
        return (model.settings.data.label_separator or SEPARATOR).join(gold)


class RegressionTask(_TextTask):
    """Scores of texts."""

    models = (TextRegressor,)

    def line(self, model: TextRegressor, item: Any, prediction: Any) -> str:
        """Return the score."""
        return f"{prediction:.6g}"

    def record(
        self, model: TextRegressor, item: Any, prediction: Any
    ) -> dict[str, Any]:
        """Return the score."""
        return {"score": float(prediction)}


# Tasks of GLUE.


def _read_glue(name: str, data: str, reading: Reading) -> TaskData:
    """Read the files of a task; the diagnostic set has MNLI's training data."""
    training_name = glue.training_task(name)
    if name != training_name:
        glue.require(data, name, glue.TASKS[name].test[0])
    task = glue.TASKS[training_name]
    paths = {s: glue.require(data, training_name, s) for s in ("train", task.dev[0])}
    tests = {
        stem: other
        for other, row in glue.TASKS.items()
        if glue.training_task(other) == training_name
        for stem in row.test
    }
    for stem in (*task.dev, *tests):
        if path := glue.find(data, tests.get(stem, training_name), stem):
            paths[stem] = path
    columns, found = _glue_columns(task), {}
    for stem, path in paths.items():
        rows = glue.read(path, tests.get(stem, training_name))
        split = columns.read(rows, stem not in tests)
        found[stem] = dataclasses.replace(split, lines=None)  # no row is left out
    for line in EqualTexts(found, reading.tokenizer).lines(name, "rows"):
        reading.notify(line)
    return text_data.task_data(
        name, found, task.metrics, columns, task.range, task.unordered
    )


def _glue_columns(task: glue.GlueTask) -> text_data.Columns:
    """Return the columns of a task, with its classes or its range of scores."""
    bounds = task.range if task.labels is None else None
    return text_data.Columns(task.texts, task.label, task.labels, bounds)


def _read_glue_splits(
    name: str, data: str, columns: text_data.Columns, reading: Reading
) -> dict[str, Split]:
    files = glue.dev_files(data, name) if glue.is_whole(data) else {"data": data}
    return {split: columns.read(glue.read(file, name)) for split, file in files.items()}


def _read_tables(
    data: str, columns: text_data.Columns, reading: Reading
) -> dict[str, Split]:
    column, found = reading.settings.split_column, {}
    is_required = "split_column" in reading.given
    if is_required:
        splits.require_one_table(column, data)
    files = splits.find_labelled(data, [*READERS])
    for name, file in files.items():
        parts = text_data.read_splits(
            file, name, column, ["dev", "test"], reading, not is_required
        )
        for part, rows in parts:
            if part == "train":
                reading.notify(f"train of {file}, {len(rows):,} rows, is not scored")
            elif part == "test" and not rows.has_values(columns.target):
                reading.notify(f"test of {file} has no labels, and is not scored")
            else:
                found[part] = columns.read(rows)
    return found


# Files of predictions in GLUE's format.
