"""Metrics on held-out records: the same ones each time, in the same order."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf.training.device_loop import DeviceLoop, Step, distribute


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
        self._loop = DeviceLoop(strategy, step, numbered=True)
        self._dataset, self.count = distribute(strategy, batches), count

    def __call__(self) -> dict[str, Any]:
        """Metrics over all its batches, as pairs."""
        metrics, _ = self._loop(iter(self._dataset), self.count)
        return metrics
