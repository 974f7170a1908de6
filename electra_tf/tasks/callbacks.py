"""What happens at the end of an epoch: scores, checkpoints, the best weights, stopping.

Keras's callbacks for this forget what they knew when a run dies; this one finds it
again, so that a trial that goes on ends as if it had never been disturbed.
"""

import dataclasses
import math
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

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
    """What of a trial is kept, and when it ends."""

    best: bool
    """The weights of the epoch with the best score, not the last one's."""
    patience: int
    """Epochs without a better score that end it; 0: none do."""


def format_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """What of the scores is for people to read.

    Args:
        scores: By name.

    Returns:
        Without counts (`_total`) and thresholds (`_thresh`).
    """
    return {n: v for n, v in scores.items() if not n.endswith(("_total", "_thresh"))}


class TrialCheckpoint(keras.callbacks.Callback):
    """Measures and saves after each epoch; begins where a dead trial was.

    Args:
        folder: The trial's own.
        measure: From nothing to scores by name.
        monitor: The name of the score that counts; more is better.
        keeping: What is kept.
        say: Gets a line for each epoch.
    """

    def __init__(
        self,
        folder: str,
        measure: Callable[[], Mapping[str, float]],
        monitor: str,
        keeping: SelectionPolicy,
        say: Callable[[str], None],
    ):
        super().__init__()
        self._measure, self._monitor, self._say = measure, monitor, say
        self._keeping = keeping
        places = [os.path.join(folder, name) for name in (CHECKPOINTS, _BEST)]
        self._newest, self._best = (
            CheckpointManager(place, 1, (), 1, remedy="Free space") for place in places
        )
        self._folders = places
        self.history: list[dict[str, float]] = []
        """Scores of each epoch so far."""

    def resume(self, model: keras.Model) -> int:
        """Puts a dead trial's weights, slots and scores back.

        Args:
            model: Compiled, with a built optimizer.

        Returns:
            Epochs that are done.
        """
        self._newest.clean()
        self._best.clean()
        found = self._newest.newest()
        if found is None:
            return 0
        restore(model, found)
        self.history = [dict(scores) for scores in found.metadata["history"]]
        return len(self.history)

    @property
    def is_over(self) -> bool:
        """Whether the scores so far end the trial."""
        patience = self._keeping.patience
        if not patience or len(self.history) <= patience:
            return False
        return len(self.history) - 1 - self._best_epoch() >= patience

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Keras's hook; the scores join its logs.

        Args:
            epoch: Number of the epoch, from 0.
            logs: What Keras measured.
        """
        scores = dict(self._measure())
        self.history.append(scores)
        if logs is not None:
            logs.update(scores)
        told = {**({"loss": logs["loss"]} if logs else {}), **scores}
        words = "  ".join(f"{name} {v:.4g}" for name, v in format_scores(told).items())
        self._say(f"  epoch {epoch + 1}: {words}")
        weights, slots = training_state(self.model)
        step = int_value(self.model.optimizer.iterations)
        details = {"history": self.history}
        if self._keeping.best and self._best_epoch() == epoch:
            self._best.save(step, weights, {}, {}, details)
        self._newest.save(step, weights, slots, {}, details)
        if self.is_over:
            self.model.stop_training = True

    def finish(self, model: keras.Model) -> dict[str, Any]:
        """Puts the weights that are kept into the model.

        Args:
            model: Trained.

        Returns:
            The scores of their epoch.
        """
        if not self._keeping.best:
            return self.history[-1]
        best = self._best.newest()
        assign({v.path: v for v in model.trainable_variables}, best.weights(), "best")
        return self.history[self._best_epoch()]

    def forget(self) -> None:
        """Deletes the checkpoints, which a finished trial needs no more."""
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _best_epoch(self) -> int:
        values = [scores[self._monitor] for scores in self.history]
        return int(np.argmax([v if math.isfinite(v) else -math.inf for v in values]))
