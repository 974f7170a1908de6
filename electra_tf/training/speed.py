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

    def __init__(self, seconds_per_step: float | None = None):
        self.metrics: Metrics = {}
        self.is_after_save = False
        """True if the other workers begin the next steps while the chief saves."""
        self._timed_steps = 0
        self._seconds = self._waited = 0.0
        # None before the first call; 0 until a call is timed.
        self._seconds_per_step = seconds_per_step

    def usual_seconds(self, steps: int) -> float | None:
        """Return the usual duration of some steps; None: unknown."""
        if not self._seconds_per_step or self.is_after_save:
            return None
        return steps * self._seconds_per_step

    @property
    def is_new(self) -> bool:
        """Return whether no call has been recorded in this process."""
        return self._seconds_per_step is None

    @property
    def steps_per_call(self) -> int:
        """Steps of the next call: 1 until a step is timed without compiling."""
        if not self._seconds_per_step:
            return 1
        steps = int(_SECONDS_PER_CALL / self._seconds_per_step)
        return max(1, min(_MAX_STEPS_PER_CALL, steps))

    def add(self, metrics: Metrics, steps: int, seconds: float, waited: float) -> None:
        """Add a call; the time of the first call is ignored, as it compiles."""
        self.metrics = add_metrics(self.metrics, metrics)
        self.is_after_save = False
        if self._seconds_per_step is None:
            self._seconds_per_step = 0.0
            return
        self._timed_steps += steps
        self._seconds += seconds
        self._waited += waited
        self._seconds_per_step = self._seconds / self._timed_steps

    def speed_metrics(
        self, tokens: float, steps_left: float, step_flops: float
    ) -> dict[str, float]:
        """Return speeds and the time left; NaN if no step was timed."""
        seconds = self._seconds / self._timed_steps if self._timed_steps else math.nan
        return {
            "tokens_per_second": tokens / seconds,
            "flops_per_second": step_flops / seconds,
            "input_share": self._waited / (seconds * self._timed_steps),
            "seconds_left": seconds * steps_left,
        }

    def next_window(self) -> "MetricWindow":
        """Return an empty window with the time of a step."""
        return MetricWindow(self._seconds_per_step)


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
