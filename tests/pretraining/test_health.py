import inspect
import json
import math
import re

import numpy as np
import pytest

from electra_tf.config import loader
from electra_tf.pretraining import health
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
                "masked_lm_accuracy": 0.05
                + 0.4 * progress
                + 0.3 * noise * rng.normal(),
                "disc_loss": disc,
                "disc_auc": auc,
                "disc_accuracy": 0.863 + 0.08 * progress,
                "disc_precision": 0.8 if recall else NAN,
                "disc_recall": recall,
                # A steep fall, slow growth over the run, and a few single spikes.
                "gradient_norm": (1 + 129 * math.exp(-step / 20) + 5 * step / steps)
                * math.exp(0.3 * rng.normal())
                * (100 if rng.random() < 0.01 else 1),
                "input_share": 0.9 if step == every else 0.01,
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
            log |= {
                name: value(log[name]) if callable(value) else value
                for name, value in values.items()
            }
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


def test_a_healthy_masked_lm_run_has_no_warnings():
    logs = [
        (step, {k: v for k, v in log.items() if not k.startswith("disc_")})
        for step, log in healthy(20_000, 100, 128)
    ]
    for _, log in logs:
        log["loss"] = log["masked_lm_loss"]
    assert warnings_of(HealthCheck(**SMALL), logs) == []


def test_a_collapse_to_original_is_reported_once():
    logs = changed(10_000, disc_recall=0.004, disc_auc=0.69)
    ((step, text),) = warnings_of(HealthCheck(**SMALL), logs)
    assert step == 10_400  # the fifth log
    assert text.startswith("At step 10,400 the discriminator predicts 'original'")
    for part in (
        "disc_recall 0.40%, disc_accuracy 94.3%, disc_auc 0.69",
        "4 previous logs",
        "majority class",
        "optimizer.learning_rate",
    ):
        assert part in text


@pytest.mark.parametrize(
    "values",
    [
        {"last": 10_300, "disc_recall": 0.0, "disc_auc": 0.5},  # four logs
        {"disc_recall": 0.006, "disc_auc": 0.5},  # low, but not a collapse
        {
            "disc_recall": 0.0,
            "disc_auc": 0.71,
        },  # a good ranking without positive logits
        {"disc_recall": NAN, "disc_auc": 0.5},  # nothing was replaced
    ],
)
def test_similar_values_are_not_a_collapse(values):
    assert warnings_of(HealthCheck(**SMALL), changed(10_000, **values)) == []


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

    # Five good logs are a recovery, four are not. NaN counts as neither.
    recalls = [0.0] * 6 + [0.3] * 4 + [NAN] + [0.0] * 5
    assert [s for s, _ in warnings_of(HealthCheck(**SMALL), logs(recalls))] == [10_400]
    recalls += [0.3] * 4 + [NAN, 0.3] + [0.0] * 9
    steps = [step for step, _ in warnings_of(HealthCheck(**SMALL), logs(recalls))]
    assert steps == [10_400, 12_600]


def test_a_collapse_to_replaced_is_reported():
    logs = changed(10_000, disc_recall=0.999, disc_accuracy=0.12)
    ((step, text),) = warnings_of(HealthCheck(**SMALL), logs)
    assert step == 10_400
    assert "'replaced'" in text
    assert "disc_recall 99.90%, disc_accuracy 12.0%" in text
    # A discriminator may detect all random tokens and be accurate.
    logs = changed(10_000, disc_recall=0.999, disc_accuracy=0.99)
    assert warnings_of(HealthCheck(**SMALL), logs) == []


def test_a_generator_that_learned_only_word_frequencies_is_reported():
    stuck = {"masked_lm_loss": 6.9, "masked_lm_accuracy": 0.054}
    ((step, text),) = warnings_of(HealthCheck(**SMALL), changed(1, **stuck))
    # The tenth log and the end of the warm-up, 5,000 steps, the third log in a row.
    assert step == 6200
    assert text.startswith("The generator has stopped learning")
    for part in (
        "masked_lm_loss is 6.90 at step 6,200",
        "10.33",
        "1% since step 1,000",
        "masked_lm_accuracy is 5.4%",
    ):
        assert part in text


def test_a_stall_starts_after_the_warm_up():
    stuck = {"masked_lm_loss": 6.9, "masked_lm_accuracy": 0.054}
    warnings = warnings_of(HealthCheck(20_000, 6000, 30522), changed(1, **stuck))
    assert [step for step, _ in warnings] == [11_200]


def test_a_stall_of_a_long_run_takes_longer():
    check = HealthCheck(1_000_000, 10_000, 30522)
    values = {"masked_lm_loss": 6.9, "masked_lm_accuracy": 0.054}
    logs = ((step, values) for step in range(1000, 200_000, 1000))
    ((step, text),) = warnings_of(check, logs)
    assert step == 62_000
    assert text.startswith("The model has stopped")  # without disc_loss


def test_the_loss_detects_a_stall_with_a_small_vocabulary():
    # Guessing among 8 wordpieces has an accuracy of 1/8, above GUESSING_ACCURACY.
    stuck = {"masked_lm_loss": 2.0, "masked_lm_accuracy": 0.125}
    warnings = warnings_of(HealthCheck(20_000, 1000, 8), changed(1, **stuck))
    assert [step for step, _ in warnings] == [6200]
    stuck["masked_lm_loss"] = 1.9  # 91% of log(8), below GUESSING_LOSS
    assert warnings_of(HealthCheck(20_000, 1000, 8), changed(1, **stuck)) == []


def test_a_plateau_of_a_model_that_uses_context_is_not_reported():
    flat = {"masked_lm_loss": 5.0, "masked_lm_accuracy": 0.11}
    assert warnings_of(HealthCheck(**SMALL), changed(1, **flat)) == []


def test_a_slow_fall_is_not_a_stall():
    # 1.2% in 5,000 steps.
    logs = changed(1, masked_lm_accuracy=0.05)
    slow = (
        (step, log | {"masked_lm_loss": 6.9 * 0.988 ** (step / 5000)})
        for step, log in logs
    )
    assert warnings_of(HealthCheck(**SMALL), slow) == []


@pytest.mark.parametrize(
    ("steps", "logs_before", "logs_until"), [(20_000, 20, 7), (1_000_000, 200, 53)]
)
def test_a_rising_masked_lm_loss_is_reported(steps, logs_before, logs_until):
    # 4 + (1 - 0.9^k) exceeds 4.4 from k = 5, and the third log in a row is reported.
    # When 1% of training is 100 logs, 4 + (1 - 0.99^k) exceeds 4.4 from k = 51.
    check = HealthCheck(steps, 1000, 30522)
    logs = [
        (100 * i, {"masked_lm_loss": 4.0 if i <= logs_before else 5.0, "disc_loss": 1})
        for i in range(1, 2 * logs_before + 1)
    ]
    ((step, text),) = warnings_of(check, logs)
    assert step == 100 * (logs_before + logs_until)
    assert text.startswith("The generator is getting worse: masked_lm_loss")
    assert "after 4.00 at step 1,000" in text


def test_an_average_weights_its_first_logs_equally():
    # (10 + 9 x 4) / 10 = 4.6 at the tenth finite value; then the third higher one.
    losses = [10.0, NAN, *[4.0] * 9, 100.0, 100.0, math.inf, 100.0]
    check = HealthCheck(1_000_000, 1000, 30522)
    logs = [(100 * i, {"masked_lm_loss": loss}) for i, loss in enumerate(losses, 1)]
    ((step, text),) = warnings_of(check, logs)
    assert step == 1500  # (10 + 9 x 4 + 3 x 100) / 13
    assert "is 26.62 at step 1,500" in text
    assert "after 4.60 at step 1,100" in text


def test_a_sharply_rising_loss_is_reported():
    logs = changed(12_000, loss=lambda loss: 1.5 * loss)
    ((step, text),) = warnings_of(HealthCheck(**SMALL), logs)
    # 1 + 0.5 (1 - 0.9^k) exceeds 1.2 from about k = 5; the third log in a row.
    assert 12_500 <= step <= 12_800
    assert text.startswith("The loss ")
    assert "optimizer.warmup_steps" in text
    assert (
        warnings_of(HealthCheck(**SMALL), changed(12_000, loss=lambda x: 1.1 * x)) == []
    )


def test_an_exploding_gradient_is_reported_once():
    logs = changed(12_000, gradient_norm=500.0)
    ((step, text),) = warnings_of(HealthCheck(**SMALL), logs)
    assert step == 12_200  # the third log
    assert "gradient_norm is 500 at step 12,200" in text
    assert (
        warnings_of(HealthCheck(**SMALL), changed(12_000, 12_100, gradient_norm=5e3))
        == []
    )


def test_the_average_norm_excludes_explosions():
    def logs(norm):
        norms = [2.0, 8.0] * 10 + [norm] * 3
        return [(100 * i, {"gradient_norm": norm}) for i, norm in enumerate(norms, 1)]

    # The weighted geometric mean of 2 and 8 is near 4.
    ((step, text),) = warnings_of(HealthCheck(**SMALL), logs(90.0))
    assert step == 2300
    assert "gradient_norm is 90 at step 2,300 after an average of 4." in text
    assert warnings_of(HealthCheck(**SMALL), logs(75.0)) == []


@pytest.mark.parametrize("value", [NAN, math.inf])
def test_a_non_finite_loss_is_reported_at_once(value):
    check = HealthCheck(**SMALL)
    logs = changed(12_000, 12_300, loss=value, gradient_norm=NAN)
    ((step, text),) = warnings_of(check, logs)
    assert step == 12_000
    assert f"loss and gradient_norm must be finite and is {value}, nan" in text


def test_slow_input_is_reported_after_three_logs():
    logs = dict(changed(5000, 5200, input_share=0.21))
    logs |= {step: log for step, log in changed(1, input_share=0.5) if step > 9000}
    (first, text), (second, _) = warnings_of(HealthCheck(**SMALL), logs.items())
    assert (first, second) == (5200, 9300)
    assert text.startswith("The input is the bottleneck")
    assert "21% of the time" in text
    assert "input.shuffle_window" in text
    assert warnings_of(HealthCheck(**SMALL), changed(5000, 5100, input_share=0.5)) == []
    assert warnings_of(HealthCheck(**SMALL), changed(5000, input_share=0.19)) == []


def test_several_problems_are_reported():
    problems = {"disc_recall": 0.0, "disc_auc": 0.5, "input_share": 0.5}
    logs = changed(10_000, **problems, gradient_norm=1e4)
    warnings = warnings_of(HealthCheck(**SMALL), logs)
    assert [step for step, _ in warnings] == [10_200, 10_200, 10_400]


def test_repeated_logs_restore_the_state():
    stuck = {"masked_lm_loss": 6.9, "masked_lm_accuracy": 0.05}
    collapsed = {"disc_recall": 0.0, "disc_auc": 0.5}
    logs = list(changed(1, **stuck, **collapsed, input_share=0.5))
    expected = warnings_of(HealthCheck(**SMALL), logs)
    assert [step for step, _ in expected] == [300, 2500, 6200]
    for cut in (2, 23, 24, 60, 61):
        check = HealthCheck(**SMALL)
        repeated = json.loads(json.dumps(logs[:cut]))
        before = warnings_of(check, repeated)
        assert before + warnings_of(check, logs[cut:]) == expected


def test_settings_in_the_warnings_exist():
    source = inspect.getsource(health)
    sections = "input|model|objective|optimizer|records|training"
    names = set(re.findall(rf"\b(?:{sections})\.\w+", source))
    assert {"optimizer.clip_norm", "records.shards", "input.shuffle_window"} < names
    for name in names:
        loader.describe_field(name)
