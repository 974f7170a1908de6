"""Run many steps in one call on the devices, without Python in between."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.training.memory import malloc_trim

Step = Callable[..., dict[str, Any]]


def distribute(
    strategy: tf.distribute.Strategy, batches: Callable[[int, int], tf.data.Dataset]
) -> Any:
    """Distribute batches so that replica r gets the r-th part of the rows.

    Args:
        strategy: The replicas.
        batches: Function of (host, hosts) that returns the host's rows of each batch.

    Returns:
        An infinite distributed dataset that repeats `batches`.
    """

    def of_host(context: tf.distribute.InputContext) -> tf.data.Dataset:
        found = batches(context.input_pipeline_id, context.num_input_pipelines)
        here = context.num_replicas_in_sync // context.num_input_pipelines
        if here > 1:
            rows = found.element_spec[0].shape[0] // here
            found = found.rebatch(rows, drop_remainder=True).prefetch(here)
        # With several workers, batches of a finite dataset lose their static shape.
        return found.repeat()

    options = tf.distribute.InputOptions(experimental_fetch_to_device=True)
    return strategy.distribute_datasets_from_function(of_host, options)


class MultiStepRunner:
    """Repeated runs of a step on every replica, with summed metrics.

    Args:
        strategy: The replicas.
        step: Function of a replica's rows that returns metrics: pairs by name.
        numbered: Whether `step` also takes the number of its batch.
    """

    def __init__(
        self, strategy: tf.distribute.Strategy, step: Step, numbered: bool = False
    ):
        self._strategy, self._step, self._numbered = strategy, step, numbered
        self._names: dict[str, tuple[tf.TensorShape, tf.TensorShape]] = {}
        self._one = tf.function(self._one_step)
        self._many = tf.function(self._many_steps)
        self._ready = False

    def __call__(
        self, iterator: Any, count: int, first: int = 0
    ) -> tuple[dict[str, Any], float]:
        """Run `count` steps on the next batches.

        Args:
            iterator: Iterator of a distributed dataset.
            count: Number of steps.
            first: Number of the first of these batches.

        Returns:
            Metrics summed over steps and replicas as pairs of float64 arrays, and the
            seconds spent on waiting for batches.
        """
        start, end = (tf.constant(n, tf.int64) for n in (first, first + count))
        if not self._ready:
            # A call without steps optimizes the graph; the memory of that is freed
            # before the first step allocates its own.
            self._many(iterator, start, start)
            malloc_trim()
            self._ready = True
        total, waited = self._many(iterator, start, end)
        return self._unpacked(total.numpy()), float(waited)

    def _many_steps(self, iterator: Any, first: tf.Tensor, end: tf.Tensor):
        # Trace one step alone to get the size of its result.
        one = self._one.get_concrete_function(iterator, tf.constant(0, tf.int64))
        size = one.structured_outputs[0].shape
        total, waited = tf.zeros(size, tf.float64), tf.zeros([], tf.float64)
        for number in tf.range(first, end):
            with tf.control_dependencies([total]):  # start after the last step
                more, seconds = self._one(iterator, number)
            total += tf.cast(more, tf.float64)
            waited += seconds
        return total, waited

    def _one_step(self, iterator: Any, number: tf.Tensor):
        begin = tf.timestamp()
        with tf.control_dependencies([begin]):
            batch = next(iterator)
        with tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)):
            waited = tf.timestamp() - begin
        # Without this, a single thread may run the step before it reads the clock.
        with tf.control_dependencies([waited]):
            batch = tf.nest.map_structure(tf.identity, batch, expand_composites=True)
        arguments = (batch, number) if self._numbered else (batch,)
        # A step has no Python loops or branches on tensors: AutoGraph would only
        # lengthen the tracing.
        packed = tf.autograph.experimental.do_not_convert(self._packed)
        packed = self._strategy.run(packed, arguments)
        summed = self._strategy.reduce(tf.distribute.ReduceOp.SUM, packed, axis=None)
        return summed, waited

    def _packed(self, *arguments: Any) -> tf.Tensor:
        """Return all metrics as one vector, so that replicas exchange one tensor."""
        metrics = self._step(*arguments)
        metrics = tf.nest.map_structure(tf.convert_to_tensor, metrics)
        self._names = {name: (p[0].shape, p[1].shape) for name, p in metrics.items()}
        parts = [
            tf.reshape(tf.cast(part, tf.float32), [-1])
            for pair in metrics.values()
            for part in pair
        ]
        return tf.concat(parts, 0)

    def _unpacked(self, vector: np.ndarray) -> dict[str, Any]:
        metrics, start = {}, 0
        for name, shapes in self._names.items():
            pair = []
            for shape in shapes:
                size = shape.num_elements()
                pair.append(vector[start : start + size].reshape(shape))
                start += size
            metrics[name] = tuple(pair)
        return metrics


def add(sums: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Add pairs of metrics by name.

    Args:
        sums: Earlier sums; empty at first.
        more: Metrics to add.

    Returns:
        The sums.
    """
    if not sums:
        return more
    return {
        name: (sums[name][0] + total, sums[name][1] + weight)
        for name, (total, weight) in more.items()
    }
