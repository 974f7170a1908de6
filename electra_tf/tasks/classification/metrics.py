"""Score predicted classes and numbers with the measures of the paper's tables.

All are in percent, as the paper prints them, but for `mse`. Each is defined for every
input of one example or more, and a run that has failed gets the number of one that has
learnt nothing, not an exception: nothing here returns NaN. scikit-learn and SciPy are
imported when a score is computed: they slow the start of a command.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from electra_tf.errors import InputError

_ROUNDING = 1e-6  # float32's, of numbers that were computed in another order


def accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Share of examples whose class is right, in percent.

    Args:
        labels: Class ids [examples].
        predictions: Class ids [examples].

    Returns:
        From 0 to 100.
    """
    from sklearn import metrics

    return float(100 * metrics.accuracy_score(*_sides(labels, predictions)))


def mcc(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Matthews' correlation of classes, for two of them or more (CoLA's measure).

    Args:
        labels: Class ids [examples].
        predictions: Class ids [examples].

    Returns:
        From -100 to 100; 0 where either side has one class only.
    """
    from sklearn import metrics

    labels, predictions = _sides(labels, predictions)
    if np.all(labels == labels[0]) or np.all(predictions == predictions[0]):
        return 0.0
    return float(100 * metrics.matthews_corrcoef(labels, predictions))


def f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """F1 of the class 1, against all others (MRPC's and QQP's second measure).

    Args:
        labels: Class ids [examples].
        predictions: Class ids [examples].

    Returns:
        From 0 to 100; 0 where there is no 1 on either side.
    """
    from sklearn import metrics

    labels, predictions = _sides(labels, predictions)
    return float(100 * metrics.f1_score(labels == 1, predictions == 1, zero_division=0))


def macro_f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Mean of all classes' F1, each counting alike however rare it is.

    Args:
        labels: Class ids [examples].
        predictions: Class ids [examples].

    Returns:
        From 0 to 100, over the classes that labels or predictions hold.
    """
    from sklearn import metrics

    labels, predictions = _sides(labels, predictions)
    score = metrics.f1_score(labels, predictions, average="macro", zero_division=0)
    return float(100 * score)


def pearson(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Pearson's correlation of scores (STS-B's measure).

    Args:
        labels: Scores [examples].
        predictions: Scores [examples].

    Returns:
        From -100 to 100; 0 where it is not defined: either side is constant or holds
        a number that is not finite.
    """
    from scipy import stats

    return _correlation(stats.pearsonr, labels, predictions)


def spearman(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Spearman's correlation of scores: Pearson's of their ranks, ties at the mean.

    Args:
        labels: Scores [examples].
        predictions: Scores [examples].

    Returns:
        From -100 to 100; 0 where `pearson` has it too.
    """
    from scipy import stats

    return _correlation(stats.spearmanr, labels, predictions)


def mse(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Mean squared error of scores, in their own unit squared; less is better.

    Args:
        labels: Scores [examples].
        predictions: Scores [examples].

    Returns:
        0 or more; infinity where a number is not finite, which no run can undercut.
    """
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
"""By name, of (labels, predictions)."""


def is_degenerate(predictions: ArrayLike, labels: ArrayLike | None) -> str | None:
    """Tells a run that has failed from one that is merely poor.

    Fine-tuning on little data now and then ends with one answer to everything (BERT's
    paper, section 4.1, calls it unstable).

    Args:
        predictions: Class ids (integers) or scores (floats) [examples].
        labels: What is right [examples]; None: not known.

    Returns:
        What is wrong, in words such as `always predicts 1`; None where nothing is:
        also for a single example, and where the labels are all that same answer.
    """
    found = np.asarray(predictions)
    if found.dtype.kind == "f":
        odd = int((~np.isfinite(found)).sum())
        if odd:
            return f"predicts no finite number for {odd} of {found.size} examples"
    if found.size < 2 or not _is_constant(found):
        return None
    if labels is not None and _is_constant(np.append(found, np.asarray(labels))):
        return None
    return f"always predicts {found[0].item():g}"


def _is_constant(values: np.ndarray) -> bool:
    if values.dtype.kind != "f":
        return bool(np.all(values == values[0]))
    values = values.astype(np.float64)
    reach = np.abs(values).max()
    return bool(values.max() / 2 - values.min() / 2 <= _ROUNDING * reach / 2)


def _sides(
    labels: ArrayLike, predictions: ArrayLike, dtype: type | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Both as arrays of one length."""
    sides = np.asarray(labels, dtype), np.asarray(predictions, dtype)
    if sides[0].ndim != 1 or not sides[0].size or sides[0].shape != sides[1].shape:
        raise InputError(
            "A score compares one prediction with each label, of one example or more",
            f"labels of the shape {list(sides[0].shape)}, predictions of "
            f"{list(sides[1].shape)}",
            "Score the predictions of the file that the labels are from",
        )
    return sides


def _correlation(
    measure: Callable[[np.ndarray, np.ndarray], Any],
    labels: ArrayLike,
    predictions: ArrayLike,
) -> float:
    """Return a correlation in percent, 0 where it is not defined."""
    sides = _sides(labels, predictions, np.float64)
    if not all(np.isfinite(side).all() for side in sides):
        return 0.0
    # Compared before scipy takes the mean, which is rounded.
    if any(np.all(side == side[0]) for side in sides):
        return 0.0
    # Neither largest value is 0. Sums of the scaled values cannot overflow.
    scaled = [side / np.abs(side).max() for side in sides]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # values that hardly differ
        return float(100 * np.clip(measure(*scaled).statistic, -1, 1))
