"""The generator alone, then a discriminator that begins with its weights."""

import dataclasses

import numpy as np
import pytest

from electra_tf.config.pretraining import OptimizerConfig, TrainingConfig
from electra_tf.errors import InputError
from electra_tf.pretraining.objectives.two_stage import TwoStageObjective
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.training.optimizer import create_optimizer
from tests.pretraining.objectives.example import TEXT
from tests.tiny import TOKENS, batch, config, model_of, rng

STEPS, HALF = 8, 4
RATE = 1e-3


def build(sharing="none", optimizer="adam", **training):
    shape = model_of("two_stage") | {"sharing": sharing}
    if sharing == "gdes":
        del shape["generator_embedding"]
    settings = dataclasses.replace(
        config(objective={"name": "two_stage"}, **shape),
        training=TrainingConfig(steps=STEPS, **training),
        optimizer=OptimizerConfig(
            name=optimizer, learning_rate=RATE, warmup_steps=2, weight_decay=0.0
        ),
    )
    pretrainer = Pretrainer(settings, TOKENS)
    pretrainer.compile(create_optimizer(settings.optimizer, STEPS, restart=STEPS // 2))
    return pretrainer


def train(pretrainer, first, last):
    """Run eager steps; return the metrics of each."""
    metrics = []
    for step in range(first, last):
        if step in (0, pretrainer.stages[0]):
            pretrainer.begin(step)
        metrics.append(pretrainer.train_step(batch([16, 12, 9, 16], seed=step)))
    return metrics


def values(pretrainer, part):
    return {
        v.path: v.numpy()
        for v in pretrainer.trainable_variables
        if f"/{part}/" in v.path
    }


def moved(before, after):
    return {name for name in before if not np.array_equal(before[name], after[name])}


@pytest.mark.parametrize("sharing", ["none", "gdes"])
def test_each_stage_trains_one_network(sharing):
    pretrainer = build(sharing)

    def state():
        return values(pretrainer, "generator"), values(pretrainer, "discriminator")

    start = state()
    metrics = train(pretrainer, 0, HALF)
    first = state()
    pretrainer.begin(HALF)
    copied = state()
    metrics += train(pretrainer, HALF, STEPS)
    end = state()
    assert moved(start[0], first[0]) == set(start[0])
    assert not moved(start[1], first[1])
    assert not moved(first[0], end[0])
    assert moved(copied[1], end[1]) == set(start[1])
    # The discriminator begins with the generator's values.
    for name, array in copied[1].items():
        if name.endswith("_delta"):
            assert not array.any()
        elif "/encoder/" in name:
            source = name.replace("/discriminator/", "/generator/")
            np.testing.assert_array_equal(array, first[0][source])
    # The schedule begins again.
    rates = [float(values["learning_rate"]) for values in metrics]
    expected = [RATE * (1 - t / HALF) * min(1, t / 2) for t in range(HALF)] * 2
    np.testing.assert_allclose(rates, expected, rtol=1e-6)
    names = ["disc_loss" in values for values in metrics]
    assert names == [False] * HALF + [True] * HALF
    with pytest.raises(InputError, match="one stage"):
        pretrainer.fit([TEXT])


def test_bias_correction_begins_again():
    """The second update of stage 2 is as long as that of a new optimizer."""
    pretrainer = build(optimizer="adamw")
    train(pretrainer, 0, HALF + 1)
    before = values(pretrainer, "discriminator")
    train(pretrainer, HALF + 1, HALF + 2)
    after = values(pretrainer, "discriminator")
    largest = max(np.abs(after[n] - before[n]).max() for n in before)
    rate = RATE * (1 - 1 / HALF) / 2
    # Adam moves no weight further than about its rate, if corrected: after two updates
    # sqrt(v) is at least |g| sqrt(0.001) / sqrt(0.002).
    assert 0.5 * rate < largest < 2 * rate


def test_accumulation_skips_the_idle_network():
    one, two = build(), build(accumulation=2)
    for pretrainer in (one, two):
        train(pretrainer, 0, HALF + 2)
    for name, array in values(one, "discriminator").items():
        other = values(two, "discriminator")[name]
        np.testing.assert_allclose(array, other, rtol=1e-4, atol=2e-6)


def test_the_first_stage_has_its_share_of_the_steps():
    settings = build().config
    objective = dataclasses.replace(settings.objective, first_stage=0.25)
    settings = dataclasses.replace(settings, objective=objective)
    assert settings.restart == 2
    rule = dataclasses.replace(settings.optimizer, warmup_steps=0)
    rate = create_optimizer(rule, STEPS, restart=settings.restart).schedule
    expected = [RATE * (1 - t / 2) for t in range(2)]
    expected += [RATE * (1 - t / 6) for t in range(6)]
    np.testing.assert_allclose([rate(t) for t in range(STEPS)], expected, rtol=1e-6)


def test_the_frozen_generator_has_no_dropout():
    settings = build().config
    model = dataclasses.replace(settings.model, dropout=0.5)
    objective = TwoStageObjective(dataclasses.replace(settings, model=model), TOKENS)
    objective.model.build()
    totals = []
    for stage, training in ((1, False), (2, True), (1, True)):
        objective.stage = stage
        masked = objective.mask(TEXT, rng())
        losses = objective.losses(masked, objective.context(rng(), training))
        totals.append(float(losses.parts["masked_lm"].total))
    assert totals[0] == totals[1] != totals[2]
