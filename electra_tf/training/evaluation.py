"""Metrics on held-out records: the same ones each time, in the same order."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf.training.multi_step_runner import MultiStepRunner, Step, add, distribute

_BATCHES_A_CALL = 10  # always the same: where sums are cut decides their rounding


class Evaluation:
    """Measures the same batches, with the same draws, whenever it is called.

    Args:
        strategy: The replicas.
        step: From a replica's rows and a batch's number to metrics.
        batches: From (host, hosts) to that host's rows of each batch, finite.
        count: How many batches there are in it.
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
        """Metrics over all its batches, as pairs.

        Args:
            progress: Told, every few batches, how many more are done.
        """
        iterator, sums = iter(self._dataset), {}
        for first in range(0, self.count, _BATCHES_A_CALL):
            count = min(_BATCHES_A_CALL, self.count - first)
            metrics, _ = self._loop(iterator, count, first)
            sums = add(sums, metrics)
            if progress is not None:
                progress(count)
        return sums
