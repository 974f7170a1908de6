"""Metrics of classification and regression.

All are in percent except `mse`. Every metric is defined for one example or more and
never returns NaN: a failed run gets the score of an untrained model. scikit-learn and
SciPy are imported when a score is computed, because they slow the start of a command.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from electra_tf.errors import InputError

_TOLERANCE = 1e-6  # rounding of float32 sums whose terms are in another order


def accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Compute the share of correct predictions."""
    from sklearn import metrics

    return float(100 * metrics.accuracy_score(*_sides(labels, predictions)))


def mcc(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Compute Matthews' correlation coefficient (the metric of CoLA)."""
    from sklearn import metrics

    labels, predictions = _sides(labels, predictions)
    if np.all(labels == labels[0]) or np.all(predictions == predictions[0]):
        return 0.0
    return float(100 * metrics.matthews_corrcoef(labels, predictions))


def f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Compute the F1 of class 1 against all others (second metric of MRPC and QQP)."""
    from sklearn import metrics

    labels, predictions = _sides(labels, predictions)
    return float(100 * metrics.f1_score(labels == 1, predictions == 1, zero_division=0))


def macro_f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Compute the unweighted mean of the F1 of all classes."""
    from sklearn import metrics

    labels, predictions = _sides(labels, predictions)
    score = metrics.f1_score(labels, predictions, average="macro", zero_division=0)
    return float(100 * score)


def pearson(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Compute Pearson's correlation of scores (a metric of STS-B)."""
    from scipy import stats

    return _correlation(stats.pearsonr, labels, predictions)


def spearman(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Compute Spearman's rank correlation of scores (a metric of STS-B)."""
    from scipy import stats

    return _correlation(stats.spearmanr, labels, predictions)


def mse(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Compute the mean squared error of scores; lower is better."""
    labels, predictions = _sides(labels, predictions, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.mean(np.square(predictions - labels))
    return float(error) if np.isfinite(error) else float("inf")


METRICS: dict[str, Callable[[ArrayLike, ArrayLike], float]] = {
    "accuracy": accuracy,
    "mcc": mcc,
    "f1": f1,
    "macro_f1": macro_f1,
    "pearson": pearson,
    "spearman": spearman,
    "mse": mse,
}
"""Functions of (labels, predictions) by name."""

REGRESSION_METRICS = ("spearman", "pearson", "mse")
"""Metrics of a table with a column of scores."""


def classification_metrics(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics of a table with a column of classes."""
    return ("accuracy", "mcc", "f1" if set(labels) == {"0", "1"} else "macro_f1")


def describe_degenerate(predictions: ArrayLike, labels: ArrayLike | None) -> str | None:
    """Describe predictions that are constant or not finite.

    Fine-tuning on little data sometimes ends with a model that predicts a constant
    (BERT's paper, section 4.1, calls it unstable).

    Returns:
        A description such as `always predicts 1`; None if the predictions are neither
        constant nor infinite, for a single example, and if the labels are the same
        constant.
    """
    values = np.asarray(predictions)
    if values.dtype.kind == "f":
        count = int((~np.isfinite(values)).sum())
        if count:
            return f"predicts no finite number for {count} of {values.size} examples"
    if values.size < 2 or not _is_constant(values):
        return None
    if labels is not None and _is_constant(np.append(values, np.asarray(labels))):
        return None
    return f"always predicts {values[0].item():g}"


def _is_constant(values: np.ndarray) -> bool:
    if values.dtype.kind != "f":
        return bool(np.all(values == values[0]))
    values = values.astype(np.float64)
    largest = np.abs(values).max()
    return bool(values.max() / 2 - values.min() / 2 <= _TOLERANCE * largest / 2)


def _sides(
    labels: ArrayLike, predictions: ArrayLike, dtype: type | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return both as arrays of one length."""
    sides = np.asarray(labels, dtype), np.asarray(predictions, dtype)
    if sides[0].ndim != 1 or not sides[0].size or sides[0].shape != sides[1].shape:
        raise InputError(
            "labels and predictions must have the same shape [examples], with one "
            "example or more",
            f"labels of the shape {list(sides[0].shape)}, predictions of the shape "
            f"{list(sides[1].shape)}",
            "Pass the predictions for the file that contains the labels",
        )
    return sides


def _correlation(
    measure: Callable[[np.ndarray, np.ndarray], Any],
    labels: ArrayLike,
    predictions: ArrayLike,
) -> float:
    """Return a correlation in percent, 0 where it is undefined."""
    sides = _sides(labels, predictions, np.float64)
    if not all(np.isfinite(side).all() for side in sides):
        return 0.0
    # SciPy compares with the mean, which is rounded, and misses constants.
    if any(np.all(side == side[0]) for side in sides):
        return 0.0
    # No maximum is 0 here. Scaling avoids overflow of the sums.
    scaled = [side / np.abs(side).max() for side in sides]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy warns of nearly constant values
        return float(100 * np.clip(measure(*scaled).statistic, -1, 1))
