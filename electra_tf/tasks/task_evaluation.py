"""Score a fine-tuned model on labelled data of its task."""

import dataclasses
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from electra_tf.errors import InputError
from electra_tf.tasks import glue
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.classification.task import ClassificationTask
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.conll import ENDINGS, Sentence
from electra_tf.tasks.metrics import (
    REGRESSION_METRICS,
    classification_metrics,
)
from electra_tf.tasks.runner import CONFIG
from electra_tf.tasks.schemes import is_span_scheme, learned_scheme, to_scheme
from electra_tf.tasks.sentences import read_sentences, require_json
from electra_tf.tasks.spelling import other_spelling
from electra_tf.tasks.split_column import (
    require_one_file,
    require_splits,
    split_rows,
    unused_split_column,
)
from electra_tf.tasks.split_files import find_split
from electra_tf.tasks.splits import make_split
from electra_tf.tasks.squad.task import SquadTask
from electra_tf.tasks.squad_json import find_squad, read_squad_ignoring_offsets
from electra_tf.tasks.tables import (
    FORMATS,
    TFDS,
    Row,
    print_note,
    read_rows,
    require_columns,
)
from electra_tf.tasks.tagger import TokenClassifier
from electra_tf.tasks.tagging.task import TaggingTask
from electra_tf.tasks.task import Split, Task
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.compression import inner_suffix
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.json_records import SUFFIXES

_RULE = "The data must be labelled, for the task that the model was trained on"
_MAX_LINE = 1 << 20  # characters of the first line of a config.yaml


@dataclasses.dataclass(frozen=True)
class Columns:
    """Names of columns of a table."""

    texts: tuple[str, ...] = ()
    """Column of the text, or of both texts of a pair; empty: not set."""
    target: str | None = None
    """Column of the label or the score; None: not set."""
    split: str | None = None
    """Column of the names of splits, of which dev and test are scored."""
    tag_names: tuple[str, ...] = ()
    """Names of tags that are integers."""

    def or_else(self, other: "Columns") -> "Columns":
        """Return these columns, and others where these are not set."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Columns(*(own or others for own, others in pairs))


def stored_task(path: str) -> str | None:
    """Return the name of the task that a model was trained on."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    try:
        with open(os.path.join(folder, CONFIG), encoding="utf-8") as file:
            return json.loads(file.readline(_MAX_LINE).strip("#"))["task"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def stored_columns(path: str, model: TextModel) -> Columns:
    """Return the columns that a model was trained with."""
    data = model.settings.data
    if data.text_columns or data.label_column or data.tag_names:
        target = data.label_column or data.score_column
        names = tuple(data.tag_names)
        return Columns(tuple(data.text_columns), target, data.split_column, names)
    row = glue.TASKS.get(stored_task(path) or "")
    return Columns(row.texts, row.label) if row else Columns()


def evaluate_model(
    model: TextModel,
    path: str,
    data: str,
    columns: Columns = Columns(),
    log: Callable[[str], None] = print_note,
) -> dict[str, Any]:
    """Score a model on labelled data.

    Returns:
        Task, data, number of examples of each split, and the scores by name, with the
        split's name as prefix if `data` has several splits. SQuAD 2: also the
        threshold.
    """
    is_text = isinstance(model, TextClassifier | TextRegressor)
    _check_flags(model, columns)
    if is_text:
        task = _text_task(model, path, data, columns, log)
    elif isinstance(model, TokenClassifier):
        task = _tagging_task(model, path, data, columns, log)
    else:
        task = _squad_task(model, data, log)
    report: dict[str, Any] = {"task": task.name, "data": data}
    report["examples"] = {name: len(split) for name, split in task.eval_splits.items()}
    if isinstance(model, QuestionAnswerer) and model.null_threshold is not None:
        report["null_threshold"] = model.null_threshold
        log(
            "a question has no answer where its null_odds are above the threshold "
            f"stored with the model, {model.null_threshold:.6g}"
        )
    return report | _scores(task, model, log)


def _check_flags(model: TextModel, columns: Columns) -> None:
    """Raise an error for columns that a model of another kind has."""
    tagger, answerer = TokenClassifier, QuestionAnswerer
    wrong = [
        flag
        for flag, value, without in (
            ("--text_columns", columns.texts, answerer),
            ("--label_column", columns.target, answerer),
            ("--split_column", columns.split, (tagger, answerer)),
            (
                "--tag_names",
                columns.tag_names,
                (TextClassifier, TextRegressor, answerer),
            ),
        )
        if value and isinstance(model, without)
    ]
    if wrong:
        names = ", ".join(wrong)
        raise InputError(
            f"{names} must be used with a model that reads such columns",
            f"a {type(model).__name__}",
            f"Leave {names} out",
        )


def format_report(report: Mapping[str, Any]) -> str:
    """Format a report as text.

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
    given_split, columns = columns.split, columns.or_else(stored)
    if given_split and not os.path.isfile(data):
        require_one_file(given_split, data)
    _check_columns(model, columns)
    labels = getattr(model, "labels", None)
    bounds = (model.low, model.high) if labels is None else (0.0, 1.0)
    allowed = glue_task.range if is_glue and labels is None else (-math.inf, math.inf)
    splits = {}
    for split, file in _tables(data, name if is_glue else None).items():
        errors = DataErrorLog("stop", "", _RULE)
        if is_glue:
            parts = {split: glue.read(file, name, errors)}
        else:
            rows = read_rows(file, errors, log)
            parts = _parts(rows, split, columns, given_split, log)
        for part, rows in parts.items():
            has_labels = any(r.values.get(columns.target, "").strip() for r in rows)
            if part == "test" and not has_labels:
                log(f"test of {file} has no labels, and is not scored")
                continue
            require_columns(rows, (*columns.texts, columns.target))
            splits[part] = make_split(
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


def _parts(
    rows: list[Row],
    split: str,
    columns: Columns,
    given: str | None,
    log: Callable[[str], None],
) -> dict[str, list[Row]]:
    """Return the rows of a file; those of dev and test, if a column has splits."""
    column = columns.split
    if given:
        require_columns(rows, [given])
    if column is None or column not in rows[0].values:
        used = (*columns.texts, columns.target)
        if unused := unused_split_column([row.values for row in rows], used):
            log(
                f"warning: the column {unused!r} of {rows[0].source} holds names of "
                "splits, but is not used: rows of train are scored too. Pass "
                f"--split_column={unused} to score dev and test"
            )
        return {split: rows}
    errors = DataErrorLog("stop", "", _RULE)
    parts = split_rows(rows, column, errors)
    require_splits(parts, ["dev", "test"], rows[0].source)
    log(f"dev and test by the column {column!r}, without train")
    return {name: part for name, part in parts.items() if name != "train"}


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
    paths = {split: find_split(data, split, endings) for split in ("dev", "test")}
    files = {split: path for split, path in paths.items() if path}
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


def _tagging_task(
    model: TokenClassifier,
    path: str,
    data: str,
    columns: Columns,
    log: Callable[[str], None],
) -> TaggingTask:
    is_given, splits = columns != Columns(), {}
    columns = columns.or_else(stored_columns(path, model))
    config = dataclasses.replace(
        model.settings.data,
        text_columns=columns.texts,
        label_column=columns.target,
        tag_names=columns.tag_names,
    )
    for split, file in _files(data, ENDINGS).items():
        errors = DataErrorLog("stop", "", _RULE)
        if is_given:
            require_json(file)
        sentences = read_sentences(file, config, errors, log)
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
            f"{sentence.source}:{sentence.line_of(index)}: {sentence.tags[index]!r}"
            + other_spelling(sentence.tags[index], tags),
            "Correct the tag, or check that the file has the tags of training",
        )


def _squad_task(
    model: QuestionAnswerer, data: str, log: Callable[[str], None]
) -> SquadTask:
    name, splits = "squad1" if model.null_threshold is None else "squad2", {}
    for split, file in _question_files(data, name).items():
        if inner_suffix(file) not in SUFFIXES:
            raise InputError(
                _RULE,
                f"{file!r} for a QuestionAnswerer",
                "Name a file of SQuAD's JSON, or JSON lines with id, question, context "
                "and answers",
            )
        questions = read_squad_ignoring_offsets(file, log)
        if not any(q.answers or q.impossible for q in questions):
            raise InputError(
                _RULE, f"{file!r}, whose questions have no answers", "Name another file"
            )
        answers = [question.located for question in questions]
        splits[split] = Split(questions, answers)
    return SquadTask(name, splits)


def _question_files(data: str, name: str) -> dict[str, str]:
    if os.path.isdir(data):
        paths = {split: find_squad(data, split, name) for split in ("dev", "test")}
        if files := {split: path for split, path in paths.items() if path}:
            return files
    return _files(data, (".json",))
