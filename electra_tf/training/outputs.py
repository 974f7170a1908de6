"""Write what a training loop computes: log lines, warnings and checkpoints."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from electra_tf.errors import InputError
from electra_tf.training.checkpoint import (
    CheckpointManager,
    newest_path,
    training_state,
)
from electra_tf.training.metric_logger import MetricLogger
from electra_tf.training.speed import Metrics, MetricWindow


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
class Outputs:
    """Outputs of a process, which checks values even if it writes none."""

    trainer: Any
    compute_metrics: Callable[[Metrics], dict[str, float]]
    step_flops: float
    chief: ChiefOutputs | None

    def set_status(self, status: str) -> None:
        """Show a status line."""
        if self.chief is not None:
            self.chief.metric_logger.set_status(status)

    def log_training(self, step: int, window: MetricWindow, left: int) -> None:
        """Log the metrics since the last line, and warnings; `left` steps remain."""
        if self.chief is None:
            return
        values = self.compute_metrics(window.metrics)
        # The rate of the update of this step; the others are means over the window.
        values["learning_rate"] = float(self.trainer.optimizer.schedule(step - 1))
        tokens = values.pop("tokens")
        values |= window.speed_metrics(tokens, left, self.step_flops)
        self.chief.metric_logger.train(step, values)
        for warning in self.chief.health(step, values):
            self.chief.metric_logger.log(f"health: {warning}")

    def log_evaluation(self, step: int, metrics: Metrics) -> None:
        """Log the metrics of an evaluation."""
        if self.chief is not None:
            values = self.compute_metrics(metrics)
            self.chief.metric_logger.evaluation(step, values)

    def save(self, step: int, count: int) -> None:
        """Write a checkpoint after `count` more steps, if all weights are finite."""
        weights, slots = training_state(self.trainer)
        # The last update may overflow; its loss was computed before.
        self.check_finite({**weights, **slots}, step - count, step)
        if self.chief is None:
            return
        # A run that resumes from this checkpoint does not log earlier steps again.
        self.chief.metric_logger.sync()
        files, metadata = self.chief.files, self.chief.metadata
        self.chief.checkpoints.save(step, weights, slots, files, metadata)

    def check_finite(self, arrays: Mapping[str, Any], first: int, last: int) -> None:
        """Raise an InputError if any value after step `first` is not finite."""
        not_finite = [n for n, array in arrays.items() if not np.isfinite(array).all()]
        if not not_finite:
            return
        path = self.chief and newest_path(self.chief.checkpoints.folder)
        begin = f" from --init_checkpoint={path}" if path else ""
        raise InputError(
            f"NaN or infinity in {', '.join(not_finite[:3])}, in steps {first + 1:,} "
            f"to {last:,}; the last good checkpoint: {path or 'none yet'}; start a "
            f"new run (--model_dir){begin} with a lower optimizer.learning_rate, more "
            "optimizer.warmup_steps or a smaller optimizer.clip_norm, unless a rerun "
            "of this command does not reproduce it, which points to faulty hardware"
        )
