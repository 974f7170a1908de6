"""Warn about two problems of a run, from its logged training metrics.

A healthy run must get no warning. At first its discriminator predicts "original" for
every token, because few are replaced. Its masked-LM loss is flat at first, when the
model has learned only word frequencies, and again at the end. So the rules wait for a
share of training, and for several logs in a row.
"""

import collections
import math
from collections.abc import Collection, Mapping

# A discriminator below this recall predicts "original" for every token, but one above
# this AUC, which improves first, is learning.
_RECALL, _AUC, _COLLAPSED_LOGS = 0.005, 0.7, 5
_GRACE_STEPS, _GRACE_SHARE = 2000, 0.05
# The masked-LM loss stalls if its mean does not fall by a share in so many steps, while
# predictions hardly beat that of the most frequent token (5% on most text).
_FALL, _STALL_STEPS, _STALL_SHARE, _STALLED_LOGS, _MEAN_LOGS = 0.01, 5000, 0.05, 3, 10
_ACCURACY, _SHARE_OF_GUESSING_LOSS = 0.1, 0.95
_REMEDY = "Lower optimizer.learning_rate or raise optimizer.warmup_steps"


class HealthCheck:
    """Check of a run's logs that warns once about each problem.

    Its state depends on the logs alone: a resumed run passes the earlier ones again.
    """

    def __init__(
        self,
        steps: int,
        warmup_steps: int,
        vocabulary_size: int,
        free: Collection[str] = (),
        discriminator_from: int = 0,
    ):
        grace = max(warmup_steps, _GRACE_STEPS, _GRACE_SHARE * steps)
        self._collapse_from = discriminator_from + grace
        self._stall_steps = max(_STALL_STEPS, _STALL_SHARE * steps)
        self._best, self._best_at = math.inf, warmup_steps
        self._guessing_loss = math.log(vocabulary_size)
        self._checks_masked_lm = "masked_lm_loss" not in free
        self._logs: collections.deque = collections.deque(maxlen=_MEAN_LOGS)
        self._collapsed = self._stalled = 0

    def check(self, step: int, values: Mapping[str, float]) -> list[str]:
        """Return evidence and remedy for each problem that a log begins.

        A problem is reported again only after it has ended.
        """
        finite = {name: x for name, x in values.items() if math.isfinite(x)}
        texts = [self._collapse(step, finite), self._stall(step, finite)]
        return [text for text in texts if text is not None]

    def _collapse(self, step: int, values: Mapping[str, float]) -> str | None:
        if "disc_recall" not in values or step <= self._collapse_from:
            return None
        recall, auc = values["disc_recall"], values.get("disc_auc", math.nan)
        is_collapse = recall < _RECALL and not auc > _AUC
        self._collapsed = self._collapsed + 1 if is_collapse else 0
        if self._collapsed != _COLLAPSED_LOGS:
            return None
        return (
            f"At step {step:,} the discriminator predicts 'original' for every token: "
            f"disc_recall {recall:.2%}, disc_auc {auc:.2f}, and similar values in the "
            f"{_COLLAPSED_LOGS - 1} logs before. {_REMEDY}, and check that "
            "objective.discriminator_weight is not small (50 in the paper)."
        )

    def _stall(self, step: int, values: Mapping[str, float]) -> str | None:
        if not self._checks_masked_lm or "masked_lm_loss" not in values:
            return None
        names = "masked_lm_loss", "masked_lm_accuracy"
        self._logs.append([values.get(name, math.nan) for name in names])
        if len(self._logs) < _MEAN_LOGS:
            return None
        loss, accuracy = (sum(x) / _MEAN_LOGS for x in zip(*self._logs, strict=True))
        if loss < (1 - _FALL) * self._best:
            self._best, self._best_at = loss, max(step, self._best_at)
        limit = _SHARE_OF_GUESSING_LOSS * self._guessing_loss
        is_stall = step - self._best_at >= self._stall_steps
        is_stall &= accuracy < _ACCURACY or loss > limit
        self._stalled = self._stalled + 1 if is_stall else 0
        if self._stalled != _STALLED_LOGS:
            return None
        return (
            f"The masked LM has stopped learning: masked_lm_loss is {loss:.2f} at step "
            f"{step:,} (random guessing gives {self._guessing_loss:.2f}) and has not "
            f"fallen by {_FALL:.0%} since step {self._best_at:,}; masked_lm_accuracy "
            f"is {accuracy:.1%}. {_REMEDY}, try a larger input.batch_size, and check "
            "that the records contain meaningful text."
        )
