"""Hierarchical bootstrap over seeds, seeds of fine-tuning and rows of dev.

A sample draws pre-training seeds, the same ones for both systems of a comparison; for
each of them seeds of fine-tuning, for each system, rung and task anew; and the rows of
each task, the same ones for all. With fewer than three pre-training seeds, all of them
are taken instead.
"""

import functools
import zlib
from collections.abc import Sequence

import numpy as np
from metrics import score

SAMPLES = 2000


def sampled_scores(task: str, seeds: np.ndarray) -> np.ndarray:
    """Return the scores of one run on samples of the rows."""
    weights = _row_weights(task, seeds.shape[-1])
    return np.array([score(task, columns, weights) for columns in seeds])


def resample(runs: Sequence[np.ndarray], name: str) -> np.ndarray:
    """Return the mean score of a system on samples of its seeds.

    Args:
        runs: Results of `sampled_scores`, one for each pre-training seed.
        name: Of system, rung and task: their seeds of fine-tuning are drawn anew.
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
    """Return the budgets at which lines through differences are 0."""
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
