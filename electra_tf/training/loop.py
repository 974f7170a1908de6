"""Run training steps, log metrics, evaluate, save checkpoints and stop on signals.

`TrainingLoop._train` is the loop. It calls the trainer's `train_step`, many times for
each iteration, through `MultiStepRunner`. A trainer has `trainable_variables`, an
`optimizer` and `train_step(batch, as_ratios=False)`, which returns metrics as pairs of
(total, weight). `begin(step)` is called before the first step and before each step of
`stage_starts`, where `stage` and with it the train step change.
"""

import dataclasses
import math
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import safetensors.numpy
import tensorflow as tf

from electra_tf.config.pretraining import InputConfig, TrainingConfig
from electra_tf.errors import InputError
from electra_tf.training.checkpoint import (
    CheckpointManager,
    steps_at_shares,
    training_state,
)
from electra_tf.training.metric_logger import MetricLogger
from electra_tf.training.multi_step_runner import (
    MultiStepRunner,
    add_metrics,
    distribute,
)
from electra_tf.training.watchdog import NoWatchdog, Watchdog
from electra_tf.training.worker_sync import WorkerSync

_SECONDS_PER_CALL = 2.0  # steps run in calls of this duration, which delays signals
_MAX_STEPS_PER_CALL = 1000
_INPUT, _NO_WATCHDOG = InputConfig(), NoWatchdog()
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_MUST_BE_FINITE = ("loss", "gradient_norm")
_SUMS = "sums.safetensors"  # in a checkpoint: metric sums since the last log line
_SPEED_METRICS = (
    "tokens_per_second",
    "flops_per_second",
    "share_of_peak",
    "input_share",
    "seconds_left",
)

ComputeMetrics = Callable[[Mapping[str, Any]], dict[str, float]]


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


@dataclasses.dataclass(frozen=True)
class StepCost:
    """FLOPs of a step and the peak speed of the devices."""

    flops: float
    """FLOPs of a step of `batch_size` rows on all replicas."""
    peak: float
    """Measured FLOP/s of large matmuls on all replicas."""


class TrainingLoop:
    """Training loop from the optimizer's current step to the last one."""

    def __init__(
        self,
        trainer: Any,
        strategy: tf.distribute.Strategy,
        settings: TrainingConfig,
        make_batches: Callable[[int, int, int], tf.data.Dataset],
        compute_metrics: ComputeMetrics,
        step_cost: StepCost,
        evaluate: Callable[[], Mapping[str, Any]] | None,
        outputs: ChiefOutputs | None,
        input_settings: InputConfig = _INPUT,
        watchdog: Watchdog | NoWatchdog = _NO_WATCHDOG,
    ):
        self._trainer, self._strategy, self._settings = trainer, strategy, settings
        self._make_batches, self._compute_metrics = make_batches, compute_metrics
        self._step_cost, self._evaluate, self._outputs = step_cost, evaluate, outputs
        self._run_steps = MultiStepRunner(
            strategy,
            lambda batch: trainer.train_step(batch, as_ratios=False),
            stage=lambda: trainer.stage,
        )
        self._input, self._watchdog = input_settings, watchdog
        self._keep_steps = steps_at_shares(settings.keep_at, settings.steps)
        self._signal: int | None = None
        self._workers = WorkerSync(strategy)

    def run(self) -> int:
        """Train until the last step or a signal, then save a checkpoint.

        Returns:
            The signal that ended training, or 0.
        """
        step = int(self._trainer.optimizer.iterations.numpy())
        self._trainer.begin(step)
        iterator = self._iterator(step)
        old_handlers = {s: signal.signal(s, self._store_signal) for s in _SIGNALS}
        try:
            stop_signal = self._train(iterator, step)
            # No worker exits before the chief has written the last checkpoint.
            with self._watchdog.expect("the end of training"):
                self._workers.all_gather(0)
            return stop_signal
        finally:
            for number, handler in old_handlers.items():
                signal.signal(number, handler)

    def _iterator(self, step: int) -> Any:
        """Return an iterator of the batches from the next step on."""
        return iter(
            distribute(
                self._strategy,
                lambda host, hosts: self._make_batches(step, host, hosts),
            )
        )

    def _train(self, iterator: Any, step: int) -> int:
        settings = self._settings
        window = _MetricWindow(self._read_metric_sums(step))
        if step < settings.steps:
            self._set_status(
                "compiling the train step: a minute or more for large models"
            )
        while step < settings.steps:
            # Call `train_step` `count` times, on the next batches.
            count = min(window.steps_per_call, self._next_boundary(step) - step)
            steps = f"steps {step + 1:,} to {step + count:,}"
            with self._watchdog.expect(steps, window.usual_seconds(count)):
                begin = time.perf_counter()
                metrics, waited = self._run_steps(iterator, count)
                seconds = time.perf_counter() - begin
                self._check_finite(_not_finite(metrics), step, step + count)
                step += count
                stop_signal, seconds = self._sync_workers(seconds)
            if window.is_new:
                self._set_status("training")
            window.add(metrics, count, seconds, waited)
            is_last = step == settings.steps
            is_boundary = is_last or step in self._phase_starts
            if step % settings.log_every == 0 or is_boundary:
                self._log_metrics(step, window)
                window = window.next_window()
            if is_boundary and not is_last:
                iterator = self._begin_phase(step, iterator)
                window = _MetricWindow({})  # the next call compiles
            if self._evaluate and (step % settings.evaluate_every == 0 or is_last):
                self._run_evaluation(step)
            is_save = step % settings.save_every == 0 or step in self._keep_steps
            if is_save or is_boundary or stop_signal:
                self._save_checkpoint(step, count, window)
                window.others_wait()
            if stop_signal:
                return stop_signal
        return 0

    @property
    def _phase_starts(self) -> set[int]:
        """Steps after which the train step or the size of its batches changes."""
        return {*self._trainer.stage_starts, *self._input.phase_starts}

    def _begin_phase(self, step: int, iterator: Any) -> Any:
        """Return the iterator of the batches from the next step on."""
        if step in self._trainer.stage_starts:
            self._trainer.begin(step)
        return self._iterator(step) if step in self._input.phase_starts else iterator

    def _next_boundary(self, step: int) -> int:
        """Return the next step at which to log, evaluate or save."""
        settings = self._settings
        periods = (settings.log_every, settings.save_every, settings.evaluate_every)
        boundaries = [(step // period + 1) * period for period in periods]
        single = {*self._keep_steps, *self._phase_starts}
        boundaries += [number for number in single if number > step]
        return min(*boundaries, settings.steps)

    def _store_signal(self, number: int, _) -> None:
        """Store a signal; raise KeyboardInterrupt at a second one."""
        if self._signal is not None:
            raise KeyboardInterrupt
        self._signal = number

    def _sync_workers(self, seconds: float) -> tuple[int, float]:
        """Return the signal and the longest time of all workers."""
        signals, times = self._workers.all_gather(self._signal or 0, seconds)
        return int(max(signals)), max(times)

    def _check_finite(self, not_finite: list[str], first: int, last: int) -> None:
        """Raise an InputError if any value after step `first` is not finite."""
        if not not_finite:
            return
        newest = self._outputs and self._outputs.checkpoints.newest()
        path = newest.path if newest else None
        raise InputError(
            "Loss, gradient and weights must be finite",
            f"NaN or infinity in {', '.join(not_finite[:3])}, in steps {first + 1:,} "
            f"to {last:,}; the last good checkpoint: {path or 'none yet'}",
            "Start a new run (--model_dir) with a lower optimizer.learning_rate, more "
            "optimizer.warmup_steps or a smaller optimizer.clip_norm"
            + (f", from --init_checkpoint={path}" if path else "")
            + ". A rerun of the same command that does not reproduce this points to "
            "faulty hardware",
        )

    def _log_metrics(self, step: int, window: "_MetricWindow") -> None:
        if self._outputs is None:
            return
        values = self._compute_metrics(window.metrics)
        tokens = values.pop("tokens")
        # Steps of the current batch size that would have all rows that are left.
        rows, last = self._input.rows_at(step - 1), self._settings.steps
        left = self._input.rows_until(last) - self._input.rows_until(step)
        share = rows / self._input.batch_size
        cost = StepCost(self._step_cost.flops * share, self._step_cost.peak)
        values |= window.speed_metrics(tokens, left / rows, cost)
        self._outputs.metric_logger.train(step, values)
        for warning in self._outputs.health(step, values):
            self._outputs.metric_logger.log(f"health: {warning}")

    def _set_status(self, status: str) -> None:
        if self._outputs is not None:
            self._outputs.metric_logger.set_status(status)

    def _run_evaluation(self, step: int) -> None:
        self._set_status("evaluating on held-out records")
        with self._watchdog.expect("an evaluation"):
            metrics = self._evaluate()
        if self._outputs is not None:
            values = self._compute_metrics(metrics)
            self._outputs.metric_logger.evaluation(step, values)

    def _save_checkpoint(self, step: int, count: int, window: "_MetricWindow") -> None:
        weights, slots = training_state(self._trainer)
        # The last update may overflow; its loss was computed before.
        arrays = [*weights.items(), *slots.items()]
        not_finite = [name for name, array in arrays if not np.isfinite(array).all()]
        self._check_finite(not_finite, step - count, step)
        if self._outputs is None:
            return
        files = {**self._outputs.files}
        if window.metrics:
            files[_SUMS] = _serialize_sums(window.metrics)
        # A run that resumes from this checkpoint does not log earlier steps again.
        self._outputs.metric_logger.sync()
        self._outputs.checkpoints.save(
            step, weights, slots, files, self._outputs.metadata
        )

    def _read_metric_sums(self, step: int) -> dict[str, Any]:
        """Return the metric sums in the checkpoint of this step."""
        data = self._outputs and self._outputs.checkpoints.read(step, _SUMS)
        return _parse_sums(data) if data else {}


class _MetricWindow:
    """Metric sums and times since the last log line."""

    def __init__(self, metrics: dict[str, Any], seconds_per_step: float | None = None):
        self.metrics = metrics
        self._timed_steps = 0
        self._seconds = self._waited = 0.0
        # None before the first call; 0 until a call is timed.
        self._seconds_per_step = seconds_per_step
        self._is_after_save = False

    def usual_seconds(self, steps: int) -> float | None:
        """Return the usual duration of some steps; None: unknown."""
        if not self._seconds_per_step or self._is_after_save:
            return None
        return steps * self._seconds_per_step

    def others_wait(self) -> None:
        """Note that the other workers begin the next steps while the chief saves."""
        self._is_after_save = True

    @property
    def is_new(self) -> bool:
        """Whether no call has been recorded in this process."""
        return self._seconds_per_step is None

    @property
    def steps_per_call(self) -> int:
        """Steps of the next call: 1 until a step is timed without compiling."""
        if not self._seconds_per_step:
            return 1
        steps = int(_SECONDS_PER_CALL / self._seconds_per_step)
        return max(1, min(_MAX_STEPS_PER_CALL, steps))

    def add(
        self, metrics: dict[str, Any], steps: int, seconds: float, waited: float
    ) -> None:
        """Add a call; the time of the first call is ignored, as it compiles."""
        self.metrics = add_metrics(self.metrics, metrics)
        self._is_after_save = False
        if self._seconds_per_step is None:
            self._seconds_per_step = 0.0
            return
        self._timed_steps += steps
        self._seconds += seconds
        self._waited += waited
        self._seconds_per_step = self._seconds / self._timed_steps

    def speed_metrics(
        self, tokens: float, steps_left: float, step_cost: StepCost
    ) -> dict[str, float]:
        """Return speeds and the time left; NaN if no step was timed."""
        if not self._timed_steps:
            return dict.fromkeys(_SPEED_METRICS, math.nan)
        seconds_per_step = self._seconds / self._timed_steps
        flops_per_second = step_cost.flops / seconds_per_step
        values = (
            tokens / seconds_per_step,
            flops_per_second,
            flops_per_second / step_cost.peak,
            self._waited / self._seconds,
            seconds_per_step * steps_left,
        )
        return dict(zip(_SPEED_METRICS, values, strict=True))

    def next_window(self) -> "_MetricWindow":
        """Return an empty window with the time of a step."""
        return _MetricWindow({}, self._seconds_per_step)


def _not_finite(metrics: Mapping[str, Any]) -> list[str]:
    return [name for name in _MUST_BE_FINITE if not np.isfinite(metrics[name][0]).all()]


def _serialize_sums(metrics: Mapping[str, Any]) -> bytes:
    arrays = {}
    for name, (total, weight) in metrics.items():
        arrays[f"{name}/total"] = np.asarray(total, np.float64)
        arrays[f"{name}/weight"] = np.asarray(weight, np.float64)
    return safetensors.numpy.save(arrays)


def _parse_sums(data: bytes) -> dict[str, Any]:
    arrays = safetensors.numpy.load(data)
    names = sorted({name.rpartition("/")[0] for name in arrays})
    return {name: (arrays[f"{name}/total"], arrays[f"{name}/weight"]) for name in names}
