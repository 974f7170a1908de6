"""Callback of a trial: checkpoints that resume it, and a stop at a loss of NaN."""

import math
import os
import shutil
from collections.abc import Callable, Iterable, Mapping

import keras
import numpy as np

from electra_tf.config.finetuning import FitConfig
from electra_tf.errors import InputError
from electra_tf.tasks.optimizer import int_value
from electra_tf.training.checkpoint import (
    CHECKPOINTS,
    CheckpointManager,
    assign,
    restore,
    training_state,
)

_LOSSES = 200  # values of the loss that a trial stores
_BEST = "best"


def shown_scores(scores: Iterable[str]) -> list[str]:
    """Return the names of the scores to print, without thresholds."""
    return [name for name in scores if not name.endswith(("_total", "_thresh"))]


def format_scores(scores: Mapping[str, float], form: str) -> str:
    """Return the names and values of the scores to print."""
    return "  ".join(f"{name} {scores[name]:{form}}" for name in shown_scores(scores))


class TrialCheckpoint(keras.callbacks.Callback):
    """Callback that evaluates and saves after each epoch, and resumes a trial."""

    def __init__(
        self,
        folder: str,
        evaluate: Callable[[], Mapping[str, float]],
        monitor: str,
        settings: FitConfig,
        log: Callable[[str], None],
    ):
        super().__init__()
        self._evaluate, self._monitor, self._log = evaluate, monitor, log
        self._keeps_best = settings.keep == "best"
        self._patience = settings.early_stopping
        self._folders = [os.path.join(folder, name) for name in (CHECKPOINTS, _BEST)]
        self._newest, self._best = (
            CheckpointManager(path, remedy="Free space") for path in self._folders
        )
        self.history: list[dict[str, float]] = []
        """Scores of each epoch so far."""
        self.losses: list[tuple[int, float]] = []
        """Steps, and the mean loss since the one before."""

    def resume(self, model: keras.Model) -> int:
        """Restore an interrupted trial, and return its number of finished epochs."""
        for line in (*self._newest.clean(), *self._best.clean()):
            self._log(line)
        checkpoint = self._newest.newest()
        if checkpoint is None:
            return 0
        restore(model, checkpoint)
        self.history = [dict(scores) for scores in checkpoint.metadata["history"]]
        self.losses = [tuple(pair) for pair in checkpoint.metadata.get("losses", ())]
        return len(self.history)

    @property
    def is_over(self) -> bool:
        """Return whether early stopping ends the trial."""
        if not self._patience or len(self.history) <= self._patience:
            return False
        return len(self.history) - 1 - self._best_epoch() >= self._patience

    def on_epoch_begin(
        self, epoch: int, logs: Mapping[str, float] | None = None
    ) -> None:
        """Begin a new mean of the loss."""
        self._sums = 0.0, 0.0

    def on_train_batch_end(
        self, batch: int, logs: Mapping[str, float] | None = None
    ) -> None:
        """Check that the loss is finite, and store its mean over the last batches."""
        if logs and not math.isfinite(logs["loss"]):
            raise InputError(
                f"The loss of fine-tuning is {logs['loss']} in batch {batch + 1} of an "
                "epoch: lower optimizer.learning_rate or optimizer.clip_norm, and run "
                "the same command with another --output"
            )
        steps, epoch = self.params["steps"], len(self.history)
        interval = max(1, steps * self.params["epochs"] // _LOSSES)
        if (batch + 1) % interval and batch + 1 < steps:
            return
        mean = self.model.metrics[0]
        sums = float(mean.total), float(mean.count)
        total, weight = (now - then for now, then in zip(sums, self._sums, strict=True))
        self._sums = sums
        if weight:
            self.losses.append((epoch * steps + batch + 1, total / weight))

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Evaluate, add the scores to Keras's logs, and save."""
        scores = dict(self._evaluate())
        self.history.append(scores)
        if logs is not None:
            logs.update(scores)
        values = {**({"loss": logs["loss"]} if logs else {}), **scores}
        self._log(f"  epoch {epoch + 1}: {format_scores(values, '.4g')}")
        weights, slots = training_state(self.model)
        step = int_value(self.model.optimizer.iterations)
        metadata = {"history": self.history, "losses": self.losses}
        if self._keeps_best and self._best_epoch() == epoch:
            self._best.save(step, weights, {}, {}, metadata)
        self._newest.save(step, weights, slots, {}, metadata)
        if self.is_over:
            self.model.stop_training = True

    def finish(self, model: keras.Model) -> None:
        """Load the selected weights into the model."""
        if self._keeps_best:
            weights = self._best.newest().weights()
            assign({v.path: v for v in model.trainable_variables}, weights, _BEST)

    def delete(self) -> None:
        """Delete the checkpoints of a finished trial."""
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _best_epoch(self) -> int:
        values = [scores[self._monitor] for scores in self.history]
        return int(np.argmax([v if math.isfinite(v) else -math.inf for v in values]))
