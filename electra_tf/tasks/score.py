"""Scores of predictions: of a model in trials and in `evaluate`, or of a file.

There is a scorer for labels and numbers, one for tags and one for answers. Predictions
have the same form wherever they come from: labels, numbers, lists of tags, `Answers`.
"""

import abc
import collections
import dataclasses
import json
import math
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf.errors import InputError, format_list
from electra_tf.tasks import glue, metrics
from electra_tf.tasks.conll import ENDINGS, Sentence, read_conll, without_headers
from electra_tf.tasks.schemes import OUTSIDE, conlleval_spans, is_span_scheme
from electra_tf.tasks.spans import QAPrediction, write_predictions
from electra_tf.tasks.splits import Split, find_split
from electra_tf.tasks.squad_json import (
    PUBLISHED,
    Question,
    read_squad_ignoring_offsets,
)
from electra_tf.tasks.squad_metrics import score_v1, score_v2
from electra_tf.tasks.tables import TFDS, Row, print_note, read_text, require_columns
from electra_tf.text.data_errors import DataErrorLog
from electra_tf.text.files import inner_suffix
from electra_tf.text.rows import JSON_SUFFIXES

NAMES = (*glue.TASKS, "squad1", "squad2", "chunking", "tagging")
"""Tasks of files of predictions."""
_REMEDY = "Check that both files belong to the same data"


class Scorer(abc.ABC):
    """Scores of the predictions of one kind of task."""

    metric: str
    """Name of the score that compares trials."""

    def predict(self, model: Any, items: Sequence[Any]) -> Any:
        """Return a model's predictions."""
        return model.predict(items)

    def tune(self, model: Any, split: Split, predictions: Any) -> Any:
        """Set the decision threshold of a trained model, if it has one."""
        return predictions

    @abc.abstractmethod
    def all_scores(self, split: Split, predictions: Any) -> dict[str, Any]:
        """Compute the scores of predictions, and the counts behind them, by name."""

    def score(self, split: Split, predictions: Any) -> dict[str, float]:
        """Compute the scores, without counts; the first one compares trials."""
        scores = self.all_scores(split, predictions)
        scores = {self.metric: scores.pop(self.metric)} | scores
        return {name: v for name, v in scores.items() if isinstance(v, float)}

    @abc.abstractmethod
    def degenerate(self, split: Split, predictions: Any) -> str | None:
        """Describe predictions of a degenerate model, such as a constant; else None."""

    @abc.abstractmethod
    def write(self, split: Split, predictions: Any, path: str) -> None:
        """Write predictions to files named `path` plus a suffix."""


class LabelScorer(Scorer):
    """Scores of labels or, if there are none, of numbers."""

    def __init__(
        self,
        names: Sequence[str],
        labels: Sequence[str] | None = None,
        bounds: tuple[float, float] = (-math.inf, math.inf),
    ):
        self.metrics, self.metric, self._bounds = tuple(names), names[0], bounds
        self.labels = None if labels is None else tuple(labels)
        self._ids = {label: number for number, label in enumerate(labels or ())}

    def predict(self, model: Any, items: Sequence[Any]) -> Sequence[Any]:
        """Return the best labels, or the numbers within their bounds."""
        predictions = model.predict(items)
        if self.labels is None:
            return np.clip(np.array(predictions, np.float64), *self._bounds)
        return [model.labels[number] for number in np.argmax(predictions, -1)]

    def all_scores(self, split: Split, predictions: Sequence[Any]) -> dict[str, float]:
        """Compute the metrics of the task."""
        sides = self._numbers(split.targets), self._numbers(predictions)
        return {name: metrics.METRICS[name](*sides) for name in self.metrics}

    def degenerate(self, split: Split, predictions: Sequence[Any]) -> str | None:
        """Describe constant or non-finite predictions."""
        return metrics.describe_degenerate(predictions, split.targets)

    def write(self, split: Split, predictions: Sequence[Any], path: str) -> None:
        """Write `PATH.tsv` in GLUE's format, with the source of each row if known."""
        words = predictions
        if self.labels is None:
            words = [f"{number:.7g}" for number in predictions]
        lines = [f"{index}\t{word}" for index, word in enumerate(words)]
        lines = ["index\tprediction", *lines]
        if split.places is not None:
            rows = zip(lines, ["place", *split.places], strict=True)
            lines = [f"{line}\t{place}" for line, place in rows]
        pathlib.Path(f"{path}.tsv").write_text("\n".join(lines) + "\n", "utf-8")

    def parse(self, words: Sequence[str], places: Sequence[str]) -> list[Any]:
        """Convert the words of a file to labels or numbers."""
        values = []
        for place, word in zip(places, words, strict=True):
            try:
                values.append(float(word) if self.labels is None else word)
                self._numbers(values[-1:])
            except (KeyError, ValueError) as error:
                known = format_list(self.labels) if self.labels else "numbers"
                raise InputError(
                    f"Labels must be {known}", f"{word!r} in {place}",
                    "Correct that line",
                ) from error  # fmt: skip
        return values

    def _numbers(self, values: Sequence[Any]) -> np.ndarray:
        if self.labels is None:
            return np.asarray(values, np.float64)
        return np.array([self._ids[value] for value in values])


class TagScorer(Scorer):
    """Scores of one tag for each word: of spans, or of single tags."""

    def __init__(self, tags: Iterable[str]):
        self._spans = is_span_scheme(tags)
        self.metric = "f1" if self._spans else "accuracy"

    def all_scores(self, split: Split, predictions: Any) -> dict[str, Any]:
        """Compute the scores of conlleval, or the accuracy of tags."""
        scorer = metrics.score_spans if self._spans else metrics.score_tokens
        return scorer(split.targets, predictions)

    def degenerate(self, split: Split, predictions: Any) -> str | None:
        """Describe predictions of one tag only, or of one span per sentence."""
        predicted = {tag for tags in predictions for tag in tags}
        if predicted == {OUTSIDE}:
            return "predicts no span"
        if len(predicted) == 1:
            return f"always predicts {predicted.pop()}"
        return _one_span(predictions) if self._spans else None

    def write(self, split: Split, predictions: Any, path: str) -> None:
        """Write `PATH.txt`: word, gold tag if there is one, and predicted tag."""
        lines = []
        for sentence, tags in zip(split.items, predictions, strict=True):
            gold = [] if sentence.tags is None else [sentence.tags]
            rows = zip(sentence.words, *gold, tags, strict=True)
            lines += [" ".join(row) for row in rows] + [""]
        pathlib.Path(f"{path}.txt").write_text("\n".join(lines) + "\n", "utf-8")


def _one_span(predictions: Any) -> str | None:
    """Describe predictions of I-X for all words: one span in each sentence."""
    kinds = set()
    for tags in filter(len, predictions):
        spans = conlleval_spans(tags)
        if [span[:2] for span in spans] != [(0, len(tags) - 1)]:
            return None
        kinds.add(spans[0].kind)
    return f"always predicts one span of {kinds.pop()}" if len(kinds) == 1 else None


@dataclasses.dataclass(frozen=True)
class Answers:
    """Predictions for the questions of a split."""

    best: Sequence[QAPrediction]
    """One prediction for each question, in order."""
    threshold: float | None
    """Threshold of the null odds, above which the answer is empty; None: never
    empty."""


class AnswerScorer(Scorer):
    """Official scores of SQuAD 1.1 or, if questions may have no answer, 2.0."""

    def __init__(self, allows_null: bool):
        self._allows_null = allows_null
        self.metric = "best_f1" if allows_null else "f1"

    def predict(self, model: Any, items: Sequence[Question]) -> Answers:
        """Return the best answers of each question."""
        return Answers(model.predict_nbest(items), model.null_threshold)

    def tune(self, model: Any, split: Split, predictions: Answers) -> Answers:
        """Set the model's threshold to the one with the best F1 on a split."""
        if not self._allows_null:
            return predictions
        scores = self.score(split, predictions)
        tuned = Answers(predictions.best, scores["best_f1_thresh"])
        if self.score(split, tuned)["f1"] < scores["best_f1"]:
            # No answer to any question scores best. The official script returns 0 for
            # this case, so choose a threshold below all odds.
            odds = [answer.null_odds for answer in predictions.best]
            tuned = Answers(predictions.best, min(odds) - 1.0)
        model.null_threshold = tuned.threshold
        return tuned

    def all_scores(self, split: Split, predictions: Answers) -> dict[str, float]:
        """Compute the official scores; for SQuAD 2.0 with the best thresholds."""
        pairs = list(zip(split.items, predictions.best, strict=True))
        texts = {question.id: answer.text for question, answer in pairs}
        if not self._allows_null:
            return score_v1(split.items, texts)
        # The odds of a diverged model are NaN, which counts as no answer.
        odds = {
            question.id: p.null_odds
            if math.isfinite(p.null_odds)
            else sys.float_info.max
            for question, p in pairs
        }
        return score_v2(split.items, texts, odds, predictions.threshold or 0.0)

    def degenerate(self, split: Split, predictions: Answers) -> str | None:
        """Describe predictions that are the same for all questions."""
        texts = {a.answer_text(predictions.threshold) for a in predictions.best}
        if texts == {""}:
            return "predicts no answer to any question"
        return f"always predicts {texts.pop()!r}" if len(texts) == 1 else None

    def write(self, split: Split, predictions: Answers, path: str) -> None:
        """Write a folder with predictions.json, null_odds.json and nbest.json."""
        pairs = zip(split.items, predictions.best, strict=True)
        by_id = {question.id: answer for question, answer in pairs}
        write_predictions(path, by_id, predictions.threshold)


# Files of predictions.


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
        return _score_labels(glue.TASKS[task], task, data, predictions, log)
    if task in ("chunking", "tagging"):
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
    whole = task in glue.TASKS and data.startswith(TFDS) and "@" not in data
    if not os.path.isdir(data) and not whole:
        return data
    stem = pathlib.Path(predictions).name.split(".")[0]
    if task in glue.TASKS:
        path = glue.require(data, task, _dev_stem(task, data, stem))
    elif task in PUBLISHED:
        split, endings = "dev", (".json", *JSON_SUFFIXES)
        path = find_split(data, split, JSON_SUFFIXES, PUBLISHED[task]["dev"])
    else:
        split, endings = "test" if stem == "test" else "dev", (".txt", ".conll", ".bio")
        path = find_split(data, split, ENDINGS)
    if path is None:
        raise InputError(
            f"--data must be {task}'s labelled file, or a folder with {split}"
            + " or ".join(dict.fromkeys(endings)),
            f"{data!r} without one; it has {format_list(sorted(os.listdir(data)))}",
            "Name the labelled file",
        )
    log(f"labels: {path}")
    return path


def _dev_stem(task: str, data: str, stem: str) -> str:
    """Return the stem of the dev file that the predictions belong to."""
    stems = glue.TASKS[task].dev
    existing = [name for name in stems if glue.find(data, task, name)]
    for choice in ([stem] if stem in stems else [], stems, existing):
        if len(choice) == 1:
            return choice[0]
    raise InputError(
        f"--data must be {task}'s labelled file, or a folder with one dev file",
        f"the folder {data!r} with {format_list(existing) if existing else 'none'}",
        "Name the file itself, such as dev_matched.tsv"
        if stems
        else f"{task} has no published labels; name a labelled file",
    )


def _score_labels(
    glue_task: glue.GlueTask,
    task: str,
    data: str,
    predictions: str,
    log: Callable[[str], None],
) -> dict[str, float]:
    errors = DataErrorLog("stop", "", "A file must have GLUE's columns")
    rows = glue.read(data, task, errors)
    require_columns(rows, (glue_task.label,))
    words, key, keys = _read_words(predictions, errors)
    count, rows = len(rows), _align_rows(rows, len(words), key, keys, data, predictions)
    if len(rows) < count:
        log(f"{len(rows):,} of {count:,} rows have a prediction and are scored")
    scorer = LabelScorer(glue_task.metrics, glue_task.labels)
    gold = [row.values.get(glue_task.label, "") for row in rows]
    split = Split(rows, scorer.parse(gold, list(map(str, rows))))
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
    if header == ["prediction"]:
        return [row[-1] for row in body], "", None
    if header[0].startswith(("index,", "prediction,")):
        raise InputError(
            "Columns of predictions must be separated by tabs",
            f"{path}:1: {lines[0]!r:.80}",
            "Write them with sep='\\t'",
        )
    if "index" not in header:
        return [row[-1] for row in (header, *body)], "", None
    if "prediction" not in header:
        raise InputError(
            "Predictions with an index must have the columns 'index' and 'prediction'",
            f"{path}:1 with {format_list(header)}",
            "Rename the column of the predictions",
        )
    records = [dict(zip(header, row, strict=False)) for row in body]
    column = "place" if "place" in header else "index"
    for number, record in enumerate(records, 2):
        record["key"] = record.get(column, "").rpartition(":")[2]
        if len(record) != len(header) + 1 or not record["key"].isdecimal():
            raise InputError(
                f"Each prediction must have the columns {format_list(header)}, and a "
                "number as index",
                f"{path}:{number}: {lines[number - 1]!r:.80}",
                "Correct that line",
            )
    key = "lines" if column == "place" else "indexes"
    return [r["prediction"] for r in records], key, [int(r["key"]) for r in records]


def _align_rows(
    rows: list[Row],
    count: int,
    key: str,
    keys: list[int] | None,
    data: str,
    predictions: str,
) -> list[Row]:
    """Return the row of each prediction."""
    if keys is None:
        if count == len(rows):
            return rows
        raise InputError(
            "There must be a prediction for each row",
            f"{len(rows)} rows in {data}, {count} in {predictions}",
            _REMEDY,
        )
    by_key = {r.line: r for r in rows} if key == "lines" else dict(enumerate(rows))
    required = set(keys if key == "lines" else by_key)
    counts = collections.Counter(keys)
    errors = {
        f"{key} that {data} does not have": sorted(counts.keys() - by_key.keys()),
        f"{key} that occur more than once": [n for n, c in counts.items() if c > 1],
        f"{key} without a prediction": sorted(required - counts.keys()),
    }
    found = [f"{kind}: {format_list(keys)}" for kind, keys in errors.items() if keys]
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
    files: dict[str, list[Sentence]] = {}
    for path in (data, predictions):
        if inner_suffix(path) in (*JSON_SUFFIXES, ".csv"):
            raise InputError(
                "Tags must be columns: a word and its tag on each line",
                f"{path!r}, a file of another format",
                "Write them as columns; finetune writes its predictions so, with tags",
            )
        files[path] = read_conll(path, 0, -1, errors, log)
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
    split = Split(gold, [sentence.tags for sentence in gold])
    scorer = TagScorer(tag for tags in split.targets for tag in tags)
    return scorer.all_scores(split, [sentence.tags for sentence in predicted])


def _read_by_id(path: str) -> Mapping[str, Any]:
    text = read_text(path, DataErrorLog("stop", "", "Predictions must be UTF-8"))
    try:
        values = json.loads(text)
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
