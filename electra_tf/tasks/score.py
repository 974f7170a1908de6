"""Scores of predictions of a model, in trials and in `evaluate`.

There is a scorer for labels and numbers, one for tags and one for answers. Predictions
have the same form wherever they come from: labels, numbers, lists of tags, `Answers`.
"""

import abc
import dataclasses
import heapq
import json
import math
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from electra_tf.errors import format_list
from electra_tf.tasks import class_report, metrics
from electra_tf.tasks.class_report import ClassReport
from electra_tf.tasks.data.schemes import OUTSIDE, conlleval_spans, is_span_scheme
from electra_tf.tasks.data.span_records import to_character_spans
from electra_tf.tasks.data.splits import Split, texts_of
from electra_tf.tasks.labels import label_sets, multi_hot
from electra_tf.tasks.spans import QAPrediction
from electra_tf.tasks.squad_metrics import exact, score_v1, score_v2

_MAX_MISTAKES = 30
_LEAST_FOR_CHANCE = 50  # rows; with fewer a useful model may have no correlation


class Mistake(NamedTuple):
    """A wrong prediction."""

    text: str
    gold: str
    predicted: str
    size: float  # value of `measure`, by which mistakes are compared
    measure: str = "probability"


class ScoredSplit(NamedTuple):
    """A labelled split with the predictions of a model and their scores."""

    split: Split
    details: Sequence[Any]  # outputs of the model's `predict_details`
    predictions: Any
    scores: dict[str, float]  # scores by name; the first one compares trials
    classes: ClassReport | None  # scores of each class and confusions; None: no classes
    mistakes: list[Mistake]  # those that the model was most sure of, the worst first
    degenerate: str | None  # what is degenerate in predictions, if anything


class Scorer(abc.ABC):
    """Scores of the predictions of one kind of task."""

    metric: str  # name of the score that compares trials

    def scored(self, model: Any, split: Split, details: Sequence[Any]) -> ScoredSplit:
        """Score what `predict_details` returned for a labelled split."""
        predictions = self.best(model, details)
        mistakes = self._mistakes(split, details, predictions)
        return ScoredSplit(
            split,
            details,
            predictions,
            self.score(split, predictions),
            self.class_report(split, predictions),
            heapq.nlargest(_MAX_MISTAKES, mistakes, key=lambda mistake: mistake.size),
            self.degenerate(split, predictions),
        )

    @abc.abstractmethod
    def best(self, model: Any, details: Sequence[Any]) -> Any:
        """Return the predictions among the outputs of `predict_details`."""

    def tuned(self, split: Split, predictions: Any) -> float | None:
        """Return the best decision threshold on a split; None: there is none."""
        return None

    @abc.abstractmethod
    def all_scores(self, split: Split, predictions: Any) -> dict[str, Any]:
        """Compute the scores of predictions, and the counts behind them, by name."""

    def score(self, split: Split, predictions: Any) -> dict[str, float]:
        """Compute the scores, without counts; the first one compares trials."""
        scores = self.all_scores(split, predictions)
        scores = {self.metric: scores.pop(self.metric)} | scores
        return {name: v for name, v in scores.items() if isinstance(v, float)}

    def class_report(self, split: Split, predictions: Any) -> ClassReport | None:
        """Return the scores of each class and the confusions; None: no classes."""
        return None

    @abc.abstractmethod
    def _mistakes(
        self, split: Split, details: Any, predictions: Any
    ) -> Iterator[Mistake]:
        """Yield all mistakes."""

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

    def best(self, model: Any, details: Sequence[Any]) -> Sequence[Any]:
        """Return the best labels, or the numbers within their bounds."""
        if self.labels is None:
            return np.clip(np.array(details, np.float64), *self._bounds)
        return [model.labels[number] for number in np.argmax(details, -1)]

    def class_report(self, split: Split, predictions: Any) -> ClassReport | None:
        """Return the scores of each class and the confusions; None: numbers."""
        if self.labels is None:
            return None
        return class_report.class_report(split.targets, predictions, self.labels)

    def _mistakes(
        self, split: Split, details: Any, predictions: Any
    ) -> Iterator[Mistake]:
        rows = zip(split.items, split.targets, predictions, details, strict=True)
        for item, gold, predicted, detail in rows:
            text = " | ".join(texts_of(item))
            if self.labels is None:
                size = abs(float(gold - predicted))
                yield Mistake(text, f"{gold:g}", f"{predicted:.4g}", size, "difference")
            elif gold != predicted:
                yield Mistake(text, gold, predicted, float(np.max(detail)))

    def all_scores(self, split: Split, predictions: Sequence[Any]) -> dict[str, float]:
        """Compute the metrics of the task."""
        sides = self._numbers(split.targets), self._numbers(predictions)
        return {name: metrics.METRICS[name](*sides) for name in self.metrics}

    def degenerate(self, split: Split, predictions: Sequence[Any]) -> str | None:
        """Describe predictions that are constant, not finite, or as good as chance."""
        found = metrics.describe_degenerate(predictions, split.targets)
        if found or self.labels is None or len(split) < _LEAST_FOR_CHANCE:
            return found
        sides = self._numbers(split.targets), self._numbers(predictions)
        mcc = metrics.METRICS["mcc"](*sides)
        is_chance = mcc <= 0 and len(set(split.targets)) > 1
        return f"is no better than chance (mcc {mcc:.2f})" if is_chance else None

    def write(self, split: Split, predictions: Sequence[Any], path: str) -> None:
        """Write `PATH.tsv` in GLUE's format, with the source of each row if known."""
        if self.labels is None:
            predictions = [f"{number:.7g}" for number in predictions]
        lines = [f"{index}\t{word}" for index, word in enumerate(predictions)]
        lines = ["index\tprediction", *lines]
        if places := split.places:
            rows = zip(lines, ["place", *places], strict=True)
            lines = [f"{line}\t{place}" for line, place in rows]
        _write_lines(f"{path}.tsv", lines)

    def _numbers(self, values: Sequence[Any]) -> np.ndarray:
        if self.labels is None:
            return np.asarray(values, np.float64)
        return np.array([self._ids[value] for value in values])


class LabelSetScorer(LabelScorer):
    """Scores of sets of labels; the separator is that of files of predictions."""

    def __init__(self, labels: Sequence[str], separator: str):
        super().__init__(metrics.LABEL_SET_METRICS, labels)
        self._separator = separator

    def best(self, model: Any, details: Sequence[Any]) -> Sequence[Any]:
        """Return the labels above the threshold."""
        return label_sets(np.asarray(details), model.labels)

    def class_report(self, split: Split, predictions: Any) -> ClassReport:
        """Return the scores of each class, each against its absence."""
        sides = map(self._numbers, (split.targets, predictions))
        return class_report.label_set_report(*sides, self.labels)

    def _mistakes(
        self, split: Split, details: Any, predictions: Any
    ) -> Iterator[Mistake]:
        """Yield wrong sets, with the probability of their most certain wrong class."""
        gold_NC, predicted_NC = map(self._numbers, (split.targets, predictions))
        errors_N = np.abs(np.asarray(details) - gold_NC).max(-1)
        sides = split.targets, predictions
        for index in np.flatnonzero((gold_NC != predicted_NC).any(-1)):
            text = " | ".join(texts_of(split.items[index]))
            names = (self._separator.join(side[index]) for side in sides)
            yield Mistake(text, *names, float(errors_N[index]))

    def degenerate(self, split: Split, predictions: Sequence[Any]) -> str | None:
        """Describe predictions of one set for all texts."""
        columns = predictions, split.targets
        sets, gold = (set(map(frozenset, column)) for column in columns)
        if len(sets) > 1 or sets == gold or len(predictions) < 2:
            return None
        return f"always predicts {format_list(sorted(sets.pop())) or 'no class'}"

    def write(self, split: Split, predictions: Sequence[Any], path: str) -> None:
        """Write `PATH.tsv`, the labels of a text in one cell."""
        super().write(split, [self._separator.join(p) for p in predictions], path)

    def _numbers(self, values: Sequence[Any]) -> np.ndarray:
        return multi_hot(values, self.labels)


class TagScorer(Scorer):
    """Scores of one tag for each word: of spans, or of single tags."""

    def __init__(self, tags: Iterable[str]):
        self._tags = tuple(dict.fromkeys(tags))
        self._spans = is_span_scheme(self._tags)
        self.metric = "f1" if self._spans else "accuracy"

    def best(self, model: Any, details: Sequence[Any]) -> list[list[str]]:
        """Return the tags of each sentence."""
        return [sentence.tags for sentence in details]

    def class_report(self, split: Split, predictions: Any) -> ClassReport:
        """Return the scores of each type of span, or of each tag."""
        sides = split.targets, predictions
        if self._spans:
            return class_report.span_report(*sides)
        return class_report.tag_report(*sides, self._tags)

    def _mistakes(
        self, split: Split, details: Any, predictions: Any
    ) -> Iterator[Mistake]:
        """Yield sentences with wrong spans, or wrong tags of words."""
        rows = zip(split.items, split.targets, predictions, details, strict=True)
        for sentence, gold, predicted, detail in rows:
            spans = [self._spans_of(tags) for tags in (gold, predicted)]
            sides = [
                ", ".join(
                    f"{' '.join(sentence.words[first : last + 1])}/{kind}"
                    for first, last, kind in mine
                    if (first, last, kind) not in other
                )
                for mine, other in (spans, spans[::-1])
            ]
            if any(sides):
                wrong = [a != b for a, b in zip(gold, predicted, strict=True)]
                size = float(np.max(detail.probabilities.max(-1)[wrong], initial=0))
                shown = (side or "nothing" for side in sides)
                yield Mistake(" ".join(sentence.words), *shown, size)

    def _spans_of(self, tags: Sequence[str]) -> list[tuple[int, int, str]]:
        """Return the first word, the last word and the type of spans, or of words."""
        if self._spans:
            return list(map(tuple, conlleval_spans(tags)))
        return [(number, number, tag) for number, tag in enumerate(tags)]

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
        """Write `PATH.txt`: word, gold tag if there is one, and predicted tag.

        Also write `PATH.jsonl` for texts with spans of characters, in their form.
        """
        lines = []
        for sentence, tags in zip(split.items, predictions, strict=True):
            gold = [] if sentence.tags is None else [sentence.tags]
            rows = zip(sentence.words, *gold, tags, strict=True)
            lines += [" ".join(row) for row in rows] + [""]
        _write_lines(f"{path}.txt", lines)
        if self._spans and all(sentence.form for sentence in split.items):
            lines = []
            for sentence, tags in zip(split.items, predictions, strict=True):
                spans = to_character_spans(conlleval_spans(tags), sentence.offsets)
                record = sentence.form.write(sentence.text, spans)
                lines.append(json.dumps(record, ensure_ascii=False))
            _write_lines(f"{path}.jsonl", lines)


def _one_span(predictions: Any) -> str | None:
    """Describe predictions of I-X for all words: one span in each sentence."""
    kinds = set()
    for tags in filter(len, predictions):
        spans = conlleval_spans(tags)
        if [span[:2] for span in spans] != [(0, len(tags) - 1)]:
            return None
        kinds.add(spans[0].kind)
    return f"always predicts one span of {kinds.pop()}" if len(kinds) == 1 else None


class Answers(NamedTuple):
    """Predictions for the questions of a split, in order."""

    best: Sequence[QAPrediction]
    threshold: float | None  # of null odds, above which answers are empty


class AnswerScorer(Scorer):
    """Official scores of SQuAD 1.1 or, if questions may have no answer, 2.0."""

    def __init__(self, allows_null: bool):
        self._allows_null = allows_null
        self.metric = "best_f1" if allows_null else "f1"

    def best(self, model: Any, details: Sequence[QAPrediction]) -> Answers:
        """Return the best answers of each question, with the model's threshold."""
        return Answers(details, model.null_threshold)

    def tuned(self, split: Split, predictions: Answers) -> float | None:
        """Return the threshold of the null odds with the best F1 on a split."""
        if not self._allows_null:
            return None
        scores = self.score(split, predictions)
        tuned = Answers(predictions.best, scores["best_f1_thresh"])
        if self.score(split, tuned)["f1"] < scores["best_f1"]:
            # No answer to any question scores best. The official script returns 0 for
            # this case, so choose a threshold below all odds.
            odds = [answer.null_odds for answer in predictions.best]
            return min(odds) - 1.0
        return tuned.threshold

    def all_scores(self, split: Split, predictions: Answers) -> dict[str, float]:
        """Compute the official scores; for SQuAD 2.0 with the best thresholds."""
        pairs = list(zip(split.items, predictions.best, strict=True))
        texts = {question.id: answer.text for question, answer in pairs}
        if not self._allows_null:
            return score_v1(split.items, texts)
        # The odds of a diverged model are NaN, which counts as no answer.
        most = sys.float_info.max
        odds = {
            question.id: p.null_odds if math.isfinite(p.null_odds) else most
            for question, p in pairs
        }
        return score_v2(split.items, texts, odds, predictions.threshold or 0.0)

    def _mistakes(
        self, split: Split, details: Any, predictions: Answers
    ) -> Iterator[Mistake]:
        for question, answer in zip(split.items, predictions.best, strict=True):
            text = answer.answer_text(predictions.threshold)
            golds = [gold.text for gold in question.answers] or [""]
            if any(exact(gold, text) for gold in golds):
                continue
            sizes = (c.probability for c in answer.nbest if c.text == text)
            shown = " / ".join(dict.fromkeys(golds)) or "no answer", text or "no answer"
            yield Mistake(question.question, *shown, max(sizes, default=0.0))

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
        threshold = predictions.threshold
        contents = {
            "predictions": {k: p.answer_text(threshold) for k, p in by_id.items()},
            "null_odds": {k: p.null_odds for k, p in by_id.items()},
            "nbest": {
                k: list(map(dataclasses.asdict, p.nbest)) for k, p in by_id.items()
            },
        }
        folder = pathlib.Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            _write_lines(folder / f"{name}.json", [json.dumps(content, indent=2)])


def _write_lines(path: str | os.PathLike, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    pathlib.Path(path).write_text(text, encoding="utf-8")
