"""Scores of the finished runs of a grid, and bootstrap samples of them."""

import functools
import itertools
import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import metrics
import numpy as np
import scores
from grid import Grid

PRIMARY = "chunking", "sst2", "cola", "stsb", "mnli"
"""Tasks whose unweighted mean is the primary score, fixed before the first run."""


class Results:
    def __init__(self, grid: Grid, folder: pathlib.Path):
        self.grid, self._folder = grid, folder
        self.rows = {
            run: json.loads(path.read_text(encoding="utf-8"))
            for run in grid.runs
            if (path := folder / f"{run.name}.json").exists()
        }
        self.rungs = [*dict.fromkeys(run.rung for run in grid.runs if run.rung)]
        self.systems = [*dict.fromkeys(run.system for run in grid.runs if run.rung)]
        baselines = (run.system for run in grid.runs if not run.rung)
        self.baselines = [*dict.fromkeys(baselines)]
        self.pairs = [(b, a) for a, b in itertools.combinations(self.systems, 2)]
        """Pairs of systems that are compared, the later one first."""

    def finished(self, system: str, rung: str, tasks: Sequence[str]) -> dict[int, Any]:
        return {
            run.seed: run
            for run, row in self.rows.items()
            if (run.system, run.rung) == (system, rung)
            and set(tasks) <= set(row["scores"])
        }

    def mean(
        self, system: str, rung: str, tasks: Sequence[str], seeds: Sequence[int]
    ) -> np.ndarray:
        """Return the mean of some tasks over some seeds: [1 + SAMPLES]."""
        runs, means = self.finished(system, rung, tasks), []
        for task in tasks:
            samples = [self._samples(runs[seed], task) for seed in seeds]
            means.append(metrics.resample(samples, f"{system} {rung} {task}"))
        return np.mean(means, 0)

    def difference(
        self, pair: Sequence[str], rung: str, tasks: Sequence[str]
    ) -> tuple[np.ndarray, int] | None:
        """Return the first system minus the second, and the number of their seeds.

        A baseline is the same at each rung.
        """
        names = [(s, "" if s in self.baselines else rung) for s in pair]
        first, second = (self.finished(*name, tasks) for name in names)
        if not (seeds := sorted(set(first) & set(second))):
            return None
        a, b = (self.mean(*name, tasks, seeds) for name in names)
        return a - b, len(seeds)

    @functools.cache  # noqa: B019
    def _samples(self, run: Any, task: str) -> np.ndarray:
        path = self._folder / f"{run.name}.rows.json.xz"
        rows = scores.read_rows(path)[task]
        return metrics.sampled_scores(task, metrics.arrays(rows))


def primary_of(row: Mapping[str, Any]) -> float | None:
    """Return a run's primary score; None: a task is missing."""
    if not set(PRIMARY) <= set(row["scores"]):
        return None
    return statistics.fmean(statistics.fmean(row["scores"][n]) for n in PRIMARY)


def cell(values: np.ndarray, sign: str = "") -> str:
    value, low, high = metrics.interval(values)
    return f"{value:{sign}.1f} ({low:{sign}.1f} to {high:{sign}.1f})"
