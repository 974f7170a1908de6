"""Evaluate, checkpoint, select the best weights and stop early, resumably.

Keras's own callbacks lose their state when a run is killed. This one stores it, so a
resumed trial gives the same result as an uninterrupted one.
"""

import dataclasses
import math
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from electra_tf.errors import InputError
from electra_tf.tasks.optimizer import int_value
from electra_tf.training.checkpoint import (
    CHECKPOINTS,
    CheckpointManager,
    assign,
    restore,
    training_state,
)

_BEST = "best"


@dataclasses.dataclass(frozen=True)
class SelectionPolicy:
    """Selection of the epoch whose weights are used, and early stopping."""

    best: bool
    """Use the weights of the epoch with the best score, not of the last epoch."""
    patience: int
    """Epochs without a better score after which to stop; 0: never."""


def format_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the scores to print, without counts and thresholds."""
    return {n: v for n, v in scores.items() if not n.endswith(("_total", "_thresh"))}


class StopOnNonFiniteLoss(keras.callbacks.Callback):
    """Callback that raises an `InputError` when the loss is not finite."""

    def on_train_batch_end(
        self, batch: int, logs: Mapping[str, float] | None = None
    ) -> None:
        """Validate the mean loss of the epoch so far."""
        if logs and not math.isfinite(logs["loss"]):
            raise InputError(
                "The loss of fine-tuning must be finite",
                f"{logs['loss']} in batch {batch + 1} of an epoch",
                "Lower optimizer.learning_rate or optimizer.clip_norm, and run the "
                "same command with another --output. A rerun that does not reproduce "
                "this points to faulty hardware",
            )


class TrialCheckpoint(keras.callbacks.Callback):
    """Callback that evaluates and saves after each epoch, and resumes a trial."""

    def __init__(
        self,
        folder: str,
        evaluate: Callable[[], Mapping[str, float]],
        monitor: str,
        policy: SelectionPolicy,
        log: Callable[[str], None],
    ):
        super().__init__()
        self._evaluate, self._monitor, self._log = evaluate, monitor, log
        self._policy = policy
        self._folders = [os.path.join(folder, name) for name in (CHECKPOINTS, _BEST)]
        self._newest, self._best = (
            CheckpointManager(path, remedy="Free space") for path in self._folders
        )
        self.history: list[dict[str, float]] = []
        """Scores of each epoch so far."""

    def resume(self, model: keras.Model) -> int:
        """Restore weights, optimizer slots and scores of an interrupted trial."""
        for line in (*self._newest.clean(), *self._best.clean()):
            self._log(line)
        checkpoint = self._newest.newest()
        if checkpoint is None:
            return 0
        restore(model, checkpoint)
        self.history = [dict(scores) for scores in checkpoint.metadata["history"]]
        return len(self.history)

    @property
    def is_over(self) -> bool:
        """Return whether early stopping ends the trial."""
        patience = self._policy.patience
        if not patience or len(self.history) <= patience:
            return False
        return len(self.history) - 1 - self._best_epoch() >= patience

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Evaluate, add the scores to Keras's logs, and save."""
        scores = dict(self._evaluate())
        self.history.append(scores)
        if logs is not None:
            logs.update(scores)
        values = {**({"loss": logs["loss"]} if logs else {}), **scores}
        text = "  ".join(f"{name} {v:.4g}" for name, v in format_scores(values).items())
        self._log(f"  epoch {epoch + 1}: {text}")
        weights, slots = training_state(self.model)
        step = int_value(self.model.optimizer.iterations)
        metadata = {"history": self.history}
        if self._policy.best and self._best_epoch() == epoch:
            self._best.save(step, weights, {}, {}, metadata)
        self._newest.save(step, weights, slots, {}, metadata)
        if self.is_over:
            self.model.stop_training = True

    def finish(self, model: keras.Model) -> dict[str, Any]:
        """Load the selected weights into the model."""
        if not self._policy.best:
            return self.history[-1]
        best = self._best.newest()
        assign({v.path: v for v in model.trainable_variables}, best.weights(), "best")
        return self.history[self._best_epoch()]

    def delete(self) -> None:
        """Delete the checkpoints of a finished trial."""
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _best_epoch(self) -> int:
        values = [scores[self._monitor] for scores in self.history]
        return int(np.argmax([v if math.isfinite(v) else -math.inf for v in values]))
