"""Says in words what goes wrong in a run, from the numbers that it reports.

The rules are made to be silent in a healthy run, whose curves look alarming in places:

* At first the discriminator calls every token real (the original does after 50 steps):
  few are replaced, and it must be more sure than not. It is judged only after the
  warm-up, 2,000 steps and 5% of training, and not while it ranks replaced tokens before
  real ones (disc_auc), which comes first.
* After a steep start the masked-LM loss rests for a while where word frequencies are
  all that is known, and at the end of training it hardly falls any more. So a loss
  that stands still is told only after a long stretch, and only while the predictions
  are hardly better than guessing: less than 10% right, where the commonest token alone
  makes some 5% of most text, or a loss within 5% of log(vocabulary size). Even a small
  model does better once it has begun to use the context.
* Single logs are noisy. Rises are told of averages (over about 20 logs, or 1% of
  training where that is more), and everything must hold for several logs in a row.
* Single large gradients are clipped and do no harm; a norm that stays at a multiple
  of what it used to be is another matter.
"""

import math
from collections.abc import Mapping

COLLAPSE_RECALL = 0.005
"""A discriminator that finds a smaller share of the replaced tokens finds none; one
that finds all but this share, with most answers wrong, calls everything replaced."""
COLLAPSE_AUC = 0.7
"""A discriminator that ranks better than this learns; knowing which tokens are common
already gives more than 0.5."""
COLLAPSE_LOGS = 5
"""Logs in a row that make a collapse, or its end."""
GRACE_STEPS, GRACE_SHARE = 2000, 0.05
"""Steps, and share of training, in which no collapse is told."""
STALL_STEPS, STALL_SHARE = 5000, 0.05
"""A stall lasts at least so many steps and this share of training, after warm-up."""
STALL_GAIN = 0.01
"""A loss that falls by less than this share of itself stands still."""
GUESSING_ACCURACY, GUESSING_LOSS = 0.1, 0.95
"""Predictions are hardly better than guessing below this share of right answers, or
above this share of log(vocabulary size)."""
MASKED_LM_RISE = 1.1
"""The masked-LM loss has turned when its average is this multiple of its best."""
LOSS_RISE = 1.2
"""The same for the whole loss, of which the discriminator's part is noisier."""
GRADIENT_RISE = 20.0
"""A gradient explodes when its norm is this multiple of its (geometric) average."""
RISE_LOGS = 3
"""Logs in a row that make a rise, a stall or an explosion, or their end."""
INPUT_SHARE, INPUT_LOGS = 0.2, 3
"""Share of the time spent waiting for input that is told, and logs in a row."""
AVERAGE_LOGS, AVERAGE_SHARE = 10, 0.01
"""The newest log weighs 1 / 10 in an average, or less: as its steps to this share of
training."""

_GENTLER = "Lower optimizer.learning_rate or raise optimizer.warmup_steps"


class HealthCheck:
    """Watches the logs of one run and speaks once for each thing that goes wrong.

    It knows nothing but what it was shown: one that is shown the lines of
    metrics.jsonl again (those of kind `train`) goes on where the earlier one was.

    Args:
        steps: Steps of the whole training.
        warmup_steps: Steps over which the learning rate rises.
        vocabulary_size: Entries the masked-LM head chooses from.
    """

    def __init__(self, steps: int, warmup_steps: int, vocabulary_size: int):
        self._judged_from = max(warmup_steps, GRACE_STEPS, GRACE_SHARE * steps)
        self._stall = max(STALL_STEPS, STALL_SHARE * steps)
        self._warmup_steps = warmup_steps
        self._guessing_loss = math.log(vocabulary_size)
        span = AVERAGE_SHARE * steps
        self._loss, self._masked_lm = _Average(span), _Average(span)
        self._accuracy, self._log_norm = _Average(span), _Average(span)
        self._all_real = _Debouncer(COLLAPSE_LOGS)
        self._all_replaced = _Debouncer(COLLAPSE_LOGS)
        self._stalled, self._turned = _Debouncer(RISE_LOGS), _Debouncer(RISE_LOGS)
        self._diverged, self._exploded = _Debouncer(RISE_LOGS), _Debouncer(RISE_LOGS)
        self._broken, self._starved = _Debouncer(1), _Debouncer(INPUT_LOGS)

    def check(self, step: int, values: Mapping[str, float]) -> list[str]:
        """Takes in a log of training.

        Args:
            step: Steps done so far.
            values: Numbers by name. One that is missing or not finite is no evidence
                either way, but for `loss` and `gradient_norm`, which must be finite.

        Returns:
            A paragraph for each trouble that begins here: what is seen, what it means
            and what to try. A trouble is told again only after it was over.
        """
        told = (
            self._collapse(step, values),
            self._generator(step, values),
            self._divergence(step, values),
            self._gradient(step, values),
            self._input(values),
        )
        return [text for text in told if text]

    def _collapse(self, step: int, values: Mapping[str, float]) -> str | None:
        recall, accuracy = _get(values, "disc_recall"), _get(values, "disc_accuracy")
        if math.isnan(recall) or step <= self._judged_from:
            return None
        auc = _get(values, "disc_auc")
        seen = (
            f"disc_recall {recall:.2%}, disc_accuracy {accuracy:.1%}, "
            f"disc_auc {auc:.2f}, and alike in the {COLLAPSE_LOGS - 1} logs before"
        )
        ranks = auc > COLLAPSE_AUC
        if self._all_real.begins(recall < COLLAPSE_RECALL and not ranks):
            return (
                f"At step {step:,} the discriminator calls every token real: {seen}. "
                "It has collapsed to the majority class: as most tokens are real, that "
                f"answer alone makes the accuracy look good. {_GENTLER}, and see that "
                "objective.discriminator_weight is not small (the paper's is 50); a "
                "smaller model.generator_width makes replaced tokens easier to find."
            )
        if self._all_replaced.begins(recall > 1 - COLLAPSE_RECALL and accuracy < 0.5):
            return (
                f"At step {step:,} the discriminator calls every token replaced: "
                f"{seen}. It gives one answer to everything and learns nothing from "
                f"the text. {_GENTLER}, and start again from an earlier checkpoint."
            )
        return None

    def _generator(self, step: int, values: Mapping[str, float]) -> str | None:
        loss = self._masked_lm
        self._accuracy.add(step, _get(values, "masked_lm_accuracy"))
        if not loss.add(step, _get(values, "masked_lm_loss")):
            return None
        who = "generator" if "disc_loss" in values else "model"
        if self._stalled.begins(self._stands_still(step)):
            return (
                f"The {who} has stopped learning: masked_lm_loss is "
                f"{loss.value:.2f} at step {step:,}, where blind guessing gives "
                f"{self._guessing_loss:.2f}, and has not fallen by "
                f"{STALL_GAIN:.0%} since step {loss.gained_at:,}; "
                f"masked_lm_accuracy is {self._accuracy.value:.1%}, little more "
                "than for naming the commonest token each time. The context is not "
                f"used. {_GENTLER}, try a larger input.batch_size, and see that the "
                "records hold sensible text."
            )
        if self._turned.begins(loss.value > MASKED_LM_RISE * loss.best):
            return (
                f"The {who} gets worse: masked_lm_loss is {loss.value:.2f} at step "
                f"{step:,} (an average over the last logs) after {loss.best:.2f} at "
                f"step {loss.best_at:,}. It forgets what it had learnt. {_GENTLER}; "
                "a checkpoint from before the rise is worth going back to."
            )
        return None

    def _stands_still(self, step: int) -> bool:
        since = max(self._masked_lm.gained_at, self._warmup_steps)
        return step - since >= self._stall and (
            self._accuracy.value < GUESSING_ACCURACY
            or self._masked_lm.value > GUESSING_LOSS * self._guessing_loss
        )

    def _divergence(self, step: int, values: Mapping[str, float]) -> str | None:
        names = [n for n in ("loss", "gradient_norm") if n in values]
        broken = [n for n in names if not math.isfinite(values[n])]
        if self._broken.begins(bool(broken)):
            return (
                f"At step {step:,} {' and '.join(broken)} is no longer a number "
                f"({', '.join(str(values[n]) for n in broken)}). The weights are "
                f"most likely spoilt and will not recover. {_GENTLER}, and start "
                "again from the last checkpoint before this step."
            )
        loss = self._loss
        if not loss.add(step, _get(values, "loss")):
            return None
        if self._diverged.begins(loss.value > LOSS_RISE * loss.best):
            return (
                f"The loss has risen to {loss.value:.2f} at step {step:,} (an average "
                f"over the last logs) from {loss.best:.2f} at step {loss.best_at:,}. "
                f"The training diverges: its steps are too large. {_GENTLER}, and "
                "start again from a checkpoint from before the rise."
            )
        return None

    def _gradient(self, step: int, values: Mapping[str, float]) -> str | None:
        norm = _get(values, "gradient_norm")
        if math.isnan(norm) or norm <= 0:
            return None
        usual = math.exp(self._log_norm.value)
        explodes = self._log_norm.settled and norm > GRADIENT_RISE * usual
        if not explodes:  # or what is wrong would soon pass for usual
            self._log_norm.add(step, math.log(norm))
        if self._exploded.begins(explodes):
            return (
                f"The gradient explodes: gradient_norm is {norm:.3g} at step {step:,} "
                f"and was {usual:.3g} before. Clipping (optimizer.clip_norm) bounds "
                "each update, but its direction is no longer worth much, and the loss "
                f"mostly rises next. {_GENTLER}."
            )
        return None

    def _input(self, values: Mapping[str, float]) -> str | None:
        share = _get(values, "input_share")
        if math.isnan(share) or not self._starved.begins(share > INPUT_SHARE):
            return None
        return (
            f"The input is the bottleneck: {share:.0%} of the time the training waits "
            "for its next batch. Copy the records to a local disk or into memory "
            "(files are read one after the other, and every host reads all of them), "
            "and leave processor cores free for parsing. On a network's disk build "
            "fewer and larger files (records.shards). If an epoch is short, lower "
            "input.shuffle_window: a window is read in full before its first record."
        )


class _Debouncer:
    """Whether a condition holds, believed after some logs in a row that say so."""

    def __init__(self, logs: int):
        self._logs = logs
        self._on = False
        self._against = 0

    def begins(self, holds: bool) -> bool:
        """Takes in a log; true where a spell begins."""
        self._against = self._against + 1 if holds != self._on else 0
        if self._against < self._logs:
            return False
        self._on, self._against = holds, 0
        return holds


class _Average:
    """A moving average, its best (lowest) value and when it last fell markedly."""

    def __init__(self, span: float):
        self._span = span
        self._count = 0
        self._step = 0
        self._gained = math.inf
        self.value = math.nan
        self.best = math.inf
        self.best_at = self.gained_at = 0

    @property
    def settled(self) -> bool:
        return self._count >= AVERAGE_LOGS

    def add(self, step: int, value: float) -> bool:
        """Takes in a value; true where it says something new and can be judged."""
        if math.isnan(value):
            return False
        self._count += 1
        if self._count == 1:
            self.value = value
        share = min(1 / AVERAGE_LOGS, (step - self._step) / self._span)
        self.value += max(1 / self._count, share) * (value - self.value)
        self._step = step
        if not self.settled:
            return False
        if self.value < self.best:
            self.best, self.best_at = self.value, step
        if self.value < (1 - STALL_GAIN) * self._gained:
            self._gained, self.gained_at = self.value, step
        return True


def _get(values: Mapping[str, float], name: str) -> float:
    """The number, or NaN for one that is missing or not finite."""
    value = values.get(name, math.nan)
    return value if math.isfinite(value) else math.nan
