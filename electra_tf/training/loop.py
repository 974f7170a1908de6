"""Run training steps, log metrics, evaluate, save checkpoints and stop on signals.

A trainer has `trainable_variables`, an `optimizer`
and `train_step(batch, as_ratios=False)`, which returns metrics as pairs of (total,
weight). `stages` are the last steps of its stages. `begin(step)` is called before the
first step and between two stages; it changes `stage`, and with it the train step.
"""

import contextlib
import dataclasses
import functools
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from electra_tf.training.speed import Metrics, MetricWindow
from electra_tf.training.steps import iterate, train_runner
from electra_tf.training.watchdog import no_limit
from electra_tf.training.workers import WorkerSync

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_MUST_BE_FINITE = ("loss", "gradient_norm")


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
    """Function of the first batch, the host and the number of hosts."""
    compute_metrics: Callable[[Metrics], dict[str, float]]
    step_flops: float
    evaluate: Callable[[], Metrics] | None
    outputs: ChiefOutputs | None
    expect: Callable[..., contextlib.AbstractContextManager] = no_limit
    """Limit of the duration of a block: `Watchdog.expect`."""

    def __post_init__(self):
        settings = self.config.training
        self._keep_steps = steps_at_shares(settings.keep_at, settings.steps)
        self._workers = WorkerSync(self.strategy)
        self._signal = self._stop_signal = 0
        self._window = MetricWindow()

    def run(self) -> int:
        """Train until the last step or a signal, then save a checkpoint.

        Return the signal that ended training, or 0.
        """
        step = int(self.trainer.optimizer.iterations.numpy())
        self.trainer.begin(step)
        old_handlers = {s: signal.signal(s, self._store_signal) for s in _SIGNALS}
        try:
            self._train(step)
            # No worker exits before the chief has written the last checkpoint.
            with self.expect():
                self._workers.all_gather(0)
            return self._stop_signal
        finally:
            for number, handler in old_handlers.items():
                signal.signal(number, handler)

    def _train(self, first: int) -> None:
        settings = self.config.training
        for step, count in self._steps(first, settings.steps):
            is_last = step == settings.steps
            is_boundary = is_last or step in self.trainer.stages
            if step % settings.log_every == 0 or is_boundary:
                self._log_metrics(step)
            if is_boundary and not is_last:
                self.trainer.begin(step)
                self._window = MetricWindow()  # the next call compiles
            if self.evaluate and (step % settings.evaluate_every == 0 or is_last):
                self._run_evaluation(step)
            is_save = step % settings.save_every == 0 or step in self._keep_steps
            if is_save or is_boundary or self._stop_signal:
                self._save_checkpoint(step, count)
                self._window.is_after_save = True

    def _steps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Run steps in calls; yield the last step of each and the number of its steps.

        It ends after the call in which a worker has got a signal.
        """
        run_steps = train_runner(self.strategy, self.trainer)
        make_batches = functools.partial(self.make_batches, first)
        iterator, step = iterate(self.strategy, make_batches), first
        while step < last and not self._stop_signal:
            if self._window.is_new:
                self._set_status("compiling the train step: minutes for large models")
            count = min(self._window.steps_per_call, self._next_boundary(step) - step)
            with self.expect(self._window.usual_seconds(count)):
                begin = time.perf_counter()
                metrics, waited = run_steps(iterator, count)
                seconds = time.perf_counter() - begin
                totals = {name: metrics[name][0] for name in _MUST_BE_FINITE}
                self._check_finite(totals, step, step + count)
                step += count
                signals, times = self._workers.all_gather(self._signal, seconds)
            self._stop_signal = int(max(signals))
            if self._window.is_new:
                self._set_status("training")
            self._window.add(metrics, count, max(times), waited)
            yield step, count

    def _next_boundary(self, step: int) -> int:
        """Return the next step at which to log, evaluate or save."""
        settings = self.config.training
        periods = (settings.log_every, settings.save_every, settings.evaluate_every)
        boundaries = [(step // period + 1) * period for period in periods]
        single = {*self._keep_steps, *self.trainer.stages}
        boundaries += [number for number in single if number > step]
        return min(*boundaries, settings.steps)

    def _store_signal(self, number: int, _) -> None:
        """Store a signal; raise KeyboardInterrupt at a second one."""
        if self._signal:
            raise KeyboardInterrupt
        self._signal = number

    def _check_finite(self, arrays: Mapping[str, Any], first: int, last: int) -> None:
        """Raise an InputError if any value after step `first` is not finite."""
        not_finite = [n for n, array in arrays.items() if not np.isfinite(array).all()]
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

    def _log_metrics(self, step: int) -> None:
        window, self._window = self._window, self._window.next_window()
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
        self._check_finite({**weights, **slots}, step - count, step)
        if self.outputs is None:
            return
        # A run that resumes from this checkpoint does not log earlier steps again.
        self.outputs.metric_logger.sync()
        files, metadata = self.outputs.files, self.outputs.metadata
        self.outputs.checkpoints.save(step, weights, slots, files, metadata)
