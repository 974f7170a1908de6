"""Compute metrics on held-out records."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf.training.multi_step_runner import (
    MultiStepRunner,
    Step,
    add_metrics,
    distribute,
)

_BATCHES_PER_CALL = 10  # constant, because the partial sums determine the rounding


class Evaluation:
    """Evaluation on the same batches with the same random numbers at each call."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        step: Step,
        make_batches: Callable[[int, int], tf.data.Dataset],
        count: int,
        stage: Callable[[], int] = lambda: 1,
    ):
        self._run_steps = MultiStepRunner(strategy, step, True, stage)
        self._dataset, self.count = distribute(strategy, make_batches), count

    def __call__(self, progress: Callable[[int], Any] | None = None) -> dict[str, Any]:
        """Return the metrics over all batches, as pairs of (total, weight)."""
        iterator, sums = iter(self._dataset), {}
        for first in range(0, self.count, _BATCHES_PER_CALL):
            count = min(_BATCHES_PER_CALL, self.count - first)
            metrics, _ = self._run_steps(iterator, count, first)
            sums = add_metrics(sums, metrics)
            if progress is not None:
                progress(count)
        return sums
