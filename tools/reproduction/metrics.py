"""Scores of fine-tuned models from what each row of dev got, with weights of rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import rankdata

SPANS = "tp", "fp", "fn"
"""Names of the counts of a sentence."""


def arrays(rows: Mapping[str, Any]) -> np.ndarray:
    """Return the rows of a task as an array [seeds, columns, rows].

    Args:
        rows: Result of `scores.rows_of`.
    """
    if "tp" in rows:
        return np.stack([np.array(rows[name], float) for name in SPANS], 1)
    if "right" in rows:
        return np.array([[_digits(seed)] for seed in rows["right"]])
    gold, *seeds = map(_digits, (rows["gold"], *rows["predicted"]))
    return np.array([[gold, seed] for seed in seeds])


def _digits(values: Any) -> np.ndarray:
    return np.array([float(value) for value in values])


def score(name: str, columns: np.ndarray) -> float:
    """Return the score of a task in percent, 0 where it is undefined.

    Args:
        name: Of the task.
        columns: [columns, rows] of one seed.
    """
    if name == "chunking":
        tp, fp, fn = columns.sum(-1)
        return 200 * tp / max(1.0, 2 * tp + fp + fn)
    if name == "mnli":
        return 100 * columns[0].mean()
    gold, predicted = columns
    if name == "stsb":
        return _correlation(rankdata(gold), rankdata(predicted))
    if name == "cola":
        return _correlation(gold, predicted)  # of two classes, it is Matthews'
    return 100 * (gold == predicted).mean()


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    norm = np.sqrt((a @ a) * (b @ b))
    return float(100 * (a @ b) / norm) if norm else 0.0
