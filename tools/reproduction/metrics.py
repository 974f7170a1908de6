"""Scores of fine-tuned models from what each row of dev got, with weights of rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

SPANS = "tp", "fp", "fn"
"""Names of the counts of a sentence."""


def arrays(rows: Mapping[str, Any]) -> np.ndarray:
    """Return the rows of a task as an array [seeds, columns, rows]."""
    if "tp" in rows:
        return np.stack([np.array(rows[name], float) for name in SPANS], 1)
    if "right" in rows:
        return np.array([[_numbers(seed)] for seed in rows["right"]])
    gold, *seeds = map(_numbers, (rows["gold"], *rows["predicted"]))
    return np.array([[gold, seed] for seed in seeds])


def _numbers(values: Any) -> np.ndarray:
    return np.array([float(value) for value in values])


def score(name: str, columns: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the score of a task in percent for each sample, 0 where it is undefined.

    Args:
        name: Of the task.
        columns: [columns, rows] of one seed.
        weights: [samples, rows], how often a sample contains each row.
    """
    if name == "chunking":
        tp, fp, fn = (weights @ columns.T).T
        return 200 * tp / np.maximum(1, 2 * tp + fp + fn)
    if name == "stsb":
        return _correlation(*(_ranks(side, weights) for side in columns), weights)
    if name == "cola":
        return _correlation(*columns, weights)  # of two classes, it is Matthews'
    right = columns[0] if name == "mnli" else columns[0] == columns[1]
    return 100 * (weights @ right) / weights.sum(-1)


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the rank of each row in each sample; equal values share the mean."""
    _, groups = np.unique(values, return_inverse=True)
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    sizes = np.add.reduceat(weights[:, order], starts, 1)
    return (np.cumsum(sizes, 1) - sizes / 2 + 0.5)[:, groups]


def _correlation(a: np.ndarray, b: np.ndarray, weights: np.ndarray) -> np.ndarray:
    total = weights.sum(-1, keepdims=True)
    a, b = (x - (weights * x).sum(-1, keepdims=True) / total for x in (a, b))
    norm = np.sqrt((weights * a * a).sum(-1) * (weights * b * b).sum(-1))
    product = 100 * (weights * a * b).sum(-1)
    return np.divide(product, norm, out=np.zeros(len(weights)), where=norm > 1e-9)
