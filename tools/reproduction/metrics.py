"""Scores of fine-tuned models from what each row of dev got, and their bootstrap.

A sample draws pre-training seeds, the same ones for both systems of a comparison; for
each of them seeds of fine-tuning, for each system, rung and task anew; and the rows of
each task, the same ones for all. With fewer than three pre-training seeds, all of them
are taken instead.
"""

import functools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

SAMPLES = 2000
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

    `columns` are [columns, rows] of one seed; `weights`, how often a sample contains
    each row, [samples, rows].
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


def each(name: str, rows: Mapping[str, Any]) -> list[float]:
    ones = np.ones((1, arrays(rows).shape[-1]))
    return [round(float(score(name, seed, ones)[0]), 4) for seed in arrays(rows)]


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


def sampled_scores(task: str, seeds: np.ndarray) -> np.ndarray:
    """Return the scores of one run on samples of the rows."""
    weights = _row_weights(task, seeds.shape[-1])
    return np.array([score(task, columns, weights) for columns in seeds])


def resample(runs: Sequence[np.ndarray], name: str) -> np.ndarray:
    """Return the mean score of a system on samples of its seeds.

    `runs` are `sampled_scores` of the pre-training seeds. For each `name` seeds of
    fine-tuning are drawn anew.
    """
    values = np.stack(runs)
    number, trials = values.shape[:2]
    seeds = _generator("seeds").integers(number, size=(SAMPLES, number))
    if number < 3:
        seeds[:] = np.arange(number)
    drawn = _generator(name).integers(trials, size=(SAMPLES, number, trials))
    samples = np.arange(1, SAMPLES + 1)[:, None, None]
    means = values[seeds[:, :, None], drawn, samples].mean((1, 2))
    return np.concatenate([[values[:, :, 0].mean()], means])


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Return the value of the data and the 95% interval of the samples."""
    low, high = np.percentile(values[1:], [2.5, 97.5], method="nearest")
    return float(values[0]), float(low), float(high)


def crossings(differences: np.ndarray, budgets: Sequence[float]) -> np.ndarray:
    slopes, starts = np.polyfit(np.log(budgets), differences, 1)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        found = np.exp(-starts / slopes)
    return np.where(slopes * slopes[0] > 0, found, np.inf)


@functools.cache
def _row_weights(task: str, count: int) -> np.ndarray:
    """Return how often each sample contains each row, all rows first."""
    drawn = _generator(task).multinomial(count, np.full(count, 1 / count), SAMPLES)
    return np.concatenate([np.ones((1, count)), drawn])


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))
