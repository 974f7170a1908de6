"""Run many steps in one call of a TensorFlow function."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.training.memory import malloc_trim

Step = Callable[..., dict[str, Any]]


def distribute(
    strategy: tf.distribute.Strategy,
    make_batches: Callable[[int, int], tf.data.Dataset],
) -> Any:
    """Distribute batches so that replica r gets the r-th part of the rows.

    Returns:
        An infinite distributed dataset that repeats the batches.
    """

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


class MultiStepRunner:
    """Runner that repeats a step on every replica and sums its metrics."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        step: Step,
        numbered: bool = False,
        stage: Callable[[], int] = lambda: 1,
    ):
        self._strategy, self._step, self._numbered = strategy, step, numbered
        self._stage = stage
        self._forget_trace()

    def _forget_trace(self) -> None:
        self._traced_stage = self._stage()
        self._shapes: dict[str, tuple[tf.TensorShape, tf.TensorShape]] = {}
        self._compiled_step = tf.function(self._one_step)
        self._compiled_steps = tf.function(self._many_steps)
        self._is_compiled = False

    def __call__(
        self, iterator: Any, count: int, first: int = 0
    ) -> tuple[dict[str, Any], float]:
        """Run `count` steps on the next batches.

        Returns:
            Metrics summed over steps and replicas as pairs of float64 arrays, and the
            seconds spent waiting for batches.
        """
        start, end = (tf.constant(n, tf.int64) for n in (first, first + count))
        if self._stage() != self._traced_stage:
            self._forget_trace()
        if not self._is_compiled:
            # A call without steps optimizes the graph. Memory of the optimization is
            # freed before the first step allocates its own.
            self._compiled_steps(iterator, start, start)
            malloc_trim()
            self._is_compiled = True
        total, waited = self._compiled_steps(iterator, start, end)
        return self._unflatten(total.numpy()), float(waited)

    def _many_steps(self, iterator: Any, first: tf.Tensor, end: tf.Tensor):
        # Trace one step alone to get the shape of its result.
        traced = self._compiled_step.get_concrete_function(
            iterator, tf.constant(0, tf.int64)
        )
        shape = traced.structured_outputs[0].shape
        total, waited = tf.zeros(shape, tf.float64), tf.zeros([], tf.float64)
        for number in tf.range(first, end):
            with tf.control_dependencies([total]):  # wait for the previous step
                metrics, seconds = self._compiled_step(iterator, number)
            total += tf.cast(metrics, tf.float64)
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
        # AutoGraph would lengthen the tracing, and a step has no Python loops or
        # branches on tensors to convert.
        step = tf.autograph.experimental.do_not_convert(self._flattened_step)
        metrics = self._strategy.run(step, arguments)
        summed = self._strategy.reduce(tf.distribute.ReduceOp.SUM, metrics, axis=None)
        return summed, waited

    def _flattened_step(self, *arguments: Any) -> tf.Tensor:
        """Return all metrics as one vector, so that replicas exchange one tensor."""
        metrics = self._step(*arguments)
        metrics = tf.nest.map_structure(tf.convert_to_tensor, metrics)
        self._shapes = {
            name: (total.shape, weight.shape)
            for name, (total, weight) in metrics.items()
        }
        vectors = [
            tf.reshape(tf.cast(tensor, tf.float32), [-1])
            for pair in metrics.values()
            for tensor in pair
        ]
        return tf.concat(vectors, 0)

    def _unflatten(self, vector: np.ndarray) -> dict[str, Any]:
        metrics, start = {}, 0
        for name, shapes in self._shapes.items():
            pair = []
            for shape in shapes:
                size = shape.num_elements()
                pair.append(vector[start : start + size].reshape(shape))
                start += size
            metrics[name] = tuple(pair)
        return metrics


def add_metrics(sums: dict[str, Any], metrics: dict[str, Any]) -> dict[str, Any]:
    """Add metrics to sums of metrics."""
    if not sums:
        return metrics
    return {
        name: (sums[name][0] + total, sums[name][1] + weight)
        for name, (total, weight) in metrics.items()
    }
