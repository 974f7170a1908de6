"""Metrics of classes, scores and tags, in percent except `mse`.

Every metric is defined for one example or more and never returns NaN: a failed run gets
the score of an untrained model. scikit-learn and SciPy are imported when a score is
computed, because they slow the start of a command.
"""

import functools
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from electra_tf.tasks.data.schemes import conlleval_spans, to_scheme

_TOLERANCE = 1e-6  # rounding of float32 sums whose terms are in another order

Tags = Sequence[Sequence[str]]  # one tag for each word of each sentence


def _of_classes(
    name: str, labels: ArrayLike, predictions: ArrayLike, **options: Any
) -> float:
    from sklearn import metrics

    return float(100 * getattr(metrics, name)(labels, predictions, **options))


_f1_score = functools.partial(_of_classes, "f1_score", zero_division=0)


def _mcc(labels: ArrayLike, predictions: ArrayLike) -> float:
    if any(np.all(np.equal(side, side[0])) for side in (labels, predictions)):
        return 0.0
    return _of_classes("matthews_corrcoef", labels, predictions)


def _correlation(name: str, labels: ArrayLike, predictions: ArrayLike) -> float:
    """Return a correlation, 0 where it is undefined."""
    from scipy import stats

    sides = [np.float64(side) for side in (labels, predictions)]
    # SciPy compares with the mean, which is rounded, and misses constants.
    if any(not np.isfinite(s).all() or np.all(s == s[0]) for s in sides):
        return 0.0
    # No maximum is 0 here. Scaling avoids overflow of the sums.
    scaled = [side / np.abs(side).max() for side in sides]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy warns of nearly constant values
        return float(100 * np.clip(getattr(stats, name)(*scaled).statistic, -1, 1))


def _mse(labels: ArrayLike, predictions: ArrayLike) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.mean(np.square(np.float64(predictions) - np.float64(labels)))
    return float(error) if np.isfinite(error) else float("inf")


METRICS: dict[str, Callable[[ArrayLike, ArrayLike], float]] = {
    "accuracy": functools.partial(_of_classes, "accuracy_score"),
    "mcc": _mcc,  # of CoLA
    # Of class 1 against all others: the second metric of MRPC and QQP.
    "f1": lambda labels, found: _f1_score(np.equal(labels, 1), np.equal(found, 1)),
    "macro_f1": functools.partial(_f1_score, average="macro"),
    # Of zeros and ones [N, C]: of all decisions, and of whole rows.
    "micro_f1": functools.partial(_f1_score, average="micro"),
    "subset_accuracy": functools.partial(_of_classes, "accuracy_score"),
    "pearson": functools.partial(_correlation, "pearsonr"),
    "spearman": functools.partial(_correlation, "spearmanr"),
    "mse": _mse,  # lower is better
}
"""Functions of (labels, predictions) by name."""

LABEL_SET_METRICS = ("micro_f1", "macro_f1", "subset_accuracy")
"""Metrics of a table whose texts have any number of classes."""

REGRESSION_METRICS = ("spearman", "pearson", "mse")  # of a column of scores


def classification_metrics(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics of a table with a column of classes."""
    return ("accuracy", "mcc", "f1" if set(labels) == {"0", "1"} else "macro_f1")


def describe_degenerate(predictions: ArrayLike, labels: ArrayLike) -> str | None:
    """Describe predictions that are constant or not finite; None for others.

    Fine-tuning on little data may end with a constant (BERT's paper, section 4.1). One
    example, or labels that are the same constant, are no reason to warn.
    """
    values = np.asarray(predictions)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        count = int((~np.isfinite(values)).sum())
        return f"predicts no finite number for {count} of {values.size} examples"
    if values.size < 2 or not _is_constant(values):
        return None
    if _is_constant(np.append(values, np.asarray(labels))):
        return None
    value = values[0].item()
    return f"always predicts {value if isinstance(value, str) else f'{value:g}'}"


def _is_constant(values: np.ndarray) -> bool:
    if values.dtype.kind != "f":
        return bool(np.all(values == values[0]))
    values = values.astype(np.float64)
    largest = np.abs(values).max()
    return bool(values.max() / 2 - values.min() / 2 <= _TOLERANCE * largest / 2)


def score_spans(gold: Tags, predicted: Tags) -> dict[str, Any]:
    """Compute precision, recall and F1 of spans, equal to those of conlleval.pl.

    A span is correct if its first word, last word and type are; a score of 0 / 0 is 0.
    """
    spans = [[conlleval_spans(tags) for tags in side] for side in (gold, predicted)]
    correct = [set(a) & set(b) for a, b in zip(*spans, strict=True)]
    counts = [
        Counter(span.kind for sentence in side for span in sentence)
        for side in (*spans, correct)
    ]
    marks = [{tag[:1] for tags in side for tag in tags} for side in (gold, predicted)]
    if (marks[1] - marks[0]) & {"E", "S"}:
        gold = [to_scheme(tags) for tags in gold]
    kinds = sorted(counts[0] | counts[1])
    return {
        **_rates(*(count.total() for count in counts)),
        "accuracy": tag_accuracy(gold, predicted),
        "types": {kind: _rates(*(count[kind] for count in counts)) for kind in kinds},
    }


def tag_accuracy(gold: Tags, predicted: Tags) -> float:
    """Compute the accuracy of tags of single words, such as parts of speech."""
    sentences = zip(gold, predicted, strict=True)
    pairs = [pair for sides in sentences for pair in zip(*sides, strict=True)]
    return _percent(sum(a == b for a, b in pairs), len(pairs))


def _rates(gold: int, predicted: int, correct: int) -> dict[str, float | int]:
    return {
        "precision": _percent(correct, predicted),
        "recall": _percent(correct, gold),
        "f1": _percent(2 * correct, gold + predicted),
        "gold": gold,
        "predicted": predicted,
        "correct": correct,
    }


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
