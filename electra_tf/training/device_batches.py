"""Distribute batches to the devices, one by one or in stacks."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Batches of a stack. A greater one needs more memory and delays the first step; a
# smaller one returns to Python more often.
_STACK = 32

MakeBatches = Callable[[int, int], tf.data.Dataset]
"""Function of (host, number of hosts)."""


def distribute(strategy: tf.distribute.Strategy, make_batches: MakeBatches) -> Any:
    """Distribute batches, endlessly; replica r gets the r-th part of the rows."""

    def make_host_dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        dataset = make_batches(context.input_pipeline_id, context.num_input_pipelines)
        replicas = context.num_replicas_in_sync // context.num_input_pipelines
        if replicas > 1:
            rows = dataset.element_spec[0].shape[0] // replicas
            dataset = dataset.rebatch(rows, drop_remainder=True).prefetch(replicas)
        # With several workers, batches of a finite dataset lose their static shape.
        return dataset.repeat()

    options = tf.distribute.InputOptions(experimental_fetch_to_device=True)
    return strategy.distribute_datasets_from_function(make_host_dataset, options)


class BatchStacks:
    """Endless batches, read as stacks [N, B, ...]."""

    def __init__(self, strategy: tf.distribute.Strategy, make_batches: MakeBatches):
        def make_stacks(host: int, hosts: int) -> tf.data.Dataset:
            batches = make_batches(host, hosts).repeat()
            return batches.batch(_STACK, drop_remainder=True).prefetch(1)

        self._iterator = iter(distribute(strategy, make_stacks))
        self._stack, self._next = None, _STACK

    def take(self, count: int) -> tuple[Any, int, int]:
        """Return a stack and the bounds of its next batches, `count` at most.

        With a count above 0 there is at least one batch.
        """
        if self._next == _STACK:
            self._stack, self._next = next(self._iterator), 0
        first = self._next
        self._next = min(first + count, _STACK)
        return self._stack, first, self._next
