import json
import math
import re

import numpy as np
import pytest

from electra_tf.pretraining.health import HealthCheck

NAN = math.nan


def healthy(steps, every, batch_size, seed=0):
    """Yield logs that resemble those of a healthy run, each of a single batch.

    Word frequencies are learned at once (the loss of the released code goes from 45 to
    27 in 50 steps), context later, and the second half is flat. At first no token is
    predicted as replaced. The noise is that of batches with 128 tokens a row.
    """
    rng = np.random.default_rng(seed)
    noise = 1 / math.sqrt(batch_size * 19)
    start = min(20_000, steps // 16)  # before, context and discriminator learn nothing
    for step in range(every, steps + 1, every):
        progress = min(1, max(0, step - start) / (steps / 2 - start)) ** 0.2
        masked_lm = 6.9 + 3.4 * math.exp(-step / 15) - 4 * progress
        masked_lm += 3 * noise * rng.normal()
        accuracy = 0.05 + 0.4 * progress + 0.3 * noise * rng.normal()
        disc = 0.4 + 0.3 * math.exp(-step / 5) - 0.2 * progress
        disc += 0.4 * noise * rng.normal()
        auc = 0.55 + 0.4 * progress
        # The ranking is good before any logit is positive.
        recall = max(0, auc - 0.75 + 0.5 * noise * rng.normal()) if auc > 0.75 else 0.0
        yield (
            step,
            {
                "loss": masked_lm + 50 * disc,
                "masked_lm_loss": masked_lm,
                "masked_lm_accuracy": accuracy,
                "disc_loss": disc,
                "disc_auc": auc,
                "disc_accuracy": 0.863 + 0.08 * progress,
                "disc_precision": 0.8 if recall else NAN,
                "disc_recall": recall,
            },
        )


def warnings_of(check, logs):
    """Return (step, text) of all warnings."""
    return [(step, text) for step, values in logs for text in check.check(step, values)]


SMALL = {"steps": 20_000, "warmup_steps": 1000, "vocabulary_size": 30522}


def changed(first, last=math.inf, **values):
    """Yield a healthy run of 20,000 steps with other values from `first` to `last`."""
    for step, log in healthy(20_000, 100, 128):
        if first <= step <= last:
            log |= values
        yield step, log


@pytest.mark.parametrize(
    ("steps", "every", "batch_size", "warmup_steps"),
    [
        (50, 1, 16, 10),
        (20_000, 100, 16, 1000),
        (20_000, 10, 128, 1000),
        (20_000, 2000, 128, 1000),
        (1_000_000, 1000, 128, 10_000),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_run_has_no_warnings(steps, every, batch_size, warmup_steps, seed):
    check = HealthCheck(steps, warmup_steps, 30522)
    assert warnings_of(check, healthy(steps, every, batch_size, seed)) == []


STUCK = {"masked_lm_loss": 6.9, "masked_lm_accuracy": 0.054}
EVERY = math.inf


def collapsed(recall, auc=0.5):
    return {"disc_recall": recall, "disc_auc": auc}


@pytest.mark.parametrize(
    ("first", "last", "values", "steps", "words"),
    [
        # The fifth log of a collapse; four are none.
        (
            10_000,
            EVERY,
            collapsed(0.004, 0.69),
            [10_400],
            "'original'.* 0.40%, .* 0.69.*discriminator_weight",
        ),
        (10_000, 10_300, collapsed(0.0), [], ""),
        # Low, but not a collapse; a good ranking without positive logits; no recall.
        (10_000, EVERY, collapsed(0.006), [], ""),
        (10_000, EVERY, collapsed(0.0, 0.71), [], ""),
        (10_000, EVERY, collapsed(NAN), [], ""),
        # The tenth log and the end of the warm-up, 5,000 steps, the third log in a row.
        (1, EVERY, STUCK, [6200], "stopped learning.* 6.90 .* since step 1,000.* 5.4%"),
        # A plateau of a model that uses context.
        (1, EVERY, {"masked_lm_loss": 5.0, "masked_lm_accuracy": 0.11}, [], ""),
    ],
)
def test_a_problem_is_reported_once(first, last, values, steps, words):
    logs = changed(first, last, **values)
    warnings = warnings_of(HealthCheck(**SMALL), logs)
    assert [step for step, _ in warnings] == steps
    assert not steps or re.search(words, warnings[0][1], re.DOTALL)


@pytest.mark.parametrize(
    ("steps", "warmup_steps", "first"),
    [(20_000, 1000, 2500), (20_000, 6000, 6500), (200_000, 1000, 10_500)],
)
def test_a_collapse_is_reported_after_the_grace_period(steps, warmup_steps, first):
    check = HealthCheck(steps, warmup_steps, 30522)
    logs = ((step, {"disc_recall": 0.0}) for step in range(100, steps + 1, 100))
    assert [step for step, _ in warnings_of(check, logs)] == [first]


def test_a_collapse_is_reported_again_after_recovery():
    def logs(recalls):
        for i, recall in enumerate(recalls):
            yield 10_000 + 100 * i, {"disc_recall": recall}

    # A good log is a recovery; NaN is none.
    recalls = [0.0] * 6 + [NAN] + [0.0] * 5
    assert [s for s, _ in warnings_of(HealthCheck(**SMALL), logs(recalls))] == [10_400]
    recalls += [0.3, *[0.0] * 4, 0.3, *[0.0] * 9]
    steps = [step for step, _ in warnings_of(HealthCheck(**SMALL), logs(recalls))]
    assert steps == [10_400, 12_200]


# Guessing among 8 wordpieces has an accuracy of 1/8, above the limit of accuracy; a
# loss of 1.9 is 91% of log(8).
@pytest.mark.parametrize(
    ("run", "loss", "accuracy", "steps"),
    [
        ((10**6, 10_000, 30522), 6.9, 0.054, [62_000]),  # a long run takes longer
        ((20_000, 1000, 8), 2.0, 0.125, [6200]),
        ((20_000, 1000, 8), 1.9, 0.125, []),
    ],
)
def test_a_stall_depends_on_length_and_vocabulary(run, loss, accuracy, steps):
    stuck = {"masked_lm_loss": loss, "masked_lm_accuracy": accuracy}
    every = run[1] // 10
    logs = ((step, stuck) for step in range(every, min(run[0], 200_000), every))
    assert [step for step, _ in warnings_of(HealthCheck(*run), logs)] == steps


def test_repeated_logs_restore_the_state():
    logs = list(changed(1, **STUCK, **collapsed(0.0)))
    expected = warnings_of(HealthCheck(**SMALL), logs)
    assert [step for step, _ in expected] == [2500, 6200]
    for cut in (23, 24, 60, 61):
        check = HealthCheck(**SMALL)
        repeated = json.loads(json.dumps(logs[:cut]))
        before = warnings_of(check, repeated)
        assert before + warnings_of(check, logs[cut:]) == expected
