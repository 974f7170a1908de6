"""Score a fine-tuned model on labelled data of its task."""

import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks.classification import glue
from electra_tf.tasks.classification.metrics import (
    REGRESSION_METRICS,
    classification_metrics,
)
from electra_tf.tasks.classification.model import TextClassifier, TextRegressor
from electra_tf.tasks.classification.splits import make_split
from electra_tf.tasks.classification.task import ClassificationTask
from electra_tf.tasks.data.conll import Sentence, read_conll
from electra_tf.tasks.data.tables import FORMATS, TFDS, read_rows, require_columns
from electra_tf.tasks.runner import CONFIG
from electra_tf.tasks.squad.model import QuestionAnswerer
from electra_tf.tasks.squad.reader import read_squad_ignoring_offsets
from electra_tf.tasks.squad.task import SquadTask
from electra_tf.tasks.tagging.model import TokenClassifier
from electra_tf.tasks.tagging.schemes import is_span_scheme, learned_scheme, to_scheme
from electra_tf.tasks.tagging.task import TaggingTask
from electra_tf.tasks.task import Split, Task
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.compression import SUFFIXES, inner_suffix
from electra_tf.text.data_errors import DataErrorLog

_RULE = "The data must be labelled, for the task that the model was trained on"
_COLUMN_FILES = (".txt", ".conll", ".tsv", ".bio", ".iob2", "")
_MAX_LINE = 1 << 20  # characters of the first line of a config.yaml
_QUESTIONS = (".json", "-v2.0.json", "-v1.1.json")


def _print(line: str) -> None:
    print(line, file=sys.stderr)


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of columns of a table."""

    texts: tuple[str, ...] = ()
    """Column of the text, or of both texts of a pair; empty: not set."""
    target: str | None = None
    """Column of the label or the score; None: not set."""


def stored_task(path: str) -> str | None:
    """Return the name of the task that a model was trained on.

    Args:
        path: The output folder of finetune, or the .keras file in it.

    Returns:
        The name in config.yaml; None without that file.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    try:
        with open(os.path.join(folder, CONFIG), encoding="utf-8") as file:
            return json.loads(file.readline(_MAX_LINE).strip("#"))["task"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def stored_columns(path: str, model: TextModel) -> Columns:
    """Return the columns that a model was trained with.

    Args:
        path: As for `stored_task`.
        model: The loaded model.

    Returns:
        Columns of its settings, or of its GLUE task; empty if neither has any.
    """
    data = model.settings.data
    if data.text_columns:
        return Columns(tuple(data.text_columns), data.label_column or data.score_column)
    row = glue.TASKS.get(stored_task(path) or "")
    return Columns(row.texts, row.label) if row else Columns()


def evaluate_model(
    model: TextModel,
    path: str,
    data: str,
    columns: Columns = Columns(),
    log: Callable[[str], None] = _print,
) -> dict[str, Any]:
    """Score a model on labelled data.

    Args:
        model: The loaded model.
        path: Folder or file of the model, for the names of the task and the columns.
        data: A labelled file; a folder with dev and optionally test; `tfds:glue` for a
            task of GLUE, or `tfds:NAME@SPLIT` for a table.
        columns: Columns that replace the stored ones.
        log: Called with each message that is not a score.

    Returns:
        Task, data, number of examples of each split, and the scores by name, with the
        split's name as prefix if `data` has several splits. SQuAD 2: also the
        threshold.

    Raises:
        InputError: The data does not exist, is of another task, or has an unknown
            label (the message has the file and the line).
    """
    is_text = isinstance(model, TextClassifier | TextRegressor)
    if not is_text and columns != Columns():
        raise InputError(
            "--text_columns and --label_column must be used with a TextClassifier or a "
            "TextRegressor",
            f"them with a {type(model).__name__}",
            "Leave them out",
        )
    if is_text:
        task = _text_task(model, path, data, columns, log)
    elif isinstance(model, TokenClassifier):
        task = _tagging_task(model, path, data)
    else:
        task = _squad_task(model, data)
    report: dict[str, Any] = {"task": task.name, "data": data}
    report["examples"] = {name: len(split) for name, split in task.eval_splits.items()}
    if isinstance(model, QuestionAnswerer) and model.null_threshold is not None:
        report["null_threshold"] = model.null_threshold
        log(
            "a question has no answer where its null_odds are above the threshold "
            f"stored with the model, {model.null_threshold:.6g}"
        )
    return report | _scores(task, model, log)


def format_report(report: Mapping[str, Any]) -> str:
    """Format a report as text.

    Args:
        report: The result of `evaluate_model`.

    Returns:
        A line about the data, and a line for each score.
    """
    counts = ", ".join(f"{name} {n:,}" for name, n in report["examples"].items())
    lines = [f"{report['task']}: {report['data']}, examples: {counts}"]
    for name, value in report.items():
        if isinstance(value, float):
            lines.append(f"  {name:<28}{value:>12.5f}")
    return "\n".join(lines)


def _scores(
    task: Task, model: TextModel, log: Callable[[str], None]
) -> dict[str, float | None]:
    scores: dict[str, float | None] = {}
    for name, split in task.eval_splits.items():
        for line in task.describe_inputs(model, name, model.examples(split.items)):
            log(line)
        predictions = task.predictions(model, split)
        if description := task.degenerate(split, predictions):
            log(f"DEGENERATE: the model {description} on {name}")
        prefix = f"{name}_" if len(task.eval_splits) > 1 else ""
        for key, value in task.score(split, predictions).items():
            finite = math.isfinite(value)
            scores[prefix + key] = float(value) if finite else None
    return scores


def _text_task(
    model: TextClassifier | TextRegressor,
    path: str,
    data: str,
    columns: Columns,
    log: Callable[[str], None],
) -> ClassificationTask:
    """Read the labelled rows of a table, or of a GLUE task."""
    stored, name = stored_columns(path, model), stored_task(path)
    glue_task = glue.TASKS.get("mnli" if name == "ax" else name or "")
    is_glue = glue_task is not None and columns == Columns()
    columns = Columns(columns.texts or stored.texts, columns.target or stored.target)
    _check_columns(model, columns)
    labels = getattr(model, "labels", None)
    bounds = (model.low, model.high) if labels is None else (0.0, 1.0)
    allowed = glue_task.range if is_glue and labels is None else (-math.inf, math.inf)
    splits = {}
    for split, file in _tables(data, name if is_glue else None).items():
        errors = DataErrorLog("stop", "", _RULE)
        rows = glue.read(file, name, errors) if is_glue else read_rows(file, errors)
        has_labels = any(row.values.get(columns.target, "").strip() for row in rows)
        if split == "test" and not has_labels:
            log(f"{file} has no labels, and is not scored")
            continue
        require_columns(rows, (*columns.texts, columns.target))
        splits[split] = make_split(
            rows,
            columns.texts,
            columns.target,
            errors,
            has_scores=labels is None,
            labels=labels,
            bounds=allowed,
        )
    if is_glue:
        return ClassificationTask(name, splits, glue_task.metrics, labels, bounds)
    metrics = REGRESSION_METRICS if labels is None else classification_metrics(labels)
    return ClassificationTask(
        name or "csv", splits, metrics, labels, bounds, clipped=False
    )


def _check_columns(model: TextModel, columns: Columns) -> None:
    """Raise an error for columns that are missing or too many."""
    needed = 2 if model.pairs else 1
    missing = [
        flag
        for flag, value in (
            ("--text_columns", columns.texts),
            ("--label_column", columns.target),
        )
        if not value
    ]
    if missing:
        raise InputError(
            "The columns of a table must be stored with the model or set by flags",
            f"no {' and no '.join(missing)}, and none in the model's settings",
            "Pass --text_columns=review --label_column=label",
        )
    if model.pairs is not None and len(columns.texts) != needed:
        raise InputError(
            f"--text_columns must name {needed} column{'s' * (needed > 1)}, as the "
            "model was trained with",
            ",".join(columns.texts),
            "Name a column for each text of the model",
        )


def _tables(data: str, name: str | None) -> dict[str, str]:
    """Return the files by split; `name` is the name of a GLUE task."""
    if name and (data.startswith(TFDS) or os.path.isdir(data)):
        stems = glue.TASKS["mnli" if name == "ax" else name].dev
        files = {stem: glue.find(data, name, stem) for stem in stems}
        if not any(files.values()):
            glue.require(data, name, stems[0])
        return {stem: file for stem, file in files.items() if file}
    if data.startswith(TFDS):
        return {"data": data}
    return _files(data, FORMATS)


def _files(data: str, endings: Sequence[str]) -> dict[str, str]:
    """Return the file, or dev and test of a folder, by split."""
    if os.path.isfile(data):
        return {"data": data}
    files = {}
    for split in ("dev", "test"):
        names = (f"{split}{e}{suffix}" for e in endings for suffix in SUFFIXES)
        paths = (os.path.join(data, name) for name in names)
        if path := next(filter(os.path.isfile, paths), None):
            files[split] = path
    if files:
        return files
    raise InputError(
        f"--data must be a labelled file, or a folder with dev{endings[0]} or "
        f"test{endings[0]}",
        f"{data!r}" + ("" if os.path.isdir(data) else ", which does not exist"),
        "Check the path, or name the file itself",
    )


class _KnownTags(TaggingTask):
    """Tagging task with the tags of a trained model."""

    def __init__(self, name: str, splits: dict[str, Split], tags: Sequence[str]):
        self.tags, self.spans = tuple(tags), is_span_scheme(tags)
        Task.__init__(self, name, splits, "f1" if self.spans else "accuracy")


def _tagging_task(model: TokenClassifier, path: str, data: str) -> TaggingTask:
    config, splits = model.settings.data, {}
    for split, file in _files(data, _COLUMN_FILES).items():
        if inner_suffix(file) in (".csv", ".json", ".jsonl"):
            raise InputError(
                _RULE,
                f"{file!r} for a TokenClassifier",
                "Name a file with a word on a line",
            )
        errors = DataErrorLog("stop", "", _RULE)
        sentences = read_conll(file, config.word_column, config.tag_column, errors)
        for sentence in sentences:
            _check_tags(sentence, model.tags)
        splits[split] = Split(sentences, [sentence.tags for sentence in sentences])
    return _KnownTags(stored_task(path) or "tagging", splits, model.tags)


def _check_tags(sentence: Sentence, tags: Sequence[str]) -> None:
    """Raise an error for a tag that the model cannot predict."""
    spans = is_span_scheme(tags)
    if spans and not is_span_scheme(sentence.tags):
        index = next(n for n, t in enumerate(sentence.tags) if not is_span_scheme([t]))
    else:
        converted = sentence.tags
        if spans:
            converted = to_scheme(converted, learned_scheme(tags))
        index = next((n for n, tag in enumerate(converted) if tag not in tags), None)
    if index is not None:
        raise InputError(
            f"A tag must be one of the model's: {', '.join(tags[:20])}"
            + ", ..." * (len(tags) > 20),
            f"{sentence.source}:{sentence.line + index}: {sentence.tags[index]!r}",
            "Correct the tag, or check that the file has the tags of training",
        )


def _squad_task(model: QuestionAnswerer, data: str) -> SquadTask:
    name, splits = "squad1" if model.null_threshold is None else "squad2", {}
    for split, file in _files(data, _QUESTIONS).items():
        if inner_suffix(file) != ".json":
            raise InputError(
                _RULE, f"{file!r} for a QuestionAnswerer", "Name a file of SQuAD's JSON"
            )
        questions = read_squad_ignoring_offsets(file)
        if not any(q.answers or q.impossible for q in questions):
            raise InputError(
                _RULE, f"{file!r}, whose questions have no answers", "Name another file"
            )
        answers = [question.located for question in questions]
        splits[split] = Split(questions, answers)
    return SquadTask(name, splits)
