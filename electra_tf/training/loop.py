"""Run training steps, log metrics, evaluate, save checkpoints and stop on signals.

A trainer has `train_step(batch, read=False)`, which returns metrics as pairs, an
`optimizer` and `trainable_variables`.
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

from electra_tf.config.pretraining import TrainingConfig
from electra_tf.errors import InputError
from electra_tf.training.checkpoint import CheckpointManager, steps_of, training_state
from electra_tf.training.metric_logger import MetricLogger
from electra_tf.training.multi_step_runner import MultiStepRunner, add, distribute
from electra_tf.training.worker_sync import WorkerSync

_SECONDS_A_CALL = 2.0  # longest delay of a signal once a step's time is known
_MOST_STEPS_A_CALL = 1000
_SUMS = "sums.safetensors"  # in a checkpoint: metric sums since the last log line

Read = Callable[[Mapping[str, Any]], dict[str, float]]


@dataclasses.dataclass(frozen=True)
class ChiefOutputs:
    """Outputs of the chief, the one process that writes."""

    checkpoints: CheckpointManager
    reports: MetricLogger
    health: Callable[[int, Mapping[str, float]], Iterable[str]]
    """Return warnings about the metrics of a step."""
    metadata: Mapping[str, Any]
    """Metadata of every checkpoint."""
    files: Mapping[str, bytes]
    """More files of every checkpoint, by name."""


@dataclasses.dataclass(frozen=True)
class StepCost:
    """FLOPs of a step and the peak rate of the devices."""

    flops: int
    """FLOPs of a step on all replicas."""
    peak: float
    """Measured FLOP/s of large matmuls on all replicas."""


class TrainingLoop:
    """Training loop from the optimizer's current step to the last one.

    Args:
        trainer: Model with `train_step`, `optimizer` and `trainable_variables`.
        strategy: Strategy with the replicas.
        settings: Number of steps, and steps between logs, evaluations and saves.
        batches: Function of (first batch, host, hosts) that returns an infinite
            dataset of the host's rows.
        read: Function that turns summed metrics into numbers.
        work: Cost of a step, to log FLOP/s.
        evaluate: Function that returns metrics on held-out data, or None.
        writer: Outputs of the chief; None in other processes.
    """

    def __init__(
        self,
        trainer: Any,
        strategy: tf.distribute.Strategy,
        settings: TrainingConfig,
        batches: Callable[[int, int, int], tf.data.Dataset],
        read: Read,
        work: StepCost,
        evaluate: Callable[[], Mapping[str, Any]] | None,
        writer: ChiefOutputs | None,
    ):
        self._trainer, self._strategy, self._settings = trainer, strategy, settings
        self._batches, self._read, self._work = batches, read, work
        self._evaluate, self._writer = evaluate, writer
        self._loop = MultiStepRunner(
            strategy, lambda b: trainer.train_step(b, read=False)
        )
        self._keep = steps_of(settings.keep_at, settings.steps)
        self._signal: int | None = None
        self._workers = WorkerSync(strategy)

    def run(self) -> int:
        """Train until the last step or a signal, then save a checkpoint.

        Returns:
            The signal that ended training, or 0.

        Raises:
            InputError: Loss, gradient or weights are not finite.
        """
        step = int(self._trainer.optimizer.iterations.numpy())
        dataset = distribute(self._strategy, lambda h, n: self._batches(step, h, n))
        iterator = iter(dataset)
        before = {s: signal.signal(s, self._store_signal) for s in _SIGNALS}
        try:
            ended = self._train(iterator, step)
            self._workers.all_gather(
                0
            )  # none leaves before the last checkpoint is there
            return ended
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _train(self, iterator: Any, step: int) -> int:
        window = _MetricWindow(self._stored_sums(step))
        if step < self._settings.steps:
            self._set_status(
                "compiling the train step: a minute or more for large models"
            )
        while step < self._settings.steps:
            count = min(window.steps_a_call, self._next_boundary(step) - step)
            begin = time.perf_counter()
            metrics, waited = self._loop(iterator, count)
            seconds = time.perf_counter() - begin
            broken = [n for n in _FINITE if not np.isfinite(metrics[n][0]).all()]
            self._check_finite(broken, step, step + count)
            step += count
            if window.is_new:
                self._set_status("training")
            stop, seconds = self._sync_workers(seconds)
            window.note(metrics, count, seconds, waited)
            last = step == self._settings.steps
            if step % self._log == 0 or last:
                self._log_metrics(step, window)
                window = window.next_window()
            if self._evaluate and (step % self._test == 0 or last):
                self._run_evaluation(step)
            if step % self._save == 0 or step in self._keep or last or stop:
                self._save_checkpoint(step, count, window)
            if stop:
                return stop
        return 0

    def _next_boundary(self, step: int) -> int:
        """Return the next step at which to log, evaluate or save."""
        ends = [_next(step, every) for every in (self._log, self._save, self._test)]
        ends += [kept for kept in self._keep if kept > step]
        return min(*ends, self._settings.steps)

    @property
    def _log(self) -> int:
        return self._settings.log_every

    @property
    def _save(self) -> int:
        return self._settings.save_every

    @property
    def _test(self) -> int:
        return self._settings.evaluate_every

    def _store_signal(self, number: int, _) -> None:
        """Store a signal; raise KeyboardInterrupt at a second one."""
        if self._signal is not None:
            raise KeyboardInterrupt
        self._signal = number

    def _sync_workers(self, seconds: float) -> tuple[int, float]:
        """Return the signal and the longest time of all workers."""
        signals, times = self._workers.all_gather(self._signal or 0, seconds)
        return int(max(signals)), max(times)

    def _check_finite(self, broken: list[str], first: int, last: int) -> None:
        """Raise an InputError if any value after step `first` is not finite."""
        if not broken:
            return
        newest = self._writer and self._writer.checkpoints.newest()
        good = newest.path if newest else None
        raise InputError(
            "Loss, gradient and weights stay finite",
            f"NaN or infinity in {', '.join(broken[:3])}, in steps {first + 1:,} to "
            f"{last:,}; the last good checkpoint: {good or 'none yet'}",
            "Begin a new --model_dir with a lower optimizer.learning_rate, more "
            "optimizer.warmup_steps or a smaller optimizer.clip_norm"
            + (f", from --init_checkpoint={good}" if good else ""),
        )

    def _log_metrics(self, step: int, window: "_MetricWindow") -> None:
        if self._writer is None:
            return
        values = self._read(window.metrics)
        tokens = values.pop("tokens")
        values |= window.pace(tokens, self._settings.steps - step, self._work)
        self._writer.reports.train(step, values)
        for sentence in self._writer.health(step, values):
            self._writer.reports.log(f"health: {sentence}")

    def _set_status(self, what: str) -> None:
        if self._writer is not None:
            self._writer.reports.set_status(what)

    def _run_evaluation(self, step: int) -> None:
        self._set_status("measuring on held-out records")
        metrics = self._evaluate()
        if self._writer is not None:
            self._writer.reports.evaluation(step, self._read(metrics))

    def _save_checkpoint(self, step: int, count: int, window: "_MetricWindow") -> None:
        weights, slots = training_state(self._trainer)
        # An update can overflow before a later loss shows it.
        values = [*weights.items(), *slots.items()]
        broken = [name for name, array in values if not np.isfinite(array).all()]
        self._check_finite(broken, step - count, step)
        if self._writer is None:
            return
        files = {**self._writer.files}
        if window.metrics:
            files[_SUMS] = _packed(window.metrics)
        self._writer.checkpoints.save(
            step, weights, slots, files, self._writer.metadata
        )

    def _stored_sums(self, step: int) -> dict[str, Any]:
        """Return the metric sums in the checkpoint of this step."""
        stored = self._writer and self._writer.checkpoints.read(step, _SUMS)
        return _unpacked(stored) if stored else {}


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FINITE = ("loss", "gradient_norm")


class _MetricWindow:
    """Metric sums and times since the last log line."""

    def __init__(self, metrics: dict[str, Any], seconds_a_step: float | None = None):
        self.metrics = metrics
        self._steps = self._timed_steps = 0
        self._seconds = self._waited = 0.0
        self._known = seconds_a_step

    @property
    def is_new(self) -> bool:
        """Whether no call has been recorded in this process."""
        return self._known is None

    @property
    def steps_a_call(self) -> int:
        """Steps of the next call: 1 until a step is timed without compiling."""
        if not self._known:
            return 1
        wanted = int(_SECONDS_A_CALL / self._known)
        return max(1, min(_MOST_STEPS_A_CALL, wanted))

    def note(
        self, metrics: dict[str, Any], steps: int, seconds: float, waited: float
    ) -> None:
        """Add a call; the time of the first call is ignored, as it compiles."""
        self.metrics = add(self.metrics, metrics)
        self._steps += steps
        if self._known is None:
            self._known = 0.0
            return
        self._timed_steps += steps
        self._seconds += seconds
        self._waited += waited
        self._known = self._seconds / self._timed_steps

    def pace(self, tokens: float, left: int, work: StepCost) -> dict[str, float]:
        """Return speeds and the time left; NaN if no step was timed."""
        if not self._timed_steps:
            nan = math.nan
            return dict.fromkeys(_PACE, nan)
        a_step = self._seconds / self._timed_steps
        rate = work.flops / a_step
        speeds = (tokens / a_step, rate, rate / work.peak)
        shares = (self._waited / self._seconds, a_step * left)
        return dict(zip(_PACE, (*speeds, *shares), strict=True))

    def next_window(self) -> "_MetricWindow":
        """Return an empty window with the known time of a step."""
        return _MetricWindow({}, self._known)


_PACE = (
    "tokens_per_second",
    "flops_per_second",
    "share_of_peak",
    "input_share",
    "seconds_left",
)


def _packed(metrics: Mapping[str, Any]) -> bytes:
    pairs = {
        name: dict(zip(_PAIR, pair, strict=True)) for name, pair in metrics.items()
    }
    return safetensors.numpy.save(
        {
            f"{name}/{part}": np.asarray(values, np.float64)
            for name, pair in pairs.items()
            for part, values in pair.items()
        }
    )


def _unpacked(data: bytes) -> dict[str, Any]:
    arrays = safetensors.numpy.load(data)
    names = sorted({name.rpartition("/")[0] for name in arrays})
    return {name: tuple(arrays[f"{name}/{part}"] for part in _PAIR) for name in names}


_PAIR = ("total", "weight")


def _next(step: int, every: int) -> int:
    return (step // every + 1) * every
