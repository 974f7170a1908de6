"""Run training steps; log, evaluate, save and stop between two calls of some steps.

A trainer has `optimizer` and `train_step(batch, as_ratios=False)`, which returns pairs
of (total, weight). `stages` are the last steps of its stages; `begin(step)`, called at
the start and between two, changes `stage`, and with it the train step.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.training.checkpoint import steps_at_shares
from electra_tf.training.outputs import Outputs
from electra_tf.training.speed import Metrics, MetricWindow, malloc_trim, steps_per_call
from electra_tf.training.strategy import iterate, timed_batch
from electra_tf.training.watchdog import Watchdog
from electra_tf.training.workers import WorkerSync, host_of

_COMPILING = "compiling the train step: a minute or more for large models"

Step = Callable[[Any, tf.Tensor], Metrics]
"""Function of a replica's rows of a batch and of the number of the step in the call."""


@dataclasses.dataclass
class TrainingLoop:
    """Training loop from the optimizer's current step to the last one."""

    trainer: Any
    strategy: tf.distribute.Strategy
    config: PretrainingConfig
    make_batches: Callable[..., tf.data.Dataset]
    """Function of the first batch, the host and the number of hosts."""
    evaluate: Callable[[], Metrics] | None
    outputs: Outputs
    workers: WorkerSync
    watchdog: Watchdog

    def run(self) -> int:
        """Train until the last step or a signal, then save a checkpoint.

        Return the signal that ended training, or 0.
        """
        step = int(self.trainer.optimizer.iterations.numpy())
        self.trainer.begin(step)
        with self.watchdog.deferring_signals():
            return self._train(step)

    def _train(self, first: int) -> int:
        settings, last = self.config.training, self.config.training.steps
        kept, stages = steps_at_shares(settings.keep_at, last), self.trainer.stages
        window, stop = MetricWindow(), 0
        for step, count, stop in self._steps(first, {*kept, *stages}, window):
            is_boundary = step == last or step in stages
            if step % settings.log_every == 0 or is_boundary:
                self.outputs.log_training(step, window, last - step)
                window.clear()
            if is_boundary and step != last:
                self.trainer.begin(step)
            if self.evaluate and (step % settings.evaluate_every == 0 or step == last):
                self.outputs.set_status("evaluating on held-out records")
                with self.watchdog.expect():
                    metrics = self.evaluate()
                self.outputs.log_evaluation(step, metrics)
            is_save = step % settings.save_every == 0 or step in kept
            if is_save or is_boundary or stop:
                self.outputs.save(step, count)
                with self.watchdog.expect():  # until the chief has saved
                    self.workers.all_gather(0)
        return stop

    def _steps(self, step: int, ends: set, window: MetricWindow) -> Iterator[tuple]:
        """Run the steps after `step` in calls; yield the last step of each.

        A call ends at the steps in `ends` and where a line, an evaluation or a
        checkpoint is due. With each come the number of its steps, and the signal after
        which it is the last one, or 0. Its metrics are added to the window.
        """
        settings, last = self.config.training, self.config.training.steps
        periods = settings.log_every, settings.save_every, settings.evaluate_every
        run_steps = train_runner(self.strategy, self.trainer)
        iterator = iterate(self.strategy, functools.partial(self.make_batches, step))
        stop, stage, per_step = 0, None, None  # compiled stage, seconds of its steps
        while step < last and not stop:
            if is_new := stage != self.trainer.stage:
                stage, per_step = self.trainer.stage, None
                self.outputs.set_status(_COMPILING)
            due = [(step // period + 1) * period for period in periods]
            end = min(last, *due, *(end for end in ends if end > step))
            count = min(steps_per_call(per_step), end - step)
            with self.watchdog.expect(per_step and count * per_step):
                begin = time.perf_counter()
                metrics, waited = run_steps(iterator, count)
                seconds = time.perf_counter() - begin
                totals = {n: metrics[n][0] for n in ("loss", "gradient_norm")}
                self.outputs.check_finite(totals, step, step + count)
                step += count
                numbers = self.workers.all_gather(self.watchdog.stop_signal, seconds)
            stop, seconds = int(max(numbers[0])), max(numbers[1])
            window.add(metrics)
            if is_new:
                self.outputs.set_status("training")
            else:
                per_step = window.add_time(count, seconds, waited)
            yield step, count, stop


class StepRunner:
    """Runner of any number of steps in one TensorFlow function, on every replica.

    It is traced once for each value of `stage()`; XLA may compile each step.
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
        self._run_step = tf.function(
            self._on_replicas, autograph=False, jit_compile=jit_compile or None
        )
        self._program = tf.function(self._many_steps, autograph=False)
        self._optimized: set[int] = set()

    def __call__(self, iterator: Any, count: int, first: int = 0) -> tuple:
        """Run `count` steps on the next batches, the first of which has a number.

        Return the metrics summed over steps and replicas as pairs of float64 arrays,
        and the seconds spent waiting for batches.
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
        def run(index: tf.Tensor, sums: Metrics, waited: tf.Tensor) -> tuple:
            batch, seconds = timed_batch(iterator)
            metrics = self._run_step(batch, first + index, stage)
            sums = tf.nest.map_structure(tf.add, sums, metrics)
            return index + 1, sums, waited + seconds

        spec = iterator.element_spec
        traced = self._run_step.get_concrete_function(spec, first, stage)
        zeros = tf.nest.map_structure(
            lambda t: tf.zeros(t.shape, t.dtype), traced.structured_outputs
        )
        start = tf.zeros([], tf.int64), zeros, tf.zeros([], tf.float64)
        return tf.while_loop(
            lambda index, *_: index < count, run, start, parallel_iterations=1
        )[1:]

    def _on_replicas(self, batch: Any, number: tf.Tensor, stage: int) -> Metrics:
        """Run a step; return its metrics, summed over all replicas."""

        def step(batch: Any) -> Metrics:
            context, count = tf.distribute.get_replica_context(), self._replicas
            if count > 1:  # this replica's rows of those of the process
                index = context.replica_id_in_sync_group % count
                batch = tf.nest.map_structure(
                    lambda t: tf.stack(tf.split(t, count))[index], batch
                )
            metrics = self._step(batch, number)
            metrics = tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), metrics)
            if context.num_replicas_in_sync == 1:
                return metrics
            return context.all_reduce(tf.distribute.ReduceOp.SUM, metrics)

        metrics = self._strategy.run(step, (batch,))
        metrics = self._strategy.experimental_local_results(metrics)[0]
        return tf.nest.map_structure(lambda x: tf.cast(x, tf.float64), metrics)


def train_runner(strategy: tf.distribute.Strategy, trainer: Any) -> StepRunner:
    """Return a runner of a trainer's steps; `jit_compile` compiles them with XLA."""
    is_one_device = isinstance(strategy, tf.distribute.OneDeviceStrategy)
    return StepRunner(
        strategy,
        lambda batch, _: trainer.train_step(batch, as_ratios=False),
        lambda: trainer.stage,
        bool(trainer.jit_compile) and is_one_device,
    )
