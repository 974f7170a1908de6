"""Evaluation during training, and of checkpoints."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf.training.loop import Step, StepRunner
from electra_tf.training.speed import Metrics, add_metrics
from electra_tf.training.strategy import iterate

# Constant, because the partial sums determine the rounding.
_BATCHES_PER_CALL = 10


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
        self._run_steps = StepRunner(strategy, step, stage)
        self._strategy, self._make_batches = strategy, make_batches
        self.count = count

    def __call__(self, progress: Callable[[int], Any] | None = None) -> Metrics:
        """Return the metrics over all batches, as pairs of (total, weight)."""
        # Batches after the last one are not read: nothing has validated them.
        iterator = iterate(
            self._strategy, lambda *host: self._make_batches(*host).take(self.count)
        )
        sums = {}
        for first in range(0, self.count, _BATCHES_PER_CALL):
            count = min(_BATCHES_PER_CALL, self.count - first)
            metrics, _ = self._run_steps(iterator, count, first)
            sums = add_metrics(sums, metrics)
            if progress is not None:
                progress(count)
        return sums
