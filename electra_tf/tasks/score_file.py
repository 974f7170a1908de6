"""Score a file of predictions by the official metrics of its task."""

import collections
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf.errors import InputError, format_list
from electra_tf.tasks import glue, metrics
from electra_tf.tasks.conll import find_columns, read_conll, without_headers
from electra_tf.tasks.schemes import is_span_scheme
from electra_tf.tasks.squad_json import find_squad, read_squad_ignoring_offsets
from electra_tf.tasks.squad_metrics import score_v1, score_v2
from electra_tf.tasks.tables import TFDS, Row, read_text, require_columns
from electra_tf.tasks.tag_metrics import score_spans, score_tokens
from electra_tf.text.compression import inner_suffix
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.json_file import parse_json
from electra_tf.text.json_records import SUFFIXES

NAMES = (*glue.TASKS, "squad1", "squad2", "chunking", "tagging")
_REMEDY = "Check that both files belong to the same data"


def score_predictions(
    task: str,
    data: str,
    predictions: str,
    na_prob: str | None = None,
    log: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Score a file of predictions."""
    if na_prob and task != "squad2":
        raise InputError(
            "--na_prob must be used with --task=squad2",
            f"--task={task}",
            "Leave it out",
        )
    data = _find_labels(task, data, predictions, log)
    if task.startswith("squad"):
        questions = read_squad_ignoring_offsets(data)
        answers = _read_by_id(predictions)
        if task == "squad1":
            return score_v1(questions, answers, warn=log)
        odds = _read_by_id(na_prob) if na_prob else None
        return score_v2(questions, answers, odds, warn=log)
    if task in ("chunking", "tagging"):
        return _score_tags(data, predictions, log)
    return _score_glue(task, data, predictions, log)


def _find_labels(
    task: str, data: str, predictions: str, log: Callable[[str], None]
) -> str:
    """Find the labelled file in a folder, or in a data set of TFDS."""
    whole = task in glue.TASKS and data.startswith(TFDS) and "@" not in data
    if not os.path.isdir(data) and not whole:
        return data
    stem = pathlib.Path(predictions).name.split(".")[0]
    if task in glue.TASKS:
        path = glue.require(data, task, _dev_stem(task, data, stem))
    else:
        tags = task in ("chunking", "tagging")
        split = "test" if tags and stem == "test" else "dev"
        path = find_columns(data, split) if tags else find_squad(data, split, task)
    if path is None:
        raise InputError(
            f"--data must be {task}'s labelled file, or a folder with {split}"
            + (".txt, .conll, .tsv or .bio" if tags else ".json"),
            f"{data!r} without one; it has {format_list(sorted(os.listdir(data)))}",
            "Name the labelled file",
        )
    log(f"labels: {path}")
    return path


def _dev_stem(task: str, data: str, stem: str) -> str:
    """Return the stem of the dev file that the predictions belong to."""
    stems = glue.TASKS[task].dev
    if stem in stems:
        return stem
    existing = [name for name in stems if glue.find(data, task, name)]
    if len(stems) == 1 or len(existing) == 1:
        return (existing or stems)[0]
    raise InputError(
        f"--data must be {task}'s labelled file, or a folder with one dev file",
        f"the folder {data!r} with {format_list(existing) if existing else 'none'}",
        "Name the file itself, such as dev_matched.tsv"
        if stems
        else f"{task} has no published labels; name a labelled file",
    )


def _score_glue(
    task: str, data: str, predictions: str, log: Callable[[str], None]
) -> dict[str, float]:
    glue_task = glue.TASKS[task]
    errors = DataErrorLog("stop", "", "A file must have GLUE's columns")
    rows = glue.read(data, task, errors)
    require_columns(rows, (glue_task.label,))
    predicted = _read_glue_predictions(predictions, errors)
    if predicted.indexes is None and len(predicted.labels) != len(rows):
        raise InputError(
            "There must be a prediction for each row",
            f"{len(rows)} rows in {data}, {len(predicted.labels)} in {predictions}",
            _REMEDY,
        )
    if predicted.indexes is not None:
        count, rows = len(rows), _align_rows(rows, predicted, data, predictions)
        if len(rows) < count:
            log(f"{len(rows):,} of {count:,} rows have a prediction and are scored")
    gold = [row.values.get(glue_task.label, "") for row in rows]
    places = [f"row {n} of {predictions}" for n in range(1, len(predicted.labels) + 1)]
    numbers = (
        _to_numbers(task, gold, list(map(str, rows))),
        _to_numbers(task, predicted.labels, places),
    )
    return {name: metrics.METRICS[name](*numbers) for name in glue_task.metrics}


def _align_rows(
    rows: list[Row], predicted: "_GluePredictions", data: str, predictions: str
) -> list[Row]:
    """Return the row of each prediction."""
    if predicted.lines is not None:  # finetune omits predictions for bad rows
        by_key, keys, name = {r.line: r for r in rows}, predicted.lines, "lines"
        required = set(keys)
    else:
        by_key, keys, name = dict(enumerate(rows)), predicted.indexes, "indexes"
        required = set(by_key)
    counts = collections.Counter(keys)
    errors = {
        f"{name} that {data} does not have": sorted(counts.keys() - by_key.keys()),
        f"{name} that occur more than once": [n for n, c in counts.items() if c > 1],
        f"{name} without a prediction": sorted(required - counts.keys()),
    }
    found = [
        f"{kind}: {format_list(values)}" for kind, values in errors.items() if values
    ]
    if found:
        raise InputError(
            "Each row must have one prediction; indexes must be 0 to "
            f"{len(rows) - 1:,}",
            f"{predictions} with {'; '.join(found)}",
            _REMEDY,
        )
    return [by_key[key] for key in keys]


def _to_numbers(task: str, labels: Sequence[str], places: Sequence[str]) -> np.ndarray:
    """Convert labels to class ids or scores; `places` is for messages."""
    classes = glue.TASKS[task].labels
    class_ids = {label: index for index, label in enumerate(classes or ())}
    numbers = []
    for place, label in zip(places, labels, strict=True):
        try:
            numbers.append(float(label) if classes is None else class_ids[label])
        except (KeyError, ValueError) as error:
            raise InputError(
                "Labels must be " + (format_list(classes) if classes else "numbers"),
                f"{label!r} in {place}",
                "Correct that line",
            ) from error
    return np.array(numbers)


class _GluePredictions(NamedTuple):
    """Predictions in GLUE's format."""

    labels: list[str]
    indexes: list[int] | None
    """Indices of the rows; None: there is no column `index`."""
    lines: list[int] | None
    """Line numbers of the rows; None: the file was not written by finetune."""


def _read_glue_predictions(path: str, errors: DataErrorLog) -> _GluePredictions:
    lines = read_text(path, errors).split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    rows = [[cell.strip() for cell in line.split("\t")] for line in lines]
    header, *body = rows
    if header == ["prediction"]:
        return _GluePredictions([row[-1] for row in body], None, None)
    if header[0].startswith(("index,", "prediction,")):
        raise InputError(
            "Columns of predictions must be separated by tabs",
            f"{path}:1: {lines[0]!r:.80}",
            "Write them with sep='\\t'",
        )
    if "index" not in header:
        return _GluePredictions([row[-1] for row in rows], None, None)
    if "prediction" not in header:
        raise InputError(
            "Predictions with an index must have the columns 'index' and 'prediction'",
            f"{path}:1 with {format_list(header)}",
            "Rename the column of the predictions",
        )
    records: list[tuple[str, int, int]] = []
    for number, row in enumerate(body, 2):
        record = dict(zip(header, row, strict=False))
        place = record.get("place", "0").rpartition(":")[2]
        if len(row) != len(header) or not (record["index"] + place).isdecimal():
            raise InputError(
                f"Each prediction must have the columns {format_list(header)}, and a "
                "number as index",
                f"{path}:{number}: {lines[number - 1]!r:.80}",
                "Correct that line",
            )
        records.append((record["prediction"], int(record["index"]), int(place)))
    labels, indexes, places = (
        map(list, zip(*records, strict=True)) if records else [[]] * 3
    )
    return _GluePredictions(labels, indexes, places if "place" in header else None)


def _score_tags(
    data: str, predictions: str, log: Callable[[str], None]
) -> dict[str, Any]:
    errors = DataErrorLog("stop", "", "Columns must be words and tags")
    for path in (data, predictions):
        if inner_suffix(path) in (*SUFFIXES, ".csv"):
            raise InputError(
                "Tags must be columns: a word and its tag on each line",
                f"{path!r}, a file of another format",
                "Write them as columns; finetune writes its predictions so, with tags",
            )
    files = {
        path: read_conll(path, 0, -1, errors, notify=log)
        for path in (data, predictions)
    }
    files = without_headers(files, log)
    gold, predicted = files[data], files[predictions]
    for expected, sentence in zip(gold, predicted, strict=False):
        if expected.words != sentence.words:
            raise InputError(
                "Both files must have the same words",
                f"{sentence.source}:{sentence.line}, a sentence that is not the one at "
                f"{expected.source}:{expected.line}",
                _REMEDY,
            )
    if len(gold) != len(predicted):
        raise InputError(
            "Both files must have the same number of sentences",
            f"{len(gold)} and {len(predicted)}",
            _REMEDY,
        )
    tags = [[sentence.tags for sentence in side] for side in (gold, predicted)]
    spans = is_span_scheme(tag for sentence in tags[0] for tag in sentence)
    return (score_spans if spans else score_tokens)(*tags)


def _read_by_id(path: str) -> dict[str, Any]:
    text = read_text(path, DataErrorLog("stop", "", "Predictions must be UTF-8"))
    try:
        values = parse_json(text)
    except ValueError as error:
        raise InputError(
            "Predictions must be JSON", f"{path}: {error}", "Write them as {id: text}"
        ) from error
    if not isinstance(values, dict):
        raise InputError(
            "Predictions must be one JSON object, with a value for each question's id",
            f"{pathlib.Path(path).name}: a {type(values).__name__}",
            "Write them as {id: text}",
        )
    return values
