"""Run several steps, or an evaluation, in one call of TensorFlow on every replica."""

import ctypes
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf.training.speed import Metrics, add_metrics
from electra_tf.training.strategy import host_of

# Constant, because the partial sums determine the rounding.
_EVALUATION_BATCHES_PER_CALL = 10

Step = Callable[[Any, tf.Tensor], Metrics]
"""Function of a replica's rows of a batch and of the number of the step in the call."""
MakeBatches = Callable[[int, int], tf.data.Dataset]
"""Function of (host, number of hosts)."""


def iterate(strategy: tf.distribute.Strategy, make_batches: MakeBatches) -> Any:
    """Return an endless iterator of this process's rows of each batch.

    It is no distributed iterator, which would wait at its end for up to a minute, for
    the autotuning thread of a dataset of its own.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    batches = make_batches(*host_of(strategy)).repeat()
    return iter(batches.with_options(options))


class StepRunner:
    """Runner of many steps in one TensorFlow function, on every replica.

    The number of steps is an argument of the function, so that one program runs any
    number, with the same rounding. It is traced once for each number that `stage`
    returns.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        step: Step,
        stage: Callable[[], int] = lambda: 1,
        jit_compile: bool = False,
    ):
        self._strategy, self._step, self._stage = strategy, step, stage
        self._replicas = strategy.num_replicas_in_sync // host_of(strategy)[1]
        self.jit_compile = jit_compile
        """True if XLA compiles a step."""
        self._run_step = tf.function(
            self._on_replicas, autograph=False, jit_compile=jit_compile or None
        )
        self._program = tf.function(self._many_steps, autograph=False)
        self._optimized: set[int] = set()

    def __call__(
        self, iterator: Any, count: int, first: int = 0
    ) -> tuple[Metrics, float]:
        """Run `count` steps on the next batches, the first of which has a number.

        Returns:
            Metrics summed over steps and replicas as pairs of float64 arrays, and the
            seconds spent waiting for batches.
        """
        stage = self._stage()
        steps, number = tf.constant(count, tf.int64), tf.constant(first, tf.int64)
        if stage not in self._optimized:
            # A call without steps optimizes the graph. Memory of the optimization is
            # freed before the first step allocates its own.
            self._program(iterator, tf.zeros_like(steps), number, stage)
            malloc_trim()
            self._optimized.add(stage)
        metrics, waited = self._program(iterator, steps, number, stage)
        return tf.nest.map_structure(lambda t: t.numpy(), metrics), float(waited)

    def _many_steps(
        self, iterator: Any, count: tf.Tensor, first: tf.Tensor, stage: int
    ) -> tuple[Metrics, tf.Tensor]:
        """Return the metrics summed over `count` steps, and the seconds of waiting."""

        def run(index: tf.Tensor, sums: Metrics, waited: tf.Tensor) -> tuple:
            begin = tf.timestamp()
            with tf.control_dependencies([begin]):
                batch = iterator.get_next()
            with tf.control_dependencies(tf.nest.flatten(batch)):
                waited += tf.timestamp() - begin
            metrics = self._run_step(batch, first + index, stage)
            return index + 1, tf.nest.map_structure(_add, sums, metrics), waited

        traced = self._run_step.get_concrete_function(
            iterator.element_spec, first, stage
        )
        zeros = tf.nest.map_structure(
            lambda t: tf.zeros(t.shape, tf.float64), traced.structured_outputs
        )
        start = tf.zeros([], tf.int64), zeros, tf.zeros([], tf.float64)
        return tf.while_loop(
            lambda index, *_: index < count, run, start, parallel_iterations=1
        )[1:]

    def _on_replicas(self, batch: Any, number: tf.Tensor, stage: int) -> Metrics:
        """Run a step; return its metrics, summed over all replicas."""

        def step(batch: Any) -> Metrics:
            context = tf.distribute.get_replica_context()
            index = context.replica_id_in_sync_group % self._replicas
            rows = tf.nest.map_structure(lambda t: self._part(t, index), batch)
            metrics = tf.nest.map_structure(_float32, self._step(rows, number))
            if context.num_replicas_in_sync == 1:
                return metrics
            return context.all_reduce(tf.distribute.ReduceOp.SUM, metrics)

        metrics = self._strategy.run(step, (batch,))
        return self._strategy.experimental_local_results(metrics)[0]

    def _part(self, rows: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        """Return a replica's rows of those of this process."""
        if self._replicas == 1:
            return rows
        size = rows.shape[0] // self._replicas
        return tf.reshape(rows, [self._replicas, size, *rows.shape[1:]])[index]


def train_runner(strategy: tf.distribute.Strategy, trainer: Any) -> StepRunner:
    """Return a runner of a trainer's steps; `jit_compile` compiles them with XLA."""

    def step(batch: Any, _: tf.Tensor) -> Metrics:
        return trainer.train_step(batch, as_ratios=False)

    is_one_device = isinstance(strategy, tf.distribute.OneDeviceStrategy)
    is_compiled = bool(trainer.jit_compile) and is_one_device
    return StepRunner(strategy, step, lambda: trainer.stage, is_compiled)


class Evaluation:
    """Evaluation on the same batches with the same random numbers at each call."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        step: Step,
        make_batches: MakeBatches,
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
        for first in range(0, self.count, _EVALUATION_BATCHES_PER_CALL):
            count = min(_EVALUATION_BATCHES_PER_CALL, self.count - first)
            metrics, _ = self._run_steps(iterator, count, first)
            sums = add_metrics(sums, metrics)
            if progress is not None:
                progress(count)
        return sums


def malloc_trim() -> None:
    """Return freed pages to the system; do nothing if the C library is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _float32(value: tf.Tensor | float) -> tf.Tensor:
    return tf.cast(value, tf.float32)


def _add(total: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    return total + tf.cast(value, total.dtype)
