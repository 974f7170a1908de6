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
from collections.abc import Collection, Iterator, Mapping

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
        """Return evidence and remedy for each problem that a log begins.

        A problem is reported again only after it has ended.
        """
        return [
            text
            for problem, condition, text in self._conditions(step, values)
            if self._debouncers[problem].begins(condition)
        ]

    def _conditions(
        self, step: int, values: Mapping[str, float]
    ) -> Iterator[tuple[str, bool, str]]:
        """Yield problems that a log can show, whether it does, and their texts."""
        if not math.isnan(_get(values, "disc_recall")) and step > self._collapse_from:
            yield from self._collapses(step, values)
        if "masked_lm_loss" not in self._free:
            self._accuracy.add(step, _get(values, "masked_lm_accuracy"))
            if self._masked_lm.add(step, _get(values, "masked_lm_loss")):
                has_main = "disc_loss" in values or "main_lm_loss" in values
                yield from self._masked_lm_problems(step, has_main)
        loss = self._loss
        if "loss" not in self._free and loss.add(step, _get(values, "loss")):
            text = (
                f"The loss (a moving average) has risen to {loss.value:.2f} at step "
                f"{step:,} from {loss.best:.2f} at step {loss.best_at:,}. {_REMEDY}, "
                "and restart from a checkpoint before the rise."
            )
            yield "rising", loss.value > LOSS_RISE * loss.best, text
        norm = _get(values, "gradient_norm")
        if norm > 0:
            average = math.exp(self._log_norm.value)
            explodes = self._log_norm.is_reliable and norm > GRADIENT_RISE * average
            if not explodes:  # or the average would follow the explosion
                self._log_norm.add(step, math.log(norm))
            text = (
                f"The gradient explodes: gradient_norm is {norm:.3g} at step {step:,} "
                f"after an average of {average:.3g}. optimizer.clip_norm limits the "
                f"size of an update, not its wrong direction. {_REMEDY}."
            )
            yield "exploding", explodes, text
        share = _get(values, "input_share")
        if not math.isnan(share):
            text = (
                f"The input is the bottleneck: training waits {share:.0%} of the time "
                "for its next batch. Copy the records to a local disk or into memory, "
                "and leave CPU cores free. On a network disk, build fewer files "
                "(records.shards); if an epoch is short, lower input.shuffle_window."
            )
            yield "input-bound", share > INPUT_SHARE, text

    def _collapses(
        self, step: int, values: Mapping[str, float]
    ) -> Iterator[tuple[str, bool, str]]:
        names = "disc_recall", "disc_accuracy", "disc_auc"
        recall, accuracy, auc = (_get(values, name) for name in names)
        evidence = (
            f"for every token: disc_recall {recall:.2%}, disc_accuracy {accuracy:.1%}, "
            f"disc_auc {auc:.2f}, and similar values in the {_COLLAPSE_LOGS - 1} logs "
            f"before. {_REMEDY}"
        )
        text = (
            f"At step {step:,} the discriminator predicts 'original' {evidence}, and "
            "check that objective.discriminator_weight is not small (50 in the paper). "
            "A smaller model.generator_width makes replaced tokens easier to detect."
        )
        is_learning = auc > COLLAPSE_AUC
        yield "all original", recall < COLLAPSE_RECALL and not is_learning, text
        text = (
            f"At step {step:,} the discriminator predicts 'replaced' {evidence}, and "
            "restart from an earlier checkpoint."
        )
        yield "all replaced", recall > 1 - COLLAPSE_RECALL and accuracy < 0.5, text

    def _masked_lm_problems(
        self, step: int, has_main: bool
    ) -> Iterator[tuple[str, bool, str]]:
        loss, accuracy = self._masked_lm, self._accuracy.value
        model = "generator" if has_main else "model"
        since = max(loss.gained_at, self._warmup_steps)
        is_stalled = step - since >= self._stall_steps and (
            accuracy < GUESSING_ACCURACY
            or loss.value > GUESSING_LOSS * self._guessing_loss
        )
        text = (
            f"The {model} has stopped learning: masked_lm_loss is {loss.value:.2f} at "
            f"step {step:,} (random guessing gives {self._guessing_loss:.2f}) and has "
            f"not fallen by {STALL_GAIN:.0%} since step {loss.gained_at:,}; "
            f"masked_lm_accuracy is {accuracy:.1%}, hardly more than for always "
            f"predicting the most frequent token. {_REMEDY}, try a larger "
            "input.batch_size, and check that the records contain meaningful text."
        )
        yield "stalled", is_stalled, text
        text = (
            f"The {model} is getting worse: masked_lm_loss (a moving average) is "
            f"{loss.value:.2f} at step {step:,} after {loss.best:.2f} at step "
            f"{loss.best_at:,}. {_REMEDY}, and restart from a checkpoint before the "
            "rise."
        )
        yield "masked-LM rising", loss.value > MASKED_LM_RISE * loss.best, text


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
