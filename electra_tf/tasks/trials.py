"""Results of trials, and statistics over them."""

import dataclasses
import math
import statistics
from collections.abc import Mapping

from electra_tf.tasks.callbacks import format_scores


@dataclasses.dataclass(frozen=True)
class Trial:
    """Result of one seed."""

    number: int
    """Number of the trial, from 1."""
    seed: int
    scores: Mapping[str, float]
    """Scores by split and metric, such as `dev_mcc`."""
    degenerate: str | None
    """Description of degenerate predictions; None: they are not degenerate."""
    epochs: list[Mapping[str, float]]
    """Scores after each epoch."""
    seconds: float
    """Duration of training and evaluation, in the last process of the trial."""


def summary(trials: list[Trial], name: str) -> dict[str, float]:
    """Compute the statistics of a score over trials."""
    values = [trial.scores[name] for trial in trials]
    return {
        "median": statistics.median(values),
        "mean": statistics.fmean(values),
        "sd": _deviation(values),
        "min": min(values),
        "max": max(values),
        "trials": len(values),
        "degenerate": sum(trial.degenerate is not None for trial in trials),
    }


def _deviation(values: list[float]) -> float:
    """Return the sample standard deviation; infinity if a value is not finite."""
    if not all(map(math.isfinite, values)):
        return math.inf  # `statistics` would raise an error
    return statistics.stdev(values) if len(values) > 1 else 0.0


def format_summary(trials: list[Trial], task: str) -> str:
    """Format the statistics of every score.

    Returns:
        A line for each score, without counts and thresholds.
    """
    lines = []
    for name in format_scores(trials[0].scores):
        stats = summary(trials, name)
        numbers = "  ".join(
            f"{word} {stats[word]:.2f}"
            for word in ("median", "mean", "sd", "min", "max")
        )
        degenerate = (
            f", {stats['degenerate']:.0f} degenerate" if stats["degenerate"] else ""
        )
        count = pluralize(stats["trials"], "trial")
        lines.append(f"{task} {name}: {numbers}  ({count}{degenerate})")
    return "\n".join(lines)


def pluralize(number: int, noun: str) -> str:
    """Format a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
