"""Score files of predictions of any system by the official metrics of their task."""

import collections
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from electra_tf.errors import InputError, format_list
from electra_tf.tasks import glue
from electra_tf.tasks.conll import ENDINGS, read_conll, with_usual_tags, without_headers
from electra_tf.tasks.score import LabelScorer, TagScorer
from electra_tf.tasks.splits import Split, find_splits
from electra_tf.tasks.squad_json import PUBLISHED, read_squad_ignoring_offsets
from electra_tf.tasks.squad_metrics import score_v1, score_v2
from electra_tf.tasks.tables import TFDS, Row, print_note, read_text, require_columns
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import inner_suffix
from electra_tf.text.rows import JSON_SUFFIXES

NAMES = (*glue.TASKS, *PUBLISHED, "chunking", "tagging")
"""Tasks of files of predictions."""
_REMEDY = "Check that both files belong to the same data"


def score_predictions(
    task: str,
    data: str,
    predictions: str,
    na_prob: str | None = None,
    log: Callable[[str], None] = print_note,
) -> dict[str, Any]:
    """Score a file of predictions by the official metrics of its task."""
    if na_prob and task != "squad2":
        raise InputError(
            "--na_prob must be used with --task=squad2",
            f"--task={task}",
            "Leave it out",
        )
    data = _find_labels(task, data, predictions, log)
    if task in glue.TASKS:
        return _score_labels(task, data, predictions, log)
    if task not in PUBLISHED:
        return _score_tags(data, predictions, log)
    questions, answers = read_squad_ignoring_offsets(data), _read_by_id(predictions)
    if task == "squad1":
        return score_v1(questions, answers, log)
    odds = _read_by_id(na_prob) if na_prob else None
    return score_v2(questions, answers, odds, warn=log)


def _find_labels(
    task: str, data: str, predictions: str, log: Callable[[str], None]
) -> str:
    """Find the labelled file in a folder, or in a data set of TFDS."""
    is_whole = task in glue.TASKS and data.startswith(TFDS) and "@" not in data
    if not os.path.isdir(data) and not is_whole:
        return data
    stem = pathlib.Path(predictions).name.split(".")[0]
    if task in glue.TASKS:
        path = _find_dev(task, data, stem)
    else:
        is_test = stem == "test" and task not in PUBLISHED
        split, endings = "test" if is_test else "dev", ENDINGS
        if task in PUBLISHED:
            endings = JSON_SUFFIXES[::-1]
        path = find_splits(data, [split], endings, PUBLISHED.get(task)).get(split)
    if path is None:
        raise InputError(
            f"--data must be {task}'s labelled file, or a folder with "
            f"{split}{endings[0]}",
            f"{data!r} without one; it has {format_list(sorted(os.listdir(data)))}",
            "Name the labelled file",
        )
    log(f"labels: {path}")
    return path


def _find_dev(task: str, data: str, stem: str) -> str:
    """Return the dev file of GLUE that predictions with this stem belong to."""
    stems = glue.TASKS[task].dev
    if stem in stems:
        return glue.require(data, task, stem)
    files = glue.dev_files(data, task) if stems else {}
    if len(files) == 1:
        return next(iter(files.values()))
    raise InputError(
        f"--data must be {task}'s labelled file, or a folder with one dev file",
        f"the folder {data!r} with {format_list(files) or 'none'}",
        "Name the file itself, such as dev_matched.tsv"
        if stems
        else f"{task} has no published labels; name a labelled file",
    )


def _score_labels(
    task: str, data: str, predictions: str, log: Callable[[str], None]
) -> dict[str, float]:
    errors = DataErrorLog("stop", "", "A file must have GLUE's columns")
    glue_task, rows = glue.TASKS[task], glue.read(data, task, errors)
    require_columns(rows, (glue_task.label,))
    words, kind, keys = _read_words(predictions, errors)
    aligned = _align_rows(rows, len(words), kind, keys, data, predictions)
    if len(aligned) < len(rows):
        log(f"{len(aligned):,} of {len(rows):,} rows have a prediction and are scored")
    scorer = LabelScorer(glue_task.metrics, glue_task.labels)
    gold = [row.values.get(glue_task.label, "") for row in aligned]
    split = Split(aligned, scorer.parse(gold, list(map(str, aligned))))
    places = [f"row {n} of {predictions}" for n in range(1, len(words) + 1)]
    return scorer.all_scores(split, scorer.parse(words, places))


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
    if header[0].startswith(("index,", "prediction,")):
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
                "'prediction', with a number as index",
                f"{path}:{number}: {lines[number - 1]!r:.80}, below "
                f"{format_list(header)}",
                "Correct that line, or rename the column of the predictions",
            )
        words.append(record["prediction"])
        keys.append(int(key))
    return words, kind, keys


def _align_rows(
    rows: list[Row],
    count: int,
    kind: str,
    keys: list[int] | None,
    data: str,
    predictions: str,
) -> list[Row]:
    if keys is None:
        if count == len(rows):
            return rows
        raise InputError(
            "There must be a prediction for each row",
            f"{len(rows)} rows in {data}, {count} in {predictions}",
            _REMEDY,
        )
    by_key = {r.line: r for r in rows} if kind == "lines" else dict(enumerate(rows))
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
            f"{len(rows) - 1:,}",
            f"{predictions} with {'; '.join(found)}",
            _REMEDY,
        )
    return [by_key[key] for key in keys]


def _score_tags(
    data: str, predictions: str, log: Callable[[str], None]
) -> dict[str, Any]:
    errors = DataErrorLog("stop", "", "Columns must be words and tags")
    for path in (data, predictions):
        if inner_suffix(path) in (*JSON_SUFFIXES, ".csv"):
            raise InputError(
                "Tags must be columns: a word and its tag on each line",
                f"{path!r}, a file of another format",
                "Write them as columns; finetune writes its predictions so, with tags",
            )
    sides = [read_conll(path, 0, -1, errors, log) for path in (data, predictions)]
    sides = without_headers(dict(enumerate(sides)), log).values()
    gold, predicted = (with_usual_tags({"": s}, notify=log)[""] for s in sides)
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
    split = Split(gold, [sentence.tags for sentence in gold])
    scorer = TagScorer(tag for tags in split.targets for tag in tags)
    return scorer.all_scores(split, [sentence.tags for sentence in predicted])


def _read_by_id(path: str) -> Mapping[str, Any]:
    text = read_text(path, DataErrorLog("stop", "", "Predictions must be UTF-8"))
    try:
        values = json.loads(text)
    except ValueError as error:
        values = error
    if not isinstance(values, dict):
        kind = (
            values if isinstance(values, ValueError) else f"a {type(values).__name__}"
        )
        raise InputError(
            "Predictions must be one JSON object, with a value for each question's id",
            f"{path}: {kind}",
            "Write them as {id: text}",
        )
    return values
