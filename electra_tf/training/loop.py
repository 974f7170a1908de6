"""Run training steps, log metrics, evaluate, save checkpoints and stop on signals.

`TrainingLoop._train` is the loop. It calls the trainer's `train_step`, many times for
each iteration, through `MultiStepRunner`. A trainer has `trainable_variables`, an
`optimizer` and `train_step(batch, as_ratios=False)`, which returns metrics as pairs of
(total, weight).
`begin(step)` is called before the first step and after `restart` steps, where `stage`
and with it the train step change.
"""

import contextlib
import ctypes
import dataclasses
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.training.checkpoint import (
    CheckpointManager,
    newest_path,
    steps_at_shares,
    training_state,
)
from electra_tf.training.metric_logger import MetricLogger
from electra_tf.training.speed import Metrics, MetricWindow, add_metrics
from electra_tf.training.watchdog import no_limit
from electra_tf.training.workers import WorkerSync

# Constant, because the partial sums determine the rounding.
_EVALUATION_BATCHES_PER_CALL = 10
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_MUST_BE_FINITE = ("loss", "gradient_norm")

# Batches of a stack. A greater one needs more memory, and delays the first step and the
# answer to a signal; a smaller one returns to Python more often.
_STACK, _COMPILED_STACK = 8, 32

Step = Callable[..., Metrics]
MakeBatches = Callable[[int, int], tf.data.Dataset]
"""Function of (host, number of hosts)."""


@dataclasses.dataclass(frozen=True)
class ChiefOutputs:
    """Outputs of the chief, the only process that writes."""

    checkpoints: CheckpointManager
    metric_logger: MetricLogger
    health: Callable[[int, Mapping[str, float]], Iterable[str]]
    """Function of (step, metrics) that returns warnings."""
    metadata: Mapping[str, Any]
    """Metadata of every checkpoint."""
    files: Mapping[str, bytes]
    """Additional files of every checkpoint, by name."""


@dataclasses.dataclass
class TrainingLoop:
    """Training loop from the optimizer's current step to the last one."""

    trainer: Any
    strategy: tf.distribute.Strategy
    config: PretrainingConfig
    make_batches: Callable[..., tf.data.Dataset]
    """Function of `first_batch`, `host` and `hosts`."""
    compute_metrics: Callable[[Metrics], dict[str, float]]
    step_flops: float
    evaluate: Callable[[], Metrics] | None
    outputs: ChiefOutputs | None
    expect: Callable[..., contextlib.AbstractContextManager] = no_limit
    """Limit of the duration of a block: `Watchdog.expect`."""

    def __post_init__(self):
        settings = self.config.training
        self._run_steps = train_runner(self.strategy, self.trainer)
        self._keep_steps = steps_at_shares(settings.keep_at, settings.steps)
        self._signal: int | None = None
        self._workers = WorkerSync(self.strategy)

    def run(self) -> int:
        """Train until the last step or a signal, then save a checkpoint.

        Return the signal that ended training, or 0.
        """
        step = int(self.trainer.optimizer.iterations.numpy())
        self.trainer.begin(step)
        iterator = self._iterator(step)
        old_handlers = {s: signal.signal(s, self._store_signal) for s in _SIGNALS}
        try:
            stop_signal = self._train(iterator, step)
            # No worker exits before the chief has written the last checkpoint.
            with self.expect():
                self._workers.all_gather(0)
            return stop_signal
        finally:
            for number, handler in old_handlers.items():
                signal.signal(number, handler)

    def _iterator(self, step: int) -> Any:
        """Return an iterator of the batches from the next step on."""
        return self._run_steps.iterate(
            lambda host, hosts: self.make_batches(
                first_batch=step, host=host, hosts=hosts
            )
        )

    def _train(self, iterator: Any, step: int) -> int:
        settings = self.config.training
        window = MetricWindow()
        if step < settings.steps:
            self._set_status(
                "compiling the train step: a minute or more for large models"
            )
        while step < settings.steps:
            # Call `train_step` `count` times, on the next batches.
            count = min(window.steps_per_call, self._next_boundary(step) - step)
            with self.expect(window.usual_seconds(count)):
                begin = time.perf_counter()
                metrics, waited = self._run_steps(iterator, count)
                seconds = time.perf_counter() - begin
                self._check_finite(
                    [n for n in _MUST_BE_FINITE if not np.isfinite(metrics[n][0])],
                    step,
                    step + count,
                )
                step += count
                signals, times = self._workers.all_gather(self._signal or 0, seconds)
                stop_signal = int(max(signals))
            if window.is_new:
                self._set_status("training")
            window.add(metrics, count, max(times), waited)
            is_last = step == settings.steps
            is_boundary = is_last or step == self.trainer.restart
            if step % settings.log_every == 0 or is_boundary:
                self._log_metrics(step, window)
                window = window.next_window()
            if is_boundary and not is_last:
                self.trainer.begin(step)
                window = MetricWindow()  # the next call compiles
            if self.evaluate and (step % settings.evaluate_every == 0 or is_last):
                self._run_evaluation(step)
            is_save = step % settings.save_every == 0 or step in self._keep_steps
            if is_save or is_boundary or stop_signal:
                self._save_checkpoint(step, count)
                window.is_after_save = True
            if stop_signal:
                return stop_signal
        return 0

    def _next_boundary(self, step: int) -> int:
        """Return the next step at which to log, evaluate or save."""
        settings = self.config.training
        periods = (settings.log_every, settings.save_every, settings.evaluate_every)
        boundaries = [(step // period + 1) * period for period in periods]
        single = {*self._keep_steps, self.trainer.restart or 0}
        boundaries += [number for number in single if number > step]
        return min(*boundaries, settings.steps)

    def _store_signal(self, number: int, _) -> None:
        """Store a signal; raise KeyboardInterrupt at a second one."""
        if self._signal is not None:
            raise KeyboardInterrupt
        self._signal = number

    def _check_finite(self, not_finite: list[str], first: int, last: int) -> None:
        """Raise an InputError if any value after step `first` is not finite."""
        if not not_finite:
            return
        path = self.outputs and newest_path(self.outputs.checkpoints.folder)
        begin = f" from --init_checkpoint={path}" if path else ""
        raise InputError(
            f"NaN or infinity in {', '.join(not_finite[:3])}, in steps {first + 1:,} "
            f"to {last:,}; the last good checkpoint: {path or 'none yet'}; start a "
            f"new run (--model_dir){begin} with a lower optimizer.learning_rate, more "
            "optimizer.warmup_steps or a smaller optimizer.clip_norm, unless a rerun "
            "of this command does not reproduce it, which points to faulty hardware"
        )

    def _log_metrics(self, step: int, window: MetricWindow) -> None:
        if self.outputs is None:
            return
        values = self.compute_metrics(window.metrics)
        # The rate of the update of this step; the others are means over the window.
        values["learning_rate"] = float(self.trainer.optimizer.schedule(step - 1))
        tokens = values.pop("tokens")
        left = self.config.training.steps - step
        values |= window.speed_metrics(tokens, left, self.step_flops)
        self.outputs.metric_logger.train(step, values)
        for warning in self.outputs.health(step, values):
            self.outputs.metric_logger.log(f"health: {warning}")

    def _set_status(self, status: str) -> None:
        if self.outputs is not None:
            self.outputs.metric_logger.set_status(status)

    def _run_evaluation(self, step: int) -> None:
        self._set_status("evaluating on held-out records")
        with self.expect():
            metrics = self.evaluate()
        if self.outputs is not None:
            values = self.compute_metrics(metrics)
            self.outputs.metric_logger.evaluation(step, values)

    def _save_checkpoint(self, step: int, count: int) -> None:
        weights, slots = training_state(self.trainer)
        # The last update may overflow; its loss was computed before.
        arrays = [*weights.items(), *slots.items()]
        not_finite = [name for name, array in arrays if not np.isfinite(array).all()]
        self._check_finite(not_finite, step - count, step)
        if self.outputs is None:
            return
        # A run that resumes from this checkpoint does not log earlier steps again.
        self.outputs.metric_logger.sync()
        files, metadata = self.outputs.files, self.outputs.metadata
        self.outputs.checkpoints.save(step, weights, slots, files, metadata)


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
        self._run_steps = MultiStepRunner(strategy, step, True, stage)
        self._make_batches, self.count = make_batches, count

    def __call__(self, progress: Callable[[int], Any] | None = None) -> Metrics:
        """Return the metrics over all batches, as pairs of (total, weight)."""
        # Batches after the last one are not read: nothing has validated them.
        stacks = self._run_steps.iterate(
            lambda *host: self._make_batches(*host).take(self.count), self.count
        )
        sums = {}
        for first in range(0, self.count, _EVALUATION_BATCHES_PER_CALL):
            count = min(_EVALUATION_BATCHES_PER_CALL, self.count - first)
            metrics, _ = self._run_steps(stacks, count, first)
            sums = add_metrics(sums, metrics)
            if progress is not None:
                progress(count)
        return sums


class BatchStacks:
    """Endless batches in stacks [N, B, ...]; each replica gets its part of the rows."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        make_batches: MakeBatches,
        size: int = _STACK,
    ):
        def make_stacks(context: tf.distribute.InputContext) -> tf.data.Dataset:
            hosts = context.num_input_pipelines
            batches = make_batches(context.input_pipeline_id, hosts).repeat()
            stacks = batches.batch(size, drop_remainder=True)
            replicas = context.num_replicas_in_sync // hosts

            def split(*stack: Any) -> Any:
                parts = [tf.split(t, replicas, 1) for t in tf.nest.flatten(stack)]
                flat = list(map(tf.stack, parts))
                return tf.nest.pack_sequence_as(stacks.element_spec, flat)

            parts = stacks.map(split).unbatch() if replicas > 1 else stacks
            return parts.prefetch(replicas)

        options = tf.distribute.InputOptions(experimental_fetch_to_device=True)
        distribute = strategy.distribute_datasets_from_function
        self._iterator = iter(distribute(make_stacks, options))
        self._size = self._next = size
        self._stack = None

    def take(self, count: int) -> tuple[Any, int, int]:
        """Return a stack and the bounds of its next batches, `count` at most.

        With a count above 0 there is at least one batch.
        """
        if self._next == self._size:
            self._stack = None  # its memory is free before the next one is there
            self._stack, self._next = next(self._iterator), 0
        first = self._next
        self._next = min(first + count, self._size)
        return self._stack, first, self._next


class MultiStepRunner:
    """Runner of many steps in one TensorFlow function, on every replica.

    The function gets a stack of batches, as XLA can read neither batches nor a clock.
    The bounds of its loop are arguments, so that one program runs any number of steps,
    with the same rounding. A step gets this replica's batch and, if `numbered`, its
    number. It is traced once for each number that `stage` returns.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        step: Step,
        numbered: bool = False,
        stage: Callable[[], int] = lambda: 1,
        jit_compile: bool = False,
    ):
        self._strategy, self._numbered = strategy, numbered
        self._step, self._stage = _VectorStep(step), stage
        self.jit_compile = jit_compile
        """True if XLA compiles the function."""
        self._forget_trace()

    def _forget_trace(self) -> None:
        self._traced_stage = self._stage()
        self._one_step = tf.function(self._run_step, autograph=False)
        self._program = tf.function(
            self._many_steps, autograph=False, jit_compile=self.jit_compile or None
        )
        self._is_optimized = False

    def iterate(
        self, make_batches: MakeBatches, count: int | None = None
    ) -> BatchStacks:
        """Return stacks, of `count` batches at most, to be passed to each call."""
        size = _COMPILED_STACK if self.jit_compile else _STACK
        return BatchStacks(self._strategy, make_batches, min(size, count or size))

    def __call__(
        self, stacks: BatchStacks, count: int, first: int = 0
    ) -> tuple[Metrics, float]:
        """Run `count` steps on the next batches, the first of which has a number.

        Returns:
            Metrics summed over steps and replicas as pairs of float64 arrays, and the
            seconds spent waiting for batches.
        """
        if self._stage() != self._traced_stage:
            self._forget_trace()
        sums, waited = {}, 0.0
        while not sums or count:
            begin = time.perf_counter()
            stack, *bounds = stacks.take(count)
            waited += time.perf_counter() - begin
            start, end, number = (tf.constant(n, tf.int64) for n in (*bounds, first))
            if not self._is_optimized:
                # A call without steps optimizes the graph. Memory of the optimization
                # is freed before the first step allocates its own.
                self._program(stack, start, start, number)
                malloc_trim()
                self._is_optimized = True
            vector = self._program(stack, start, end, number).numpy()
            sums = add_metrics(sums, self._step.metrics(vector))
            done = bounds[1] - bounds[0]
            count, first = count - done, first + done
        return sums, waited

    def _many_steps(
        self, stack: Any, first: tf.Tensor, end: tf.Tensor, number: tf.Tensor
    ) -> tf.Tensor:
        """Return the metrics, summed over batches [first, end) of the stack."""
        traced = self._one_step.get_concrete_function(stack, first, number)

        def run(index: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            metrics = self._one_step(stack, index, number + index - first)
            return index + 1, total + tf.cast(metrics, tf.float64)

        zeros = tf.zeros(traced.structured_outputs.shape, tf.float64)
        return tf.while_loop(
            lambda index, _: index < end, run, (first, zeros), parallel_iterations=1
        )[1]

    def _run_step(self, stack: Any, index: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        def step(stack: Any) -> tf.Tensor:
            batch = tf.nest.map_structure(lambda t: tf.gather(t, index), stack)
            return self._step(batch, number) if self._numbered else self._step(batch)

        metrics = self._strategy.run(step, (stack,))
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, metrics, axis=None)


class _VectorStep:
    """Step that returns all metrics as one vector, so that one tensor is exchanged."""

    def __init__(self, step: Step):
        self._step, self._shapes = step, {}

    def __call__(self, *arguments: Any) -> tf.Tensor:
        metrics = tf.nest.map_structure(tf.convert_to_tensor, self._step(*arguments))
        self._shapes = {n: (t.shape, w.shape) for n, (t, w) in metrics.items()}
        tensors = [tensor for pair in metrics.values() for tensor in pair]
        return tf.concat([tf.reshape(tf.cast(t, tf.float32), [-1]) for t in tensors], 0)

    def metrics(self, vector: np.ndarray) -> Metrics:
        """Return the metrics of a vector; the step must have been traced."""
        sizes = [s.num_elements() for pair in self._shapes.values() for s in pair]
        parts = iter(np.split(vector, np.cumsum(sizes)))
        return {
            name: tuple(next(parts).reshape(shape) for shape in shapes)
            for name, shapes in self._shapes.items()
        }


def train_runner(strategy: tf.distribute.Strategy, trainer: Any) -> MultiStepRunner:
    """Return a runner of a trainer's steps; `jit_compile` asks for one program."""

    def step(batch: Any) -> Metrics:
        return trainer.train_step(batch, as_ratios=False)

    is_one_device = isinstance(strategy, tf.distribute.OneDeviceStrategy)
    is_compiled = bool(trainer.jit_compile) and is_one_device
    return MultiStepRunner(
        strategy, step, stage=lambda: trainer.stage, jit_compile=is_compiled
    )


def malloc_trim() -> None:
    """Return freed pages to the system; do nothing if the C library is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
