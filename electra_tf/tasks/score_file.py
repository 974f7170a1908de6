"""A file of predictions and the right answers -> official scores."""

import collections
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf.errors import InputError, listed
from electra_tf.tasks.classification import glue, metrics
from electra_tf.tasks.data.conll import find_columns, read_conll, without_headers
from electra_tf.tasks.data.tables import TFDS, Row, read_text, require_columns
from electra_tf.tasks.squad.metrics import score_v1, score_v2
from electra_tf.tasks.squad.reader import find_squad, read_squad_ignoring_offsets
from electra_tf.tasks.tagging.metrics import score_spans, score_tokens
from electra_tf.tasks.tagging.schemes import is_span_scheme
from electra_tf.text.data_errors import DataErrorLog

NAMES = (*glue.TASKS, "squad1", "squad2", "chunking", "tagging")
_REMEDY = "Check that both files belong to the same data"


def score_predictions(
    task: str,
    data: str,
    predictions: str,
    na_prob: str | None = None,
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Scores a file of predictions.

    Args:
        task: One of `NAMES`.
        data: The right answers: a task's labelled file as published; or its folder,
            whose dev file is read, or the file with the name of the predictions.
        predictions: SQuAD: JSON, text by id. GLUE: the leaderboard's form (index and
            prediction, with a header, in any order), or a label a line in the order
            of the data. Tagging: columns, the last of which is the predicted tag.
        na_prob: SQuAD 2: JSON, odds of no answer by id.
        tell: Called with the file of labels and with warnings.

    Returns:
        Scores by their official names.

    Raises:
        InputError: Files that do not belong together, or are none of theirs.
    """
    if na_prob and task != "squad2":
        raise InputError(
            "--na_prob goes with --task=squad2", f"--task={task}", "Leave it out"
        )
    data = _labels_of(task, data, predictions, tell)
    if task.startswith("squad"):
        questions = read_squad_ignoring_offsets(data)
        said = _by_id(predictions)
        if task == "squad1":
            return score_v1(questions, said, warn=tell)
        odds = _by_id(na_prob) if na_prob else None
        return score_v2(questions, said, odds, warn=tell)
    if task in ("chunking", "tagging"):
        return _judge_tags(data, predictions, tell)
    return _judge_glue(task, data, predictions, tell)


def _labels_of(
    task: str, data: str, predictions: str, tell: Callable[[str], None]
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
        part = "test" if tags and stem == "test" else "dev"
        path = find_columns(data, part) if tags else find_squad(data, part, task)
    if path is None:
        raise InputError(
            f"--data must be {task}'s labelled file, or a folder with {part}"
            + (".txt, .conll, .tsv or .bio" if tags else ".json"),
            f"{data!r} without one; it has {listed(sorted(os.listdir(data)))}",
            "Name the file of the right answers",
        )
    tell(f"right answers: {path}")
    return path


def _dev_stem(task: str, data: str, stem: str) -> str:
    """The dev file that predictions are of, by their file's name if there are two."""
    known = glue.TASKS[task].dev
    if stem in known:
        return stem
    found = [name for name in known if glue.find(data, task, name)]
    if len(known) == 1 or len(found) == 1:
        return (found or known)[0]
    raise InputError(
        f"--data must be {task}'s labelled file, or a folder with one dev file",
        f"the folder {data!r} with {listed(found) if found else 'none'}",
        "Name the file itself, such as dev_matched.tsv"
        if known
        else f"{task} has no published labels; name a labelled file",
    )


def _judge_glue(
    task: str, data: str, predictions: str, tell: Callable[[str], None]
) -> dict[str, float]:
    row, log = glue.TASKS[task], DataErrorLog("stop", "", "GLUE's columns are there")
    rows = glue.read(data, task, log)
    require_columns(rows, (row.label,))
    found = _lines(predictions, log)
    if found.indexes is None and len(found.said) != len(rows):
        raise InputError(
            "There is a prediction for each row",
            f"{len(rows)} rows in {data}, {len(found.said)} in {predictions}",
            _REMEDY,
        )
    if found.indexes is not None:
        whole, rows = len(rows), _aligned(rows, found, data, predictions)
        if len(rows) < whole:
            tell(f"{len(rows):,} of {whole:,} rows have a prediction and are scored")
    gold = [one.values[row.label] for one in rows]
    places = [f"row {n} of {predictions}" for n in range(1, len(found.said) + 1)]
    numbers = (
        _numbers(task, gold, list(map(str, rows))),
        _numbers(task, found.said, places),
    )
    return {name: metrics.METRICS[name](*numbers) for name in row.metrics}


def _aligned(
    rows: list[Row], found: "_Lines", data: str, predictions: str
) -> list[Row]:
    """The row of each prediction, by its index; by its line where finetune wrote it."""
    if found.lines is not None:  # finetune left bad rows out
        known, wanted, name = {r.line: r for r in rows}, found.lines, "lines"
        required = set(wanted)
    else:
        known, wanted, name = dict(enumerate(rows)), found.indexes, "indexes"
        required = set(known)
    counts = collections.Counter(wanted)
    faults = {
        f"{name} that {data} does not have": sorted(counts.keys() - known.keys()),
        f"{name} that occur more than once": [n for n, c in counts.items() if c > 1],
        f"{name} without a prediction": sorted(required - counts.keys()),
    }
    told = [f"{kind}: {listed(values)}" for kind, values in faults.items() if values]
    if told:
        raise InputError(
            f"Each row has one prediction; indexes are 0 to {len(rows) - 1:,}",
            f"{predictions} with {'; '.join(told)}",
            _REMEDY,
        )
    return [known[number] for number in wanted]


def _numbers(task: str, words: Sequence[str], places: Sequence[str]) -> np.ndarray:
    labels = glue.TASKS[task].labels
    known = {label: number for number, label in enumerate(labels or ())}
    numbers = []
    for place, word in zip(places, words, strict=True):
        try:
            numbers.append(float(word) if labels is None else known[word])
        except (KeyError, ValueError) as error:
            raise InputError(
                "Labels are " + (listed(labels) if labels else "numbers"),
                f"{word!r} in {place}",
                "Mend that line",
            ) from error
    return np.array(numbers)


class _Lines(NamedTuple):
    """Predictions of GLUE's form."""

    said: list[str]
    indexes: list[int] | None
    """None: there is no column `index`."""
    lines: list[int] | None
    """The lines of the data they are of, where finetune wrote them."""


def _lines(path: str, log: DataErrorLog) -> _Lines:
    lines = read_text(path, log).split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    cells = [[c.strip() for c in line.split("\t")] for line in lines]
    names, *rest = cells
    if names == ["prediction"]:
        return _Lines([cell[-1] for cell in rest], None, None)
    if names[0].startswith(("index,", "prediction,")):
        raise InputError(
            "Predictions have tabs between their columns",
            f"{path}:1: {lines[0]!r:.80}",
            "Write them with sep='\\t'",
        )
    if "index" not in names:
        return _Lines([cell[-1] for cell in cells], None, None)
    if "prediction" not in names:
        raise InputError(
            "Predictions with an index have the columns 'index' and 'prediction'",
            f"{path}:1 with {listed(names)}",
            "Rename the column of the predictions",
        )
    records: list[tuple[str, int, int]] = []
    for number, cell in enumerate(rest, 2):
        record = dict(zip(names, cell, strict=False))
        place = record.get("place", "0").rpartition(":")[2]
        if len(cell) != len(names) or not (record["index"] + place).isdecimal():
            raise InputError(
                f"Each prediction has the columns {listed(names)}, the index a number",
                f"{path}:{number}: {lines[number - 1]!r:.80}",
                "Correct that line",
            )
        records.append((record["prediction"], int(record["index"]), int(place)))
    said, indexes, places = (
        map(list, zip(*records, strict=True)) if records else [[]] * 3
    )
    return _Lines(said, indexes, places if "place" in names else None)


def _judge_tags(
    data: str, predictions: str, tell: Callable[[str], None]
) -> dict[str, Any]:
    log = DataErrorLog("stop", "", "Columns are words and tags")
    files = {
        path: read_conll(path, 0, -1, log, tell=tell) for path in (data, predictions)
    }
    files = without_headers(files, tell)
    gold, said = files[data], files[predictions]
    for right, other in zip(gold, said, strict=False):
        if right.words != other.words:
            raise InputError(
                "Both files have the same words",
                f"{other.source}:{other.line}, a sentence that is not the one at "
                f"{right.source}:{right.line}",
                _REMEDY,
            )
    if len(gold) != len(said):
        raise InputError(
            "Both files have the same sentences", f"{len(gold)} and {len(said)}",
            _REMEDY,
        )  # fmt: skip
    tags = [[sentence.tags for sentence in side] for side in (gold, said)]
    spans = is_span_scheme(tag for sentence in tags[0] for tag in sentence)
    return (score_spans if spans else score_tokens)(*tags)


def _by_id(path: str) -> dict[str, Any]:
    text = read_text(path, DataErrorLog("stop", "", "Predictions are JSON in UTF-8"))
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InputError(
            "Predictions are JSON", f"{path}: {error}", "Mend it"
        ) from error
    if not isinstance(found, dict):
        raise InputError(
            "Predictions are one JSON object, a value for each question's id",
            f"{pathlib.Path(path).name}: a {type(found).__name__}",
            "Write them as {id: text}",
        )
    return found
