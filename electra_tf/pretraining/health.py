"""Warn about two problems of a run, from its logged training metrics.

The rules must not warn about a healthy run:

* At first the discriminator predicts "original" for every token, because few tokens are
  replaced. A collapse is reported only after the warm-up, 2,000 steps and 5% of
  training, and not while the AUC, which improves first, shows learning.
* The masked-LM loss is flat when the model has learned only word frequencies, and at
  the end of training. A stall is reported only after many steps, and only while the
  predictions are hardly better than guessing: always predicting the most frequent token
  gives an accuracy of about 5% on most text.
* Single logs are noisy, so several logs in a row must show a problem, and falls of the
  loss are computed on means of ten logs.
"""

import collections
import math
from collections.abc import Collection, Mapping

# A recall below this predicts "original" for every token. Token frequencies alone give
# an AUC of more than 0.5; above this one the discriminator is learning.
COLLAPSE_RECALL, COLLAPSE_AUC = 0.005, 0.7
COLLAPSE_LOGS = 5  # in a row
GRACE_STEPS, GRACE_SHARE = 2000, 0.05  # without a collapse: steps, share of training
STALL_STEPS, STALL_SHARE = 5000, 0.05  # of a stall, at least, after the warm-up
STALL_GAIN = 0.01  # relative fall of the loss below which it stalls
STALL_LOGS = 3  # in a row
# Predictions are hardly better than guessing below this accuracy, or above this share
# of log(vocabulary size).
GUESSING_ACCURACY, GUESSING_LOSS = 0.1, 0.95
AVERAGE_LOGS = 10

_REMEDY = "Lower optimizer.learning_rate or raise optimizer.warmup_steps"


class HealthCheck:
    """Check of a run's logs that warns once about each problem.

    Its state depends only on the logs passed to `check`. A resumed run restores the
    state by passing the `train` lines of metrics.jsonl again.
    """

    def __init__(
        self,
        steps: int,
        warmup_steps: int,
        vocabulary_size: int,
        free: Collection[str] = (),
        discriminator_from: int = 0,
    ):
        self._collapse_from = discriminator_from + max(
            warmup_steps, GRACE_STEPS, GRACE_SHARE * steps
        )
        self._stall_steps = max(STALL_STEPS, STALL_SHARE * steps)
        self._gained_at = warmup_steps
        self._guessing_loss = math.log(vocabulary_size)
        self._checks_masked_lm = "masked_lm_loss" not in free
        self._logs: collections.deque = collections.deque(maxlen=AVERAGE_LOGS)
        self._gained = math.inf
        self._collapses = self._stalls = 0

    def check(self, step: int, values: Mapping[str, float]) -> list[str]:
        """Return evidence and remedy for each problem that a log begins.

        A problem is reported again only after it has ended.
        """
        texts = [self._collapse(step, values), self._stall(step, values)]
        return [text for text in texts if text is not None]

    def _collapse(self, step: int, values: Mapping[str, float]) -> str | None:
        names = "disc_recall", "disc_accuracy", "disc_auc"
        recall, accuracy, auc = (_get(values, name) for name in names)
        if math.isnan(recall) or step <= self._collapse_from:
            return None
        is_collapse = recall < COLLAPSE_RECALL and not auc > COLLAPSE_AUC
        self._collapses = self._collapses + 1 if is_collapse else 0
        if self._collapses != COLLAPSE_LOGS:
            return None
        return (
            f"At step {step:,} the discriminator predicts 'original' for every token: "
            f"disc_recall {recall:.2%}, disc_accuracy {accuracy:.1%}, disc_auc "
            f"{auc:.2f}, and similar values in the {COLLAPSE_LOGS - 1} logs before. "
            f"{_REMEDY}, and check that objective.discriminator_weight is not small "
            "(50 in the paper). A smaller model.generator_width makes replaced tokens "
            "easier to detect."
        )

    def _stall(self, step: int, values: Mapping[str, float]) -> str | None:
        log = _get(values, "masked_lm_loss"), _get(values, "masked_lm_accuracy")
        if not self._checks_masked_lm or math.isnan(log[0]):
            return None
        self._logs.append(log)
        if len(self._logs) < AVERAGE_LOGS:
            return None
        loss, accuracy = (
            sum(of) / AVERAGE_LOGS for of in zip(*self._logs, strict=True)
        )
        if loss < (1 - STALL_GAIN) * self._gained:
            self._gained, self._gained_at = loss, max(step, self._gained_at)
        is_guessing = (
            accuracy < GUESSING_ACCURACY or loss > GUESSING_LOSS * self._guessing_loss
        )
        is_stall = is_guessing and step - self._gained_at >= self._stall_steps
        self._stalls = self._stalls + 1 if is_stall else 0
        if self._stalls != STALL_LOGS:
            return None
        has_main = "disc_loss" in values or "main_lm_loss" in values
        return (
            f"The {'generator' if has_main else 'model'} has stopped learning: "
            f"masked_lm_loss is {loss:.2f} at step {step:,} (random guessing gives "
            f"{self._guessing_loss:.2f}) and has not fallen by {STALL_GAIN:.0%} since "
            f"step {self._gained_at:,}; masked_lm_accuracy is {accuracy:.1%}, hardly "
            f"more than for always predicting the most frequent token. {_REMEDY}, try "
            "a larger input.batch_size, and check that the records contain meaningful "
            "text."
        )


def _get(values: Mapping[str, float], name: str) -> float:
    """Return a number, or NaN if it is missing or not finite."""
    value = values.get(name, math.nan)
    return value if math.isfinite(value) else math.nan
