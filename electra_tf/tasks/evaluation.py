"""Score a fine-tuned model on labelled data of its task."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.interop.keras_file import stored_task
from electra_tf.tasks import glue
from electra_tf.tasks.conll import ENDINGS, Sentence, read_sentences, require_json
from electra_tf.tasks.labels import other_spelling
from electra_tf.tasks.metrics import REGRESSION_METRICS, classification_metrics
from electra_tf.tasks.question_data import question_split
from electra_tf.tasks.schemes import is_span_scheme, learned_scheme, to_scheme
from electra_tf.tasks.score import AnswerScorer, LabelScorer, Scorer, TagScorer
from electra_tf.tasks.splits import (
    Split,
    check_split_column,
    find_splits,
    rows_by_split,
    unused_split_column,
)
from electra_tf.tasks.squad_json import PUBLISHED, read_squad_ignoring_offsets
from electra_tf.tasks.squad_metrics import require_gold
from electra_tf.tasks.tables import (
    FORMATS,
    TFDS,
    Row,
    print_note,
    read_rows,
    require_columns,
)
from electra_tf.tasks.tag_data import sentence_split
from electra_tf.tasks.task_data import describe_inputs
from electra_tf.tasks.text_data import has_values, read_texts
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import inner_suffix
from electra_tf.text.rows import JSON_SUFFIXES

Log = Callable[[str], None]
_RULE = "The data must be labelled, for the task that the model was trained on"


def evaluate_model(
    model: TextModel,
    path: str,
    data: str,
    columns: Mapping[str, Any] | None = None,
    log: Log = print_note,
) -> dict[str, Any]:
    """Score a model on labelled data.

    Args:
        model: A fine-tuned model.
        path: Its folder, whose `config.yaml` names its task.
        data: A labelled file, or a folder with dev and test.
        columns: Settings of `DataConfig` that name columns, in place of the model's.
        log: Receives notes.

    Returns:
        Task, data, number of examples of each split, and the scores by name, with the
        split's name as prefix if `data` has several splits. SQuAD 2: also the
        threshold.
    """
    columns = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in (columns or {}).items()
        if value
    }
    _check_columns(model, columns)
    read = {"token_classifier": _read_tags, "question_answerer": _read_questions}
    name, splits, scorer = read.get(model.kind, _read_texts)(
        model, path, data, columns, log
    )
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
    return report | _scores(model, splits, scorer, log)


def format_report(report: Mapping[str, Any]) -> str:
    """Format a report as a line about the data and a line for each score."""
    counts = ", ".join(f"{name} {n:,}" for name, n in report["examples"].items())
    lines = [f"{report['task']}: {report['data']}, examples: {counts}"]
    for name, value in report.items():
        if isinstance(value, float):
            lines.append(f"  {name:<28}{value:>12.5f}")
    return "\n".join(lines)


def stored_columns(path: str, model: TextModel) -> DataConfig:
    """Return settings with the columns that a model was trained with."""
    data = model.settings.data
    if data.text_columns or data.label_column or data.tag_names:
        return dataclasses.replace(
            data, label_column=data.label_column or data.score_column
        )
    if row := glue.TASKS.get(stored_task(path) or ""):
        return dataclasses.replace(data, text_columns=row.texts, label_column=row.label)
    return data


def _check_columns(model: TextModel, columns: Mapping[str, Any]) -> None:
    """Raise an error for columns that a model of another kind has."""
    if wrong := columns.keys() - model.data_columns:
        names = ", ".join(f"--{name}" for name in sorted(wrong))
        raise InputError(
            f"{names} must be used with a model that reads such columns",
            f"a {type(model).__name__}",
            f"Leave {names} out",
        )


def _scores(
    model: TextModel, splits: Mapping[str, Split], scorer: Scorer, log: Log
) -> dict[str, float | None]:
    scores: dict[str, float | None] = {}
    for name, split in splits.items():
        for line in describe_inputs(model, name, model.examples(split.items)):
            log(line)
        predictions = scorer.predict(model, split.items)
        if description := scorer.degenerate(split, predictions):
            log(f"DEGENERATE: the model {description} on {name}")
        prefix = f"{name}_" if len(splits) > 1 else ""
        for key, value in scorer.score(split, predictions).items():
            scores[prefix + key] = value if math.isfinite(value) else None
    return scores


def _find(
    data: str, endings: Sequence[str], published: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the file as `data`, or dev and test of a folder, by split."""
    if os.path.isfile(data):
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
    model: TextModel, path: str, data: str, given: Mapping[str, Any], log: Log
) -> tuple[str, dict[str, Split], Scorer]:
    """Read the rows of a table, or of a GLUE task."""
    name, labels = stored_task(path) or "csv", getattr(model, "labels", None)
    glue_task = None if given else glue.TASKS.get("mnli" if name == "ax" else name)
    columns = dataclasses.replace(stored_columns(path, model), **given)
    if "split_column" in given:
        check_split_column(columns.split_column, data)
    _require_text_columns(model, columns)
    errors, splits, bounds = DataErrorLog("stop", "", _RULE), {}, (-np.inf, np.inf)
    for split, file in _find_tables(data, name if glue_task else None).items():
        if glue_task:
            parts, bounds = {split: glue.read(file, name, errors)}, glue_task.range
        else:
            rows = read_rows(file, errors, log)
            parts = _parts(rows, split, columns, "split_column" in given, errors, log)
        for part, rows in parts.items():
            if part == "test" and not has_values(rows, columns.label_column):
                log(f"test of {file} has no labels, and is not scored")
                continue
            splits[part] = read_texts(
                rows,
                columns.text_columns,
                columns.label_column,
                errors,
                has_scores=labels is None,
                labels=labels,
                bounds=bounds,
            )
    if glue_task:
        limits = (model.low, model.high) if labels is None else bounds
        return name, splits, LabelScorer(glue_task.metrics, labels, limits)
    metrics = REGRESSION_METRICS if labels is None else classification_metrics(labels)
    return name, splits, LabelScorer(metrics, labels)


def _find_tables(data: str, name: str | None) -> dict[str, str]:
    """Return the files by split; `name` is the name of a GLUE task."""
    if name and (data.startswith(TFDS) or os.path.isdir(data)):
        stems = glue.TASKS["mnli" if name == "ax" else name].dev
        files = {stem: glue.find(data, name, stem) for stem in stems}
        if not any(files.values()):
            glue.require(data, name, stems[0])
        return {stem: file for stem, file in files.items() if file}
    return {"data": data} if data.startswith(TFDS) else _find(data, FORMATS)


def _parts(
    rows: list[Row],
    split: str,
    columns: DataConfig,
    is_required: bool,
    errors: DataErrorLog,
    log: Log,
) -> dict[str, list[Row]]:
    """Return the rows of a file; those of dev and test, if a column has splits."""
    column = columns.split_column
    if is_required:
        require_columns(rows, [column])
    if column and column in rows[0].values:
        parts = rows_by_split(rows, column, ["dev", "test"], errors)
        log(f"dev and test by the column {column!r}, without train")
        return {name: part for name, part in parts.items() if name != "train"}
    used = (*columns.text_columns, columns.label_column)
    if unused := unused_split_column([row.values for row in rows], used):
        log(
            f"warning: the column {unused!r} of {rows[0].source} holds names of "
            "splits, but is not used: rows of train are scored too. Pass "
            f"--split_column={unused} to score dev and test"
        )
    return {split: rows}


def _require_text_columns(model: TextModel, columns: DataConfig) -> None:
    """Raise an error for columns that are missing or too many."""
    values = columns.text_columns, columns.label_column
    flags = zip(("--text_columns", "--label_column"), values, strict=True)
    if missing := [flag for flag, value in flags if not value]:
        raise InputError(
            "The columns of a table must be stored with the model or set by flags",
            f"no {' and no '.join(missing)}, and none in the model's settings",
            "Pass --text_columns=review --label_column=label",
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
    model: TextModel, path: str, data: str, given: Mapping[str, Any], log: Log
) -> tuple[str, dict[str, Split], Scorer]:
    columns = dataclasses.replace(stored_columns(path, model), **given)
    splits, errors = {}, DataErrorLog("stop", "", _RULE)
    for split, file in _find(data, ENDINGS).items():
        if given:
            require_json(file)
        sentences = read_sentences(file, columns, errors, log)
        for sentence in sentences:
            _check_tags(sentence, model.tags)
        splits[split] = sentence_split(sentences)
    return stored_task(path) or "tagging", splits, TagScorer(model.tags)


def _check_tags(sentence: Sentence, tags: Sequence[str]) -> None:
    """Raise an error for a tag that the model cannot predict."""
    converted = sentence.tags
    if is_span_scheme(tags) and is_span_scheme(converted):
        converted = to_scheme(converted, learned_scheme(tags))
    for index, (own, tag) in enumerate(zip(sentence.tags, converted, strict=True)):
        if tag not in tags:
            raise InputError(
                f"A tag must be one of the model's: {', '.join(tags[:20])}"
                + ", ..." * (len(tags) > 20),
                f"{sentence.source}:{sentence.line_of(index)}: {own!r}"
                + other_spelling(own, tags),
                "Correct the tag, or check that the file has the tags of training",
            )


def _read_questions(
    model: TextModel, path: str, data: str, given: Mapping[str, Any], log: Log
) -> tuple[str, dict[str, Split], Scorer]:
    allows_null, splits = model.null_threshold is not None, {}
    name = "squad2" if allows_null else "squad1"
    for split, file in _find(data, JSON_SUFFIXES[::-1], PUBLISHED[name]).items():
        if inner_suffix(file) not in JSON_SUFFIXES:
            raise InputError(
                _RULE,
                f"{file!r} for a QuestionAnswerer",
                "Name a file of SQuAD's JSON, or JSON lines with id, question, context "
                "and answers",
            )
        splits[split] = question_split(read_squad_ignoring_offsets(file, log))
        if splits[split].targets is None:
            raise InputError(
                _RULE, f"{file!r}, whose questions have no answers", "Name another file"
            )
        require_gold(splits[split].items, allows_null)
    return name, splits, AnswerScorer(allows_null)
