"""Compute metrics on held-out records, in the same order each time."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf.training.multi_step_runner import MultiStepRunner, Step, add, distribute

_BATCHES_A_CALL = 10  # constant: partial sums decide the rounding


class Evaluation:
    """Evaluation of the same batches with the same random numbers at each call.

    Args:
        strategy: The replicas.
        step: Function of (replica's rows, batch number) that returns metrics.
        batches: Function of (host, hosts) that returns a finite dataset of the
            host's rows of each batch.
        count: Number of batches.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        step: Step,
        batches: Callable[[int, int], tf.data.Dataset],
        count: int,
    ):
        self._loop = MultiStepRunner(strategy, step, numbered=True)
        self._dataset, self.count = distribute(strategy, batches), count

    def __call__(self, progress: Callable[[int], Any] | None = None) -> dict[str, Any]:
        """Return the metrics over all batches, as pairs.

        Args:
            progress: Called every few batches with the number of new batches.
        """
        iterator, sums = iter(self._dataset), {}
        for first in range(0, self.count, _BATCHES_A_CALL):
            count = min(_BATCHES_A_CALL, self.count - first)
            metrics, _ = self._loop(iterator, count, first)
            sums = add(sums, metrics)
            if progress is not None:
                progress(count)
        return sums
