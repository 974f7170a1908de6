"""A file of predictions and the right answers -> official scores."""

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from electra_tf.errors import InputError
from electra_tf.tasks import glue, scoring
from electra_tf.tasks.columns import read_columns
from electra_tf.tasks.spans import is_span_scheme
from electra_tf.tasks.squad_data import read_squad
from electra_tf.tasks.squad_scoring import score_v1, score_v2
from electra_tf.tasks.tables import read_text, require_columns
from electra_tf.tasks.tagging_scoring import score_spans, score_tokens
from electra_tf.text.problems import Problem, ProblemLog

NAMES = (*glue.TASKS, "squad1", "squad2", "chunking", "tagging")
_REMEDY = "Check that both files belong to the same data"


def judge(
    task: str,
    data: str,
    predictions: str,
    na_prob: str | None = None,
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Scores a file of predictions.

    Args:
        task: One of `NAMES`.
        data: The right answers: a task's labelled file as published.
        predictions: SQuAD: JSON, text by id. GLUE: the leaderboard's form (index and
            prediction, with a header), or a label a line. Tagging: columns, the last
            of which is the predicted tag.
        na_prob: SQuAD 2: JSON, odds of no answer by id.
        tell: Gets what is to be said besides.

    Returns:
        Scores by their official names.

    Raises:
        InputError: Files that do not belong together, or are none of theirs.
    """
    if na_prob and task != "squad2":
        raise InputError(
            "--na_prob goes with --task=squad2", f"--task={task}", "Leave it out"
        )
    if task.startswith("squad"):
        questions = read_squad(data, _Lenient("stop", "", "SQuAD's layout is kept"))
        said = _by_id(predictions)
        if task == "squad1":
            return score_v1(questions, said, tell=tell)
        odds = _by_id(na_prob) if na_prob else None
        return score_v2(questions, said, odds, tell=tell)
    if task in ("chunking", "tagging"):
        return _judge_tags(data, predictions)
    return _judge_glue(task, data, predictions)


class _Lenient(ProblemLog):
    """Lets wrong offsets pass: no score depends on them."""

    def add(self, problem: Problem) -> None:
        if problem.kind not in ("offset", "no_offset"):
            super().add(problem)


def _judge_glue(task: str, data: str, predictions: str) -> dict[str, float]:
    row, log = glue.TASKS[task], ProblemLog("stop", "", "GLUE's columns are there")
    rows = glue.read(data, task, log)
    require_columns(rows, (row.label,))
    said, places = _lines(predictions, log)
    if places is not None:  # finetune left bad rows out
        rows = [found for found in rows if found.line in places]
    gold = [found.values[row.label] for found in rows]
    if len(said) != len(gold):
        raise InputError(
            "There is a prediction for each row",
            f"{len(gold)} rows in {data}, {len(said)} in {predictions}",
            _REMEDY,
        )
    numbers = _numbers(task, gold, "data"), _numbers(task, said, "predictions")
    return {name: scoring.METRICS[name](*numbers) for name in row.metrics}


def _numbers(task: str, words: Sequence[str], side: str) -> np.ndarray:
    labels = glue.TASKS[task].labels
    known = {label: number for number, label in enumerate(labels or ())}
    numbers = []
    for place, word in enumerate(words):
        try:
            numbers.append(float(word) if labels is None else known[word])
        except (KeyError, ValueError) as error:
            raise InputError(
                "Labels are " + (", ".join(labels) if labels else "numbers"),
                f"{word!r} in row {place + 1} of the {side}",
                "Mend that line",
            ) from error
    return np.array(numbers)


def _lines(path: str, log: ProblemLog) -> tuple[list[str], set[int] | None]:
    """The predictions of GLUE's form, or bare ones; the lines they are of, if told."""
    lines = read_text(path, log).split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    cells = [line.rstrip("\r").split("\t") for line in lines]
    if cells[0][0] == "index":
        names, *cells = cells
        for place, cell in enumerate(cells):
            if len(cell) != len(names) or cell[0] != str(place):
                raise InputError(
                    "Predictions stand in the rows' order, as index and prediction",
                    f"{path}:{place + 2}: {lines[place + 1]!r:.80}",
                    "Sort them, or leave the header and the indices out",
                )
        lines_of = {int(cell[2].rpartition(":")[2]) for cell in cells if len(cell) > 2}
        return [cell[1].strip() for cell in cells], lines_of or None
    return [cell[-1].strip() for cell in cells], None


def _judge_tags(data: str, predictions: str) -> dict[str, Any]:
    log = ProblemLog("stop", "", "Columns are words and tags")
    gold, said = (read_columns(path, 0, -1, log) for path in (data, predictions))
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
    text = read_text(path, ProblemLog("stop", "", "Predictions are JSON in UTF-8"))
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
