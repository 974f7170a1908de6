"""Warn about problems of a run, from its logged training metrics.

The rules must not warn about a healthy run:

* At first the discriminator predicts "original" for every token, because few tokens are
  replaced. A collapse is reported only after the warm-up, 2,000 steps and 5% of
  training, and not while the AUC, which improves first, shows learning.
* The masked-LM loss is flat when the model has learned only word frequencies, and at
  the end of training. A stall is reported only after many steps, and only while the
  predictions are hardly better than guessing: always predicting the most frequent token
  gives an accuracy of about 5% on most text.
* Single logs are noisy. Rises are computed on moving averages, and each condition must
  hold in several logs in a row.
* Single large gradients are clipped and do no harm; a norm that stays at a multiple of
  its average does.
"""

import math
from collections.abc import Collection, Mapping

# A recall below this predicts "original" for every token, one above 1 minus this
# "replaced", if the accuracy is below 0.5. Token frequencies alone give an AUC of more
# than 0.5; above this one the discriminator is learning.
COLLAPSE_RECALL, COLLAPSE_AUC = 0.005, 0.7
GRACE_STEPS, GRACE_SHARE = 2000, 0.05  # without a collapse: steps, share of training
STALL_STEPS, STALL_SHARE = 5000, 0.05  # of a stall, at least, after the warm-up
STALL_GAIN = 0.01  # relative fall of the loss below which it stalls
# Predictions are hardly better than guessing below this accuracy, or above this share
# of log(vocabulary size).
GUESSING_ACCURACY, GUESSING_LOSS = 0.1, 0.95
# Ratios of an average to its minimum that are reported. The discriminator's part of the
# loss is noisier than the masked-LM loss.
MASKED_LM_RISE, LOSS_RISE = 1.1, 1.2
GRADIENT_RISE = 20.0  # ratio of the gradient norm to its geometric average
INPUT_SHARE = 0.2  # of the time, spent waiting for input
# An average weights the newest log by 1 / AVERAGE_LOGS, or by the log's steps relative
# to AVERAGE_SHARE of training if that is less.
AVERAGE_LOGS, AVERAGE_SHARE = 10, 0.01
# Consecutive logs that start or end a problem.
_COLLAPSE_LOGS = 5
_LOGS = {
    **dict.fromkeys(("all original", "all replaced"), _COLLAPSE_LOGS),
    **dict.fromkeys(("stalled", "masked-LM rising", "rising", "exploding"), 3),
    "input-bound": 3,
}

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
        self._free = frozenset(free)
        self._collapse_from = discriminator_from + max(
            warmup_steps, GRACE_STEPS, GRACE_SHARE * steps
        )
        self._stall_steps = max(STALL_STEPS, STALL_SHARE * steps)
        self._warmup_steps = warmup_steps
        self._guessing_loss = math.log(vocabulary_size)
        span = AVERAGE_SHARE * steps
        self._loss, self._masked_lm = _Average(span), _Average(span)
        self._accuracy, self._log_norm = _Average(span), _Average(span)
        self._debouncers = {name: _Debouncer(logs) for name, logs in _LOGS.items()}

    def check(self, step: int, values: Mapping[str, float]) -> list[str]:
        """Return a paragraph for each problem that a log of training metrics begins.

        It has evidence, meaning and remedy. A problem is reported again only after it
        has ended.
        """
        warnings = (
            self._check_collapse(step, values),
            self._check_masked_lm(step, values),
            self._check_loss(step, values),
            self._check_gradient(step, values),
            self._check_input(values),
        )
        return [text for text in warnings if text]

    def _begins(self, problem: str, condition: bool) -> bool:
        return self._debouncers[problem].begins(condition)

    def _check_collapse(self, step: int, values: Mapping[str, float]) -> str | None:
        recall, accuracy = _get(values, "disc_recall"), _get(values, "disc_accuracy")
        if math.isnan(recall) or step <= self._collapse_from:
            return None
        auc = _get(values, "disc_auc")
        evidence = (
            f"disc_recall {recall:.2%}, disc_accuracy {accuracy:.1%}, disc_auc "
            f"{auc:.2f}, and similar values in the {_COLLAPSE_LOGS - 1} previous logs"
        )
        is_learning = auc > COLLAPSE_AUC
        if self._begins("all original", recall < COLLAPSE_RECALL and not is_learning):
            return (
                f"At step {step:,} the discriminator predicts 'original' for every "
                f"token: {evidence}. It has collapsed to the majority class, which "
                f"gives a high accuracy because few tokens are replaced. {_REMEDY}, "
                "and check that objective.discriminator_weight is not small (50 in the "
                "paper). A smaller model.generator_width makes replaced tokens easier "
                "to detect."
            )
        is_all_replaced = recall > 1 - COLLAPSE_RECALL and accuracy < 0.5
        if self._begins("all replaced", is_all_replaced):
            return (
                f"At step {step:,} the discriminator predicts 'replaced' for every "
                f"token: {evidence}. Its predictions do not depend on the text. "
                f"{_REMEDY}, and restart from an earlier checkpoint."
            )
        return None

    def _check_masked_lm(self, step: int, values: Mapping[str, float]) -> str | None:
        loss = self._masked_lm
        if "masked_lm_loss" in self._free:
            return None
        self._accuracy.add(step, _get(values, "masked_lm_accuracy"))
        if not loss.add(step, _get(values, "masked_lm_loss")):
            return None
        has_main = "disc_loss" in values or "main_lm_loss" in values
        model = "generator" if has_main else "model"
        if self._begins("stalled", self._is_stalled(step)):
            return (
                f"The {model} has stopped learning: masked_lm_loss is "
                f"{loss.value:.2f} at step {step:,} (random guessing gives "
                f"{self._guessing_loss:.2f}) and has not fallen by {STALL_GAIN:.0%} "
                f"since step {loss.gained_at:,}; masked_lm_accuracy is "
                f"{self._accuracy.value:.1%}, hardly more than for always predicting "
                "the most frequent token. The model does not use the context. "
                f"{_REMEDY}, try a larger input.batch_size, and check that the records "
                "contain meaningful text."
            )
        if self._begins("masked-LM rising", loss.value > MASKED_LM_RISE * loss.best):
            return (
                f"The {model} is getting worse: masked_lm_loss (a moving average) is "
                f"{loss.value:.2f} at step {step:,} after {loss.best:.2f} at step "
                f"{loss.best_at:,}. {_REMEDY}, and restart from a checkpoint before "
                "the rise."
            )
        return None

    def _is_stalled(self, step: int) -> bool:
        since = max(self._masked_lm.gained_at, self._warmup_steps)
        return step - since >= self._stall_steps and (
            self._accuracy.value < GUESSING_ACCURACY
            or self._masked_lm.value > GUESSING_LOSS * self._guessing_loss
        )

    def _check_loss(self, step: int, values: Mapping[str, float]) -> str | None:
        loss = self._loss
        if "loss" in self._free:
            return None
        if not loss.add(step, _get(values, "loss")):
            return None
        if self._begins("rising", loss.value > LOSS_RISE * loss.best):
            return (
                f"The loss (a moving average) has risen to {loss.value:.2f} at step "
                f"{step:,} from {loss.best:.2f} at step {loss.best_at:,}. Training "
                f"diverges because the updates are too large. {_REMEDY}, and restart "
                "from a checkpoint before the rise."
            )
        return None

    def _check_gradient(self, step: int, values: Mapping[str, float]) -> str | None:
        norm = _get(values, "gradient_norm")
        if math.isnan(norm) or norm <= 0:
            return None
        average = math.exp(self._log_norm.value)
        is_exploding = self._log_norm.is_reliable and norm > GRADIENT_RISE * average
        if not is_exploding:  # or the average would follow the explosion
            self._log_norm.add(step, math.log(norm))
        if self._begins("exploding", is_exploding):
            return (
                f"The gradient explodes: gradient_norm is {norm:.3g} at step {step:,} "
                f"after an average of {average:.3g}. Clipping (optimizer.clip_norm) "
                "limits the size of each update, but not its wrong direction, and the "
                f"loss usually rises next. {_REMEDY}."
            )
        return None

    def _check_input(self, values: Mapping[str, float]) -> str | None:
        share = _get(values, "input_share")
        if math.isnan(share) or not self._begins("input-bound", share > INPUT_SHARE):
            return None
        return (
            f"The input is the bottleneck: training waits {share:.0%} of the time for "
            "its next batch. Copy the records to a local disk or into memory (every "
            "host reads all files, one after the other), and leave CPU cores free for "
            "parsing. On a network disk, build fewer and larger files "
            "(records.shards). If an epoch is short, lower input.shuffle_window, "
            "because a window is read in full before its first record is used."
        )


class _Debouncer:
    """Detector of a condition that starts and ends after several consecutive logs."""

    def __init__(self, logs: int):
        self._logs = logs
        self._is_on = False
        self._num_changed = 0

    def begins(self, condition: bool) -> bool:
        """Add the condition of a log and return whether the state turns on."""
        self._num_changed = self._num_changed + 1 if condition != self._is_on else 0
        if self._num_changed < self._logs:
            return False
        self._is_on, self._num_changed = condition, 0
        return condition


class _Average:
    """Moving average with its minimum and the step of its last marked fall."""

    def __init__(self, span: float):
        self._span = span
        self._count = 0
        self._step = 0
        self._gained = math.inf
        self.value = math.nan
        self.best = math.inf
        self.best_at = self.gained_at = 0

    @property
    def is_reliable(self) -> bool:
        """Whether the average covers enough logs."""
        return self._count >= AVERAGE_LOGS

    def add(self, step: int, value: float) -> bool:
        """Add a value and return whether the average changed and is reliable."""
        if math.isnan(value):
            return False
        self._count += 1
        if self._count == 1:
            self.value = value
        share = min(1 / AVERAGE_LOGS, (step - self._step) / self._span)
        self.value += max(1 / self._count, share) * (value - self.value)
        self._step = step
        if not self.is_reliable:
            return False
        if self.value < self.best:
            self.best, self.best_at = self.value, step
        if self.value < (1 - STALL_GAIN) * self._gained:
            self._gained, self.gained_at = self.value, step
        return True


def _get(values: Mapping[str, float], name: str) -> float:
    """Return a number, or NaN if it is missing or not finite."""
    value = values.get(name, math.nan)
    return value if math.isfinite(value) else math.nan
