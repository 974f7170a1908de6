"""Measure the speed of training: steps and waiting since the last log."""

import ctypes
import math
from collections.abc import Mapping
from typing import Any

_SECONDS_PER_CALL = 2.0  # steps run in calls of this duration, which delays signals
_MAX_STEPS_PER_CALL = 1000

Metrics = dict[str, Any]
"""Pairs of (total, weight) by name."""


class MetricWindow:
    """Metric sums and times since the last log line."""

    def __init__(self):
        self.clear()

    def clear(self) -> None:
        """Begin the next window."""
        self.metrics: Metrics = {}
        self._steps = 0
        self._seconds = self._waited = 0.0

    def add(self, metrics: Metrics) -> None:
        """Add the metrics of a call."""
        self.metrics = add_metrics(self.metrics, metrics)

    def add_time(self, steps: int, seconds: float, waited: float) -> float:
        """Add the time of a call; return the mean seconds of a step."""
        self._steps += steps
        self._seconds += seconds
        self._waited += waited
        return self._seconds / self._steps

    def speed_metrics(
        self, tokens: float, steps_left: float, step_flops: float
    ) -> dict[str, float]:
        """Return speeds and the time left; NaN if no step was timed."""
        seconds = self._seconds / self._steps if self._steps else math.nan
        return {
            "tokens_per_second": tokens / seconds,
            "flops_per_second": step_flops / seconds,
            "input_share": self._waited / (seconds * self._steps),
            "seconds_left": seconds * steps_left,
        }


def steps_per_call(seconds_per_step: float | None) -> int:
    """Return the number of steps of the next call: 1 until a step is timed."""
    if seconds_per_step is None:
        return 1
    return max(1, min(_MAX_STEPS_PER_CALL, int(_SECONDS_PER_CALL / seconds_per_step)))


def add_metrics(sums: Mapping[str, Any], metrics: Mapping[str, Any]) -> Metrics:
    """Add metrics to sums of metrics, which may be empty."""
    if not sums:
        return dict(metrics)
    return {
        name: (sums[name][0] + total, sums[name][1] + weight)
        for name, (total, weight) in metrics.items()
    }


def malloc_trim() -> None:
    """Return freed pages to the system; do nothing if the C library is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
