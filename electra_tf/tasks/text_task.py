"""Classes and scores of texts and pairs: the tasks of GLUE, and any table."""

import collections
import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError, format_list
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.data import glue
from electra_tf.tasks.data.files import TFDS, Notify, read_text
from electra_tf.tasks.data.splits import Split, check_split_column, find_labelled
from electra_tf.tasks.data.table import READERS, Table, read
from electra_tf.tasks.labels import SEPARATOR
from electra_tf.tasks.metrics import REGRESSION_METRICS, classification_metrics
from electra_tf.tasks.score import LabelScorer
from electra_tf.tasks.task import Labelled, Task, probability_cells
from electra_tf.tasks.task_data import Reading, TaskData
from electra_tf.tasks.text_data import read_csv, read_glue, split_rows, text_scorer
from electra_tf.tasks.text_rows import (
    UNBOUNDED,
    Columns,
    glue_columns,
    has_values,
    read_texts,
)
from electra_tf.text.data_errors import DataErrorLog

_RULE = "The data must be labelled, for the task that the model was trained on"
_REMEDY = "Check that both files belong to the same data"


class _TextTask(Task):
    """Texts and pairs with a column of targets."""

    columns = (
        "text_columns",
        "label_column",
        "label_separator",
        "score_column",
        "split_column",
    )

    def columns_of(self, name: str) -> tuple[str, ...]:
        """Return the settings of columns; those of GLUE are published."""
        return () if name in glue.TASKS else self.columns

    def training_data(self, name: str, data: str, reading: Reading) -> TaskData:
        """Read a task of GLUE, or a table."""
        if name in glue.TASKS:
            return read_glue(name, data, reading.log)
        return read_csv(data, reading)

    def stored_columns(
        self, name: str | None, model: TextClassifier | TextRegressor
    ) -> DataConfig:
        """Return the columns of training; those of GLUE are published."""
        data = model.settings.data
        if data.text_columns or data.label_column:
            return dataclasses.replace(
                data, label_column=data.label_column or data.score_column
            )
        if row := glue.TASKS.get(name or ""):
            return dataclasses.replace(
                data, text_columns=row.texts, label_column=row.label
            )
        return data

    def labelled_data(
        self,
        model: TextClassifier | TextRegressor,
        name: str | None,
        data: str,
        given: Mapping[str, Any],
        notify: Notify,
    ) -> Labelled:
        """Read dev of GLUE, or tables, whose classes must be the model's."""
        name = name or "csv"
        row = None if given else glue.TASKS.get("mnli" if name == "ax" else name)
        settings = dataclasses.replace(self.stored_columns(name, model), **given)
        _require_text_columns(model, settings)
        labels = model.output_names or None
        if row:
            columns = glue_columns(row)._replace(labels=labels)
            splits = _read_glue_splits("mnli" if name == "ax" else name, data, columns)
            limits = UNBOUNDED if labels else (model.low, model.high)
            scorer = LabelScorer(row.metrics, labels, limits)
            return Labelled(name, splits, scorer)
        bounds = None if labels else UNBOUNDED
        separator = settings.label_separator or SEPARATOR
        texts = settings.text_columns
        columns = Columns(texts, settings.label_column, labels, bounds)
        if model.multi_label:
            columns = columns._replace(separator=separator)
        splits = _read_tables(data, settings, columns, "split_column" in given, notify)
        metrics = classification_metrics(labels) if labels else REGRESSION_METRICS
        return Labelled(name, splits, text_scorer(columns, metrics))

    def score_file(
        self, name: str, data: str, predictions: str, more: str | None, notify: Notify
    ) -> dict[str, float]:
        """Score predictions in GLUE's format."""
        if name not in glue.TASKS:
            return super().score_file(name, data, predictions, more, notify)
        data = _find_dev(name, data, predictions, notify)
        errors = DataErrorLog("stop", "", "A file must have GLUE's columns")
        task, table = glue.TASKS[name], glue.read(data, name, errors)
        table.require((task.label,))
        words, kind, keys = _read_words(predictions, errors)
        aligned = _align_rows(table, len(words), kind, keys, data, predictions)
        if len(aligned) < len(table):
            notify(
                f"{len(aligned):,} of {len(table):,} rows have a prediction and are "
                "scored"
            )
        scorer = LabelScorer(task.metrics, task.labels)
        places = list(map(aligned.place, range(len(aligned))))
        gold = scorer.parse(aligned.texts(task.label), places)
        split = Split(places, gold)
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
        self, model: TextClassifier, item: Any, prediction: Any, nbest: Any = None
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
        self, model: TextRegressor, item: Any, prediction: Any, nbest: Any = None
    ) -> dict[str, Any]:
        """Return the score."""
        return {"score": float(prediction)}


def _read_glue_splits(name: str, data: str, columns: Columns) -> dict[str, Split]:
    is_whole = os.path.isdir(data) or (data.startswith(TFDS) and "@" not in data)
    files = glue.dev_files(data, name) if is_whole else {"data": data}
    errors = DataErrorLog("stop", "", _RULE)
    return {
        split: read_texts(glue.read(file, name, errors), columns, errors)
        for split, file in files.items()
    }


def _read_tables(
    data: str, settings: DataConfig, columns: Columns, is_required: bool, log: Notify
) -> dict[str, Split]:
    """Read a table; `is_required`: it must have the column of splits."""
    if is_required:
        check_split_column(settings.split_column, data)
    errors, splits = DataErrorLog("stop", "", _RULE), {}
    for split, file in find_labelled(data, [*READERS]).items():
        table = read(file, errors, notify=log)
        if not is_required and settings.split_column not in table.columns:
            settings = dataclasses.replace(settings, split_column=None)
        parts = split_rows(table, split, settings, ["dev", "test"], errors, log)
        if settings.split_column and (train := parts.pop("train", None)):
            log(f"train of {file}, {len(train):,} rows, is not scored")
        for part, rows in parts.items():
            if part == "test" and not has_values(rows, columns.target):
                log(f"test of {file} has no labels, and is not scored")
            else:
                splits[part] = read_texts(rows, columns, errors)
    return splits


def _require_text_columns(model: Any, columns: DataConfig) -> None:
    examples = {"text_columns": "review", "label_column": "label"}
    if missing := [name for name in examples if not getattr(columns, name)]:
        raise InputError(
            "The columns of a table must be stored with the model or set by flags",
            f"no --{' and no --'.join(missing)}, and none in the model's settings",
            "Pass " + " ".join(f"--{name}={value}" for name, value in examples.items()),
        )
    needed = 2 if model.pairs else 1
    if model.pairs is not None and len(columns.text_columns) != needed:
        raise InputError(
            f"--text_columns must name {needed} column{'s' * (needed > 1)}, as the "
            "model was trained with",
            ",".join(columns.text_columns),
            "Name a column for each text of the model",
        )


# Files of predictions in GLUE's format.


def _find_dev(
    task: str, data: str, predictions: str, log: Callable[[str], None]
) -> str:
    """Return the labelled file of GLUE that a file of predictions belongs to."""
    is_whole = data.startswith(TFDS) and "@" not in data
    if not os.path.isdir(data) and not is_whole:
        return data
    stems = glue.TASKS[task].dev
    stem = pathlib.Path(predictions).name.split(".")[0]
    files = {stem: glue.require(data, task, stem)} if stem in stems else {}
    if not files and stems:
        files = glue.dev_files(data, task)
    if len(files) != 1:
        raise InputError(
            f"--data must be {task}'s labelled file, or a folder with one dev file",
            f"the folder {data!r} with {format_list(files) or 'none'}",
            "Name the file itself, such as dev_matched.tsv"
            if stems
            else f"{task} has no published labels; name a labelled file",
        )
    [path] = files.values()
    log(f"labels: {path}")
    return path


def _read_words(
    path: str, errors: DataErrorLog
) -> tuple[list[str], str, list[int] | None]:
    """Read predictions in GLUE's format.

    Returns:
        The words, the name of what identifies their rows, and these keys: lines of the
        labelled file (finetune writes them if it dropped rows), indexes, or None.
    """
    lines = read_text(path, errors).rstrip("\r\n ").split("\n")
    header, *body = [[cell.strip() for cell in line.split("\t")] for line in lines]
    if len(header) == 1 and "," in header[0]:
        raise InputError(
            "Columns of predictions must be separated by tabs",
            f"{path}:1: {lines[0]!r:.80}",
            "Write them with sep='\\t'",
        )
    if "index" not in header:
        rows = body if header == ["prediction"] else [header, *body]
        return [row[-1] for row in rows], "", None
    kind, column = ("lines", "place") if "place" in header else ("indexes", "index")
    words, keys = [], []
    for number, row in enumerate(body, 2):
        record = dict(zip(header, row, strict=False))
        key = record.get(column, "").rpartition(":")[2]
        if len(row) != len(header) or "prediction" not in record or not key.isdecimal():
            raise InputError(
                "Predictions with an index must have the columns 'index' and "
                "'prediction', separated by tabs, with a number as index",
                f"{path}:{number}: {lines[number - 1]!r:.80}, below "
                f"{format_list(header)}",
                "Correct that line, or rename the column of the predictions",
            )
        words.append(record["prediction"])
        keys.append(int(key))
    return words, kind, keys


def _align_rows(
    table: Table,
    count: int,
    kind: str,
    keys: Sequence[int] | None,
    data: str,
    predictions: str,
) -> Table:
    """Return the rows that the predictions are for, in their order."""
    if keys is None:
        if count == len(table):
            return table
        raise InputError(
            "There must be a prediction for each row",
            f"{len(table)} rows in {data}, {count} in {predictions}",
            _REMEDY,
        )
    numbers = range(len(table))
    names = table.lines if kind == "lines" else numbers
    by_key = dict(zip(names, numbers, strict=True))
    required = set(keys if kind == "lines" else by_key)
    counts = collections.Counter(keys)
    errors = {
        f"{kind} that {data} does not have": sorted(counts.keys() - by_key.keys()),
        f"{kind} that occur more than once": [n for n, c in counts.items() if c > 1],
        f"{kind} without a prediction": sorted(required - counts.keys()),
    }
    found = [f"{error}: {format_list(keys)}" for error, keys in errors.items() if keys]
    if found:
        raise InputError(
            "Each row must have one prediction; indexes must be 0 to "
            f"{len(table) - 1:,}",
            f"{predictions} with {'; '.join(found)}",
            _REMEDY,
        )
    return table.take([by_key[key] for key in keys])
