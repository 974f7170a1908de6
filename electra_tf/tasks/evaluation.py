"""Score a fine-tuned model on labelled data of its task."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks import glue
from electra_tf.tasks.class_report import format_class_report
from electra_tf.tasks.conll import ENDINGS
from electra_tf.tasks.labels import SEPARATOR
from electra_tf.tasks.metrics import REGRESSION_METRICS, classification_metrics
from electra_tf.tasks.question_data import question_split
from electra_tf.tasks.score import (
    AnswerScorer,
    LabelScorer,
    ScoredSplit,
    Scorer,
    TagScorer,
)
from electra_tf.tasks.splits import Split, check_split_column, find_splits
from electra_tf.tasks.squad_json import PUBLISHED, read_squad_ignoring_offsets
from electra_tf.tasks.squad_metrics import require_gold
from electra_tf.tasks.tables import FORMATS, TFDS, print_note, read_table
from electra_tf.tasks.tag_data import read_tagged, require_json, with_known_tags
from electra_tf.tasks.task_data import describe_inputs, text_hashes
from electra_tf.tasks.text_data import (
    UNBOUNDED,
    Columns,
    glue_columns,
    has_values,
    read_texts,
    split_rows,
    text_scorer,
)
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.rows import JSON_SUFFIXES

Log = Callable[[str], None]
_RULE = "The data must be labelled, for the task that the model was trained on"


def evaluate_model(
    model: TextModel,
    task: str | None,
    data: str,
    columns: Mapping[str, Any] | None = None,
    log: Log = print_note,
    training_rows: np.ndarray | None = None,
) -> tuple[dict[str, Any], dict[str, ScoredSplit]]:
    """Score a model on labelled data: a file, or a folder with dev and test.

    `columns` replace the model's. A note counts the data's texts that are among
    `training_rows`.

    Returns:
        A report, and the splits by name. The report has task, data, number of examples
        of each split, and the scores by name, with the split's name as prefix if `data`
        has several splits; `classes`: the report of each split's classes, if there are
        any. SQuAD 2: also the threshold.
    """
    columns = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in (columns or {}).items()
        if value
    }
    _check_columns(model, columns)
    readers = {
        "classifier": _read_texts,
        "regressor": _read_texts,
        "token_classifier": _read_tags,
        "question_answerer": _read_questions,
    }
    if model.kind not in readers:
        raise InputError(
            f"The kind of a model to evaluate must be one of {', '.join(readers)}",
            f"a {type(model).__name__} of kind {model.kind!r}",
            "Score its predictions in Python",
        )
    name, splits, scorer = readers[model.kind](model, task, data, columns, log)
    if not splits:
        raise InputError(_RULE, f"{data!r} without labels", "Name a labelled file")
    report: dict[str, Any] = {"task": name, "data": data}
    report["examples"] = {split: len(part) for split, part in splits.items()}
    if (threshold := getattr(model, "null_threshold", None)) is not None:
        report["null_threshold"] = threshold
        log(
            "a question has no answer where its null_odds are above the threshold "
            f"stored with the model, {threshold:.6g}"
        )
    for split, part in splits.items() if training_rows is not None else ():
        count = int(np.isin(text_hashes(model, part.items), training_rows).sum())
        if count:
            log(
                f"warning: the model was trained on the texts of {count:,} of the "
                f"{len(part):,} examples of {split}, which are scored too: scores of "
                "new texts may be lower"
            )
    scored, classes = {}, {}
    for split, part in splits.items():
        scored[split] = one = _scored(model, split, part, scorer, log)
        prefix = f"{split}_" if len(splits) > 1 else ""
        for key, value in one.scores.items():
            report[prefix + key] = value if math.isfinite(value) else None
        if one.classes:
            classes[split] = one.classes
    return report | ({"classes": classes} if classes else {}), scored


def format_report(report: Mapping[str, Any]) -> str:
    """Format a report: the data, a line for each score, and the tables of classes."""
    counts = ", ".join(f"{name} {n:,}" for name, n in report["examples"].items())
    lines = [f"{report['task']}: {report['data']}, examples: {counts}"]
    for name, value in report.items():
        if isinstance(value, float):
            lines.append(f"  {name:<28}{value:>12.5f}")
    for name, classes in report.get("classes", {}).items():
        lines += [f"{name}:", format_class_report(classes)]
    return "\n".join(lines)


def stored_columns(task: str | None, model: TextModel) -> DataConfig:
    """Return settings with the columns that a model was trained with."""
    data = model.settings.data
    if data.text_columns or data.label_column or data.tag_names:
        return dataclasses.replace(
            data, label_column=data.label_column or data.score_column
        )
    if row := glue.TASKS.get(task or ""):
        return dataclasses.replace(data, text_columns=row.texts, label_column=row.label)
    return data


def _check_columns(model: TextModel, columns: Mapping[str, Any]) -> None:
    """Raise an error for columns that a model of another kind has."""
    if wrong := columns.keys() - model.data_columns:
        names = ", ".join(f"--{name}" for name in sorted(wrong))
        raise InputError(
            f"{names} must be used with a model that reads such columns",
            f"a {type(model).__name__}"
            + " without multi_label" * ("label_separator" in wrong),
            f"Leave {names} out",
        )


def _scored(
    model: TextModel, name: str, split: Split, scorer: Scorer, log: Log
) -> ScoredSplit:
    examples = model.examples(split.items)
    for line in describe_inputs(model, name, examples):
        log(line)
    outputs = model.outputs_of(examples)
    details = model.decode_details(split.items, examples, outputs)
    scored = scorer.scored(model, split, details)
    if scored.degenerate:
        log(f"DEGENERATE: the model {scored.degenerate} on {name}")
    return scored


def _find(
    data: str, endings: Sequence[str], published: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the file as `data`, or dev and test of a folder or of TFDS, by split."""
    if os.path.isfile(data) or (data.startswith(TFDS) and "@" in data):
        return {"data": data}
    if files := find_splits(data, ("dev", "test"), endings, published):
        return files
    raise InputError(
        f"--data must be a labelled file, or a folder with dev{endings[0]} or "
        f"test{endings[0]}",
        f"{data!r}" + ("" if os.path.isdir(data) else ", which does not exist"),
        "Check the path, or name the file itself",
    )


# Each reader returns the name of the task, the labelled splits and their scorer.


def _read_texts(
    model: TextModel, task: str | None, data: str, given: Mapping[str, Any], log: Log
) -> tuple[str, dict[str, Split], Scorer]:
    name = task or "csv"
    row = None if given else glue.TASKS.get("mnli" if name == "ax" else name)
    settings = dataclasses.replace(stored_columns(task, model), **given)
    _require_text_columns(model, settings)
    labels = model.output_names or None
    if row:
        columns = glue_columns(row)._replace(labels=labels)
        splits = _read_glue_splits("mnli" if name == "ax" else name, data, columns)
        limits = UNBOUNDED if labels else (model.low, model.high)
        return name, splits, LabelScorer(row.metrics, labels, limits)
    bounds = None if labels else UNBOUNDED
    separator = settings.label_separator or SEPARATOR if model.multi_label else None
    texts = settings.text_columns
    columns = Columns(texts, settings.label_column, labels, bounds, separator)
    splits = _read_tables(data, settings, columns, "split_column" in given, log)
    metrics = classification_metrics(labels) if labels else REGRESSION_METRICS
    return name, splits, text_scorer(columns, metrics)


def _read_glue_splits(name: str, data: str, columns: Columns) -> dict[str, Split]:
    is_whole = os.path.isdir(data) or (data.startswith(TFDS) and "@" not in data)
    files = glue.dev_files(data, name) if is_whole else {"data": data}
    errors = DataErrorLog("stop", "", _RULE)
    return {
        split: read_texts(glue.read(file, name, errors), columns, errors)
        for split, file in files.items()
    }


def _read_tables(
    data: str, settings: DataConfig, columns: Columns, is_required: bool, log: Log
) -> dict[str, Split]:
    """Read a table; `is_required`: it must have the column of splits."""
    if is_required:
        check_split_column(settings.split_column, data)
    errors, splits = DataErrorLog("stop", "", _RULE), {}
    for split, file in _find(data, FORMATS).items():
        rows = read_table(file, errors, notify=log)
        if not is_required and settings.split_column not in rows[0].values:
            settings = dataclasses.replace(settings, split_column=None)
        parts = split_rows(rows, split, settings, ["dev", "test"], errors, log)
        if settings.split_column and (train := parts.pop("train", None)):
            log(f"train of {file}, {len(train):,} rows, is not scored")
        for part, rows in parts.items():
            if part == "test" and not has_values(rows, columns.target):
                log(f"test of {file} has no labels, and is not scored")
            else:
                splits[part] = read_texts(rows, columns, errors)
    return splits


def _require_text_columns(model: TextModel, columns: DataConfig) -> None:
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


def _read_tags(
    model: TextModel, task: str | None, data: str, given: Mapping[str, Any], log: Log
) -> tuple[str, dict[str, Split], Scorer]:
    """Read sentences, whose tags must be the model's."""
    settings = dataclasses.replace(stored_columns(task, model), **given)
    files, errors = _find(data, ENDINGS), DataErrorLog("stop", "", _RULE)
    for file in files.values() if given else ():
        require_json(file)
    parts = read_tagged(files, settings, errors, log, model.tags, model.tokenizer)
    splits = {
        split: with_known_tags(split, part, model.tags, errors)
        for split, part in parts.items()
    }
    return task or "tagging", splits, TagScorer(model.tags)


def _read_questions(
    model: TextModel, task: str | None, data: str, given: Mapping[str, Any], log: Log
) -> tuple[str, dict[str, Split], Scorer]:
    """Read questions, all of them with gold answers."""
    allows_null, splits = model.null_threshold is not None, {}
    name = "squad2" if allows_null else "squad1"
    for split, file in _find(data, JSON_SUFFIXES[::-1], PUBLISHED[name]).items():
        splits[split] = question_split(read_squad_ignoring_offsets(file, log))
        require_gold(splits[split].items, allows_null)
    return name, splits, AnswerScorer(allows_null)
