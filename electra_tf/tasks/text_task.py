"""Classes and scores of texts and pairs: the tasks of GLUE, and any table."""

import collections
import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks import text_data
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.data import glue, splits
from electra_tf.tasks.data.files import Notify, read_text
from electra_tf.tasks.data.splits import Split
from electra_tf.tasks.data.table import READERS, Table
from electra_tf.tasks.labels import SEPARATOR
from electra_tf.tasks.score import LabelScorer
from electra_tf.tasks.task import Task, check_count, probability_cells
from electra_tf.tasks.task_data import Labelled, Reading, TaskData
from electra_tf.text.data_errors import DataErrorLog


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
        return tuple(n for n in self.columns if are_sets or n != "label_separator")

    def training_data(self, name: str, data: str, reading: Reading) -> TaskData:
        """Read a task of GLUE, or a table."""
        if name in glue.TASKS:
            return _read_glue(name, data, reading.log)
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
        if glue_name in glue.TASKS and not reading.given:
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

    def score_file(
        self, name: str, data: str, predictions: str, more: str | None, notify: Notify
    ) -> dict[str, float]:
        """Score predictions in GLUE's format."""
        if name not in glue.TASKS:
            return super().score_file(name, data, predictions, more, notify)
        data = _find_dev(name, data, predictions, notify)
        errors = DataErrorLog("stop")
        task, table = glue.TASKS[name], glue.read(data, name, errors)
        table.require((task.label,))
        predicted = _read_predictions(predictions, errors)
        aligned = _align_rows(table, predicted, predictions)
        if len(aligned) < len(table):
            notify(
                f"{len(aligned):,} of {len(table):,} rows have a prediction and are "
                "scored"
            )
        scorer = LabelScorer(task.metrics, task.labels)
        places = list(map(aligned.place, range(len(aligned))))
        gold = scorer.parse(aligned.texts(task.label), places)
        split, words = Split(places, gold), predicted["prediction"]
        places = [f"row {n} of {predictions}" for n in range(1, len(words) + 1)]
        return scorer.all_scores(split, scorer.parse(words, places))


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


def _read_glue(name: str, data: str, log: DataErrorLog) -> TaskData:
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
        errors_before = log.counts.total()
        rows = glue.read(path, tests.get(stem, training_name), log)
        split = columns.read(rows, log, stem not in tests)
        bad_rows = log.counts.total() - errors_before
        found[stem] = text_data.without_places(split, bad_rows)
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
    return {
        split: columns.read(glue.read(file, name, reading.log), reading.log)
        for split, file in files.items()
    }


def _read_tables(
    data: str, columns: text_data.Columns, reading: Reading
) -> dict[str, Split]:
    column, log, found = reading.settings.split_column, reading.log, {}
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
                found[part] = columns.read(rows, log)
    return found


# Files of predictions in GLUE's format.


def _find_dev(
    task: str, data: str, predictions: str, log: Callable[[str], None]
) -> str:
    """Return the labelled file of GLUE that a file of predictions belongs to."""
    if not glue.is_whole(data):
        return data
    stems = glue.TASKS[task].dev
    stem = pathlib.Path(predictions).name.split(".")[0]
    files = {stem: glue.require(data, task, stem)} if stem in stems else {}
    if not files and stems:
        files = glue.dev_files(data, task)
    if len(files) != 1:
        found = f"{data!r} has {format_list(files)}"
        raise InputError(
            f"--data must be {task}'s labelled file, or a folder with one dev file, "
            "and " + (found if stems else f"{task} has no published labels")
        )
    [path] = files.values()
    log(f"labels: {path}")
    return path


def _read_predictions(path: str, errors: DataErrorLog) -> dict[str, Sequence[str]]:
    """Return predictions in GLUE's format by column; without a header: words alone."""
    lines = read_text(path, errors).rstrip("\r\n ").split("\n")
    rows = [[cell.strip() for cell in line.split("\t")] for line in lines]
    if "prediction" in lines[0].split(",")[1:] and "\t" not in lines[0]:
        raise InputError(f"{path} must be separated by tabs, and has commas")
    names = rows.pop(0) if "prediction" in rows[0] else ["prediction"]
    first = len(lines) - len(rows) + 1
    for number, row in enumerate(rows, first):
        if len(row) != len(names):
            raise InputError(
                f"{path}:{number} must have the columns {format_list(names)}, "
                f"separated by tabs, and is {format_list(row)}"
            )
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return dict(zip(names, columns, strict=True))


def _align_rows(table: Table, predicted: dict[str, Sequence[str]], path: str) -> Table:
    """Return the rows that predictions are for, by `place`, index or order."""
    numbers, name = range(len(table)), "place" if "place" in predicted else "index"
    words = predicted.get(name)
    if words is None:
        if (count := len(predicted["prediction"])) != len(table):
            raise InputError(
                f"{path} must have a prediction for each row of {table.source}, and "
                f"there are {len(table)} rows and {count} predictions"
            )
        return table
    words = [word.rpartition(":")[2] for word in words]
    lines = table.lines if name == "place" else numbers
    by_key = {str(line): number for line, number in zip(lines, numbers, strict=True)}
    required = set(words) if name == "place" else by_key.keys()
    counts = collections.Counter(words)
    errors = {
        "unknown": [word for word in counts if word not in by_key],
        "more than once": [word for word, count in counts.items() if count > 1],
        "missing": [word for word in required if word not in counts],
    }
    if wrong := [f"{k}: {', '.join(v[:10])}" for k, v in errors.items() if v]:
        raise InputError(
            f"{path} must have one prediction for each {name} of {table.source}, and "
            f"there are {'; '.join(wrong)}"
        )
    return table.take([by_key[word] for word in words])
