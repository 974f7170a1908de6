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
    """Logs of a run as they look when all goes well, each from a single batch.

    Word frequencies are learnt at once (the original's loss goes from 45 to 27 in 50
    steps), context after a while, and from half-way on the curves are flat. At first
    no token is called replaced. Noise is that of batches of 128 tokens a row.
    """
    rng = np.random.default_rng(seed)
    noise = 1 / math.sqrt(batch_size * 19)
    start = min(20_000, steps // 16)  # of the context, and of the discriminator
    for step in range(every, steps + 1, every):
        learnt = min(1, max(0, step - start) / (steps / 2 - start)) ** 0.2
        masked_lm = 6.9 + 3.4 * math.exp(-step / 15) - 4 * learnt
        masked_lm += 3 * noise * rng.normal()
        disc = 0.4 + 0.3 * math.exp(-step / 5) - 0.2 * learnt
        disc += 0.4 * noise * rng.normal()
        auc = 0.55 + 0.4 * learnt
        # It ranks well before it is ever more sure than not.
        recall = max(0, auc - 0.75 + 0.5 * noise * rng.normal()) if auc > 0.75 else 0.0
        yield (
            step,
            {
                "loss": masked_lm + 50 * disc,
                "masked_lm_loss": masked_lm,
                "masked_lm_accuracy": 0.05 + 0.4 * learnt + 0.3 * noise * rng.normal(),
                "disc_loss": disc,
                "disc_auc": auc,
                "disc_accuracy": 0.863 + 0.08 * learnt,
                "disc_precision": 0.8 if recall else NAN,
                "disc_recall": recall,
                # Falls steeply, grows over the run; now and then a single spike.
                "gradient_norm": (1 + 129 * math.exp(-step / 20) + 5 * step / steps)
                * math.exp(0.3 * rng.normal())
                * (100 if rng.random() < 0.01 else 1),
                "input_share": 0.9 if step == every else 0.01,
            },
        )


def told(check, logs):
    """(step, text) of all that is said."""
    return [(step, text) for step, values in logs for text in check.check(step, values)]


SMALL = {"steps": 20_000, "warmup_steps": 1000, "vocabulary_size": 30522}


def changed(first, last=math.inf, **values):
    """A healthy run of 20,000 steps but for some values from `first` to `last`."""
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
def test_a_healthy_run_hears_nothing(steps, every, batch_size, warmup_steps, seed):
    check = HealthCheck(steps, warmup_steps, 30522)
    assert told(check, healthy(steps, every, batch_size, seed)) == []


def test_a_healthy_run_of_masked_language_modelling_hears_nothing():
    logs = [
        (step, {k: v for k, v in log.items() if not k.startswith("disc_")})
        for step, log in healthy(20_000, 100, 128)
    ]
    for _, log in logs:
        log["loss"] = log["masked_lm_loss"]
    assert told(HealthCheck(**SMALL), logs) == []


def test_a_discriminator_that_calls_all_tokens_real_is_told_once():
    logs = changed(10_000, disc_recall=0.004, disc_auc=0.69)
    ((step, text),) = told(HealthCheck(**SMALL), logs)
    assert step == 10_400  # the fifth log
    assert text.startswith(
        "At step 10,400 the discriminator calls every token real: disc_recall 0.40%, "
        "disc_accuracy 94.3%, disc_auc 0.69, and alike in the 4 logs before. It has "
        "collapsed to the majority class"
    )
    assert "optimizer.learning_rate" in text


@pytest.mark.parametrize(
    "values",
    [
        {"last": 10_300, "disc_recall": 0.0, "disc_auc": 0.5},  # four logs
        {"disc_recall": 0.006, "disc_auc": 0.5},  # low, but not none
        {"disc_recall": 0.0, "disc_auc": 0.71},  # right, but never sure
        {"disc_recall": NAN, "disc_auc": 0.5},  # nothing was replaced
    ],
)
def test_what_only_looks_like_a_collapse_is_passed_over(values):
    assert told(HealthCheck(**SMALL), changed(10_000, **values)) == []


@pytest.mark.parametrize(
    ("steps", "warmup_steps", "first"),
    [(20_000, 1000, 2500), (20_000, 6000, 6500), (200_000, 1000, 10_500)],
)
def test_a_collapse_is_told_after_the_early_phase(steps, warmup_steps, first):
    check = HealthCheck(steps, warmup_steps, 30522)
    logs = ((step, {"disc_recall": 0.0}) for step in range(100, steps + 1, 100))
    assert [step for step, _ in told(check, logs)] == [first]


def test_a_collapse_is_told_again_after_recovery():
    def logs(recalls):
        for i, recall in enumerate(recalls):
            yield 10_000 + 100 * i, {"disc_recall": recall}

    # Four good logs are no recovery, five are; a metric without weight says nothing.
    recalls = [0.0] * 6 + [0.3] * 4 + [NAN] + [0.0] * 5
    assert [s for s, _ in told(HealthCheck(**SMALL), logs(recalls))] == [10_400]
    recalls += [0.3] * 4 + [NAN, 0.3] + [0.0] * 9
    found = told(HealthCheck(**SMALL), logs(recalls))
    assert [step for step, _ in found] == [10_400, 12_600]


def test_a_discriminator_that_calls_all_tokens_replaced_is_told():
    logs = changed(10_000, disc_recall=0.999, disc_accuracy=0.12)
    ((step, text),) = told(HealthCheck(**SMALL), logs)
    assert step == 10_400
    assert "calls every token replaced: disc_recall 99.90%, disc_accuracy 12.0%" in text
    # Against random tokens it may well find them all, and be right.
    logs = changed(10_000, disc_recall=0.999, disc_accuracy=0.99)
    assert told(HealthCheck(**SMALL), logs) == []


def test_a_generator_that_knows_only_word_frequencies_is_told():
    stuck = {"masked_lm_loss": 6.9, "masked_lm_accuracy": 0.054}
    ((step, text),) = told(HealthCheck(**SMALL), changed(1, **stuck))
    # Settled at the tenth log, warm up to there; 5,000 steps more; the third log.
    assert step == 6200
    assert text.startswith(
        "The generator has stopped learning: masked_lm_loss is 6.90 at step 6,200, "
        "where blind guessing gives 10.33, and has not fallen by 1% since step 1,000; "
        "masked_lm_accuracy is 5.4%"
    )


def test_a_stall_is_counted_from_the_end_of_the_warm_up():
    stuck = {"masked_lm_loss": 6.9, "masked_lm_accuracy": 0.054}
    found = told(HealthCheck(20_000, 6000, 30522), changed(1, **stuck))
    assert [step for step, _ in found] == [11_200]


def test_a_long_training_is_given_a_long_time():
    check = HealthCheck(1_000_000, 10_000, 30522)
    values = {"masked_lm_loss": 6.9, "masked_lm_accuracy": 0.054}
    logs = ((step, values) for step in range(1000, 200_000, 1000))
    ((step, text),) = told(check, logs)
    assert step == 62_000
    assert text.startswith("The model has stopped")  # no discriminator, no generator


def test_a_generator_that_guesses_among_few_pieces_is_told_by_its_loss():
    # Of 8 pieces, one in eight guesses is right: above a tenth.
    stuck = {"masked_lm_loss": 2.0, "masked_lm_accuracy": 0.125}
    found = told(HealthCheck(20_000, 1000, 8), changed(1, **stuck))
    assert [step for step, _ in found] == [6200]
    stuck["masked_lm_loss"] = 1.9  # 91% of log(8): something was learnt
    assert told(HealthCheck(20_000, 1000, 8), changed(1, **stuck)) == []


def test_a_plateau_of_a_model_that_uses_context_is_none_of_our_business():
    flat = {"masked_lm_loss": 5.0, "masked_lm_accuracy": 0.11}
    assert told(HealthCheck(**SMALL), changed(1, **flat)) == []


def test_a_slow_fall_is_no_stall():
    # 1.2% in 5,000 steps.
    logs = changed(1, masked_lm_accuracy=0.05)
    slow = (
        (step, log | {"masked_lm_loss": 6.9 * 0.988 ** (step / 5000)})
        for step, log in logs
    )
    assert told(HealthCheck(**SMALL), slow) == []


@pytest.mark.parametrize(
    ("steps", "logs_before", "logs_until"), [(20_000, 20, 7), (1_000_000, 200, 53)]
)
def test_a_generator_that_gets_worse_is_told(steps, logs_before, logs_until):
    # 4 + (1 - 0.9^k) passes 4.4 at k = 5, and the third log in a row is believed;
    # with 1% of training worth 100 logs, 0.99^k passes 0.6 at k = 51.
    check = HealthCheck(steps, 1000, 30522)
    logs = [
        (100 * i, {"masked_lm_loss": 4.0 if i <= logs_before else 5.0, "disc_loss": 1})
        for i in range(1, 2 * logs_before + 1)
    ]
    ((step, text),) = told(check, logs)
    assert step == 100 * (logs_before + logs_until)
    assert text.startswith("The generator gets worse: masked_lm_loss is 4.")
    assert "after 4.00 at step 1,000." in text


def test_an_average_weighs_its_first_logs_alike():
    # (10 + 9 x 4) / 10 = 4.6 at the tenth that counts, then the third that is higher.
    losses = [10.0, NAN, *[4.0] * 9, 100.0, 100.0, math.inf, 100.0]
    check = HealthCheck(1_000_000, 1000, 30522)
    logs = [(100 * i, {"masked_lm_loss": loss}) for i, loss in enumerate(losses, 1)]
    ((step, text),) = told(check, logs)
    assert step == 1500  # (10 + 9 x 4 + 3 x 100) / 13
    assert "masked_lm_loss is 26.62 at step 1,500" in text
    assert "after 4.60 at step 1,100." in text


def test_a_loss_that_rises_sharply_is_told():
    logs = changed(12_000, loss=lambda loss: 1.5 * loss)
    ((step, text),) = told(HealthCheck(**SMALL), logs)
    # 1 + 0.5 (1 - 0.9^k) passes 1.2 at k = 5, give or take the noise; the third log.
    assert 12_500 <= step <= 12_800
    assert text.startswith("The loss has risen to ")
    assert "optimizer.warmup_steps" in text
    assert told(HealthCheck(**SMALL), changed(12_000, loss=lambda x: 1.1 * x)) == []


def test_a_gradient_that_explodes_is_told_once():
    logs = changed(12_000, gradient_norm=500.0)
    ((step, text),) = told(HealthCheck(**SMALL), logs)
    assert step == 12_200  # the third log
    assert "gradient_norm is 500 at step 12,200 and was" in text
    assert told(HealthCheck(**SMALL), changed(12_000, 12_100, gradient_norm=5e3)) == []


def test_an_explosion_does_not_become_usual():
    def logs(norm):
        norms = [2.0, 8.0] * 10 + [norm] * 3
        return [(100 * i, {"gradient_norm": norm}) for i, norm in enumerate(norms, 1)]

    # The weighted geometric mean of 2 and 8 is near 4.
    ((step, text),) = told(HealthCheck(**SMALL), logs(90.0))
    assert step == 2300
    assert "gradient_norm is 90 at step 2,300 and was 4." in text
    assert told(HealthCheck(**SMALL), logs(75.0)) == []


@pytest.mark.parametrize("broken", [NAN, math.inf])
def test_a_loss_that_is_no_number_is_told_at_once(broken):
    check = HealthCheck(**SMALL)
    logs = changed(12_000, 12_300, loss=broken, gradient_norm=NAN)
    ((step, text),) = told(check, logs)
    assert step == 12_000
    assert f"loss and gradient_norm is no longer a number ({broken}, nan)" in text


def test_an_input_that_is_too_slow_is_told_after_three_logs():
    logs = dict(changed(5000, 5200, input_share=0.21))
    logs |= {step: log for step, log in changed(1, input_share=0.5) if step > 9000}
    (first, text), (second, _) = told(HealthCheck(**SMALL), logs.items())
    assert (first, second) == (5200, 9300)
    assert text.startswith("The input is the bottleneck: 21% of the time")
    assert "input.shuffle_window" in text
    assert told(HealthCheck(**SMALL), changed(5000, 5100, input_share=0.5)) == []
    assert told(HealthCheck(**SMALL), changed(5000, input_share=0.19)) == []


def test_troubles_are_told_side_by_side():
    wrong = {"disc_recall": 0.0, "disc_auc": 0.5, "input_share": 0.5}
    logs = changed(10_000, **wrong, gradient_norm=1e4)
    found = told(HealthCheck(**SMALL), logs)
    assert [step for step, _ in found] == [10_200, 10_200, 10_400]


def test_shown_the_logs_again_it_goes_on_where_it_was():
    stuck = {"masked_lm_loss": 6.9, "masked_lm_accuracy": 0.05}
    collapsed = {"disc_recall": 0.0, "disc_auc": 0.5}
    logs = list(changed(1, **stuck, **collapsed, input_share=0.5))
    whole = told(HealthCheck(**SMALL), logs)
    assert [step for step, _ in whole] == [300, 2500, 6200]
    for cut in (2, 23, 24, 60, 61):
        check = HealthCheck(**SMALL)
        again = json.loads(json.dumps(logs[:cut]))
        before = told(check, again)
        assert before + told(check, logs[cut:]) == whole


def test_the_settings_that_the_words_name_exist():
    source = inspect.getsource(health)
    sections = "input|model|objective|optimizer|records|training"
    names = set(re.findall(rf"\b(?:{sections})\.\w+", source))
    assert {"optimizer.clip_norm", "records.shards", "input.shuffle_window"} < names
    for name in names:
        loader.describe_field(name)
