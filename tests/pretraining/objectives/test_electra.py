import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
from tiny import (
    LENGTH,
    TOKENS,
    VOCABULARY,
    batch,
    chi_square,
    config,
)

from electra_tf.batch import Batch
from electra_tf.config.pretraining import (
    MaskingConfig,
    OptimizerConfig,
    TrainingConfig,
)
from electra_tf.errors import InputError
from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.pretraining.masking import Masker
from electra_tf.pretraining.metrics import compute_metrics
from electra_tf.pretraining.objectives.common import make_layer_ops, scheduled
from electra_tf.pretraining.objectives.electra import ElectraObjective
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.training.optimizer import create_optimizer

METRICS = {
    "masked_lm_loss",
    "masked_lm_accuracy",
    "sampled_masked_lm_accuracy",
    "disc_loss",
    "disc_accuracy",
    "disc_precision",
    "disc_recall",
    "disc_auc",
}
TEXT = batch([16, 12, 9, 16])


class FixedRng:
    """Random stream that returns given uniform numbers and disables dropout."""

    def __init__(self, uniform):
        self.values = uniform

    def uniform(self, purpose, rows, shape):
        assert self.values.shape == (rows, *shape)
        return self.values

    def dropout(self):
        return None


def build_objective(**settings):
    objective = ElectraObjective(config(**settings), TOKENS)
    objective.model.build()
    return objective


@pytest.fixture(scope="module")
def electra():
    return build_objective(masking={"rate": 0.3})


def rng(step=0):
    return make_rng(0, TRAINING, step)


def loss_of(objective, masked, source, factors=None, training=False):
    losses = objective.losses(masked, source, training=training)
    if factors:
        losses = losses._replace(factors=factors)
    return losses.combined(objective.weights(masked))


def gradients(objective, masked, factors=None):
    """Return the loss, and each weight's largest absolute gradient or None."""
    variables = objective.model.trainable_variables
    with tf.GradientTape() as tape:
        loss = loss_of(objective, masked, rng(), factors, training=True)
    grads = tape.gradient(loss, [v.value for v in variables])
    return loss, {
        v.path.removeprefix("electra/"): g
        if g is None
        else float(tf.reduce_max(tf.abs(tf.convert_to_tensor(g))))
        for v, g in zip(variables, grads, strict=True)
    }


def test_metric_names_equal_the_originals_and_losses_have_weights(electra):
    masked = electra.mask(TEXT, rng())
    losses = electra.losses(masked, rng(), training=False)
    assert set(losses.metrics) == METRICS
    weights = electra.weights(masked)
    assert set(weights) == set(losses.parts) == set(losses.factors)
    predictions = sum(math.ceil(0.3 * n) for n in (16, 12, 9, 16))
    assert {name: float(weight) for name, weight in weights.items()} == {
        "masked_lm": predictions,
        "disc": 16 + 12 + 9 + 16,
    }
    for name, pair in losses.parts.items():
        assert float(pair.weight) == float(weights[name])
        assert losses.metrics[f"{name}_loss"] is pair


def test_loss_is_the_weighted_sum_of_both_losses():
    objective = build_objective(
        objective={"generator_weight": 3.0, "discriminator_weight": 20.0}
    )
    masked = objective.mask(TEXT, rng())
    values = compute_metrics(objective.losses(masked, rng(), training=False).metrics)
    expected = 3 * values["masked_lm_loss"] + 20 * values["disc_loss"]
    np.testing.assert_allclose(loss_of(objective, masked, rng()), expected, rtol=1e-6)
    # An untrained model is near chance.
    assert abs(values["masked_lm_loss"] - math.log(VOCABULARY)) < 0.3
    assert abs(values["disc_loss"] - math.log(2)) < 0.3


@pytest.mark.parametrize("sharing", ["none", "embeddings", "all"])
def test_each_loss_reaches_its_weights(sharing):
    full = {"generator_width": 1.0} if sharing == "all" else {}
    objective = build_objective(sharing=sharing, masking={"rate": 0.3}, **full)
    masked = objective.mask(TEXT, rng())
    _, lm_gradients = gradients(objective, masked, {"masked_lm": 1.0})
    _, disc_gradients = gradients(objective, masked, {"disc": 1.0})
    shared = {
        "none": (),
        "embeddings": ("discriminator/encoder/embeddings/",),
        "all": ("discriminator/encoder/",),
    }[sharing]
    for path in lm_gradients:
        from_lm = path.startswith(("generator/", *shared))
        from_disc = path.startswith("discriminator/")
        if "/key/bias" in path:  # shifts all scores of a query equally: gradient 0
            continue
        assert (lm_gradients[path] is not None) == from_lm, path
        assert (disc_gradients[path] is not None) == from_disc, path
        assert not from_lm or lm_gradients[path] > 0, path
        assert not from_disc or disc_gradients[path] > 0, path


def test_a_uniform_generator_has_no_weights_and_samples_uniformly():
    objective = build_objective(
        objective={"uniform_generator": True}, masking={"rate": 0.3}
    )
    paths = [v.path for v in objective.model.trainable_variables]
    assert all(path.startswith("electra/discriminator/") for path in paths)
    masked = objective.mask(TEXT, rng())
    losses = objective.losses(masked, rng(), training=True)
    values = compute_metrics(losses.metrics)
    assert not {"masked_lm_loss", "masked_lm_accuracy"} & values.keys()
    total, weight = map(float, losses.parts["masked_lm"])
    assert total / weight == pytest.approx(math.log(VOCABULARY), rel=1e-6)
    loss, grads = gradients(objective, masked)
    expected = math.log(VOCABULARY) + 50 * values["disc_loss"]
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    assert None not in grads.values()
    # Uniform samples equal the original token with probability 1 / VOCABULARY.
    many = Batch(*(tf.tile(field, [200, 1]) for field in TEXT))
    masked = objective.mask(many, rng())
    metrics = objective.losses(masked, rng(), training=False).metrics
    correct, num_samples = map(float, metrics["sampled_masked_lm_accuracy"])
    deviation = (num_samples / VOCABULARY) ** 0.5
    assert abs(correct - num_samples / VOCABULARY) < 5 * deviation


def test_a_unigram_generator_samples_by_the_counts_of_ordinary_tokens():
    counts_V = np.arange(VOCABULARY, dtype=np.int64) ** 2
    counts_V[TOKENS.vocabulary_size - 1] = 0
    counts_V[[0, TOKENS.cls, TOKENS.sep, TOKENS.mask]] = 10**6
    settings = config(
        objective={"unigram_generator": True}, masking={"rate": 0.3}, length=LENGTH
    )
    objective = ElectraObjective(
        settings, dataclasses.replace(TOKENS, counts_V=counts_V)
    )
    objective.model.build()
    assert objective.model.generator is None
    many = Batch(*(tf.tile(field, [300, 1]) for field in TEXT))
    masked = objective.mask(many, rng())
    corrupted, _ = objective._corrupt(
        masked, rng(), make_layer_ops(rng(), False, "off"), 0.0
    )
    drawn_BM = tf.gather(corrupted.corrupted_ids_BL, masked.positions_BM, batch_dims=1)
    drawn = np.bincount(drawn_BM.numpy()[masked.weights_BM == 1], minlength=VOCABULARY)
    counts_V[[0, TOKENS.cls, TOKENS.sep, TOKENS.mask]] = 0
    assert not drawn[counts_V == 0].any()
    p_V = counts_V[counts_V > 0] / counts_V.sum()
    assert abs(chi_square(drawn[counts_V > 0], p_V * drawn.sum())) < 5


def test_a_unigram_generator_needs_counts():
    with pytest.raises(InputError, match="unigram_generator"):
        build_objective(objective={"unigram_generator": True})


def test_the_discriminator_starts_later():
    settings = config(objective={"discriminator_start": 2}, masking={"rate": 0.3})
    settings = dataclasses.replace(settings, training=TrainingConfig(steps=4))
    pretrainer = Pretrainer(settings, TOKENS)
    pretrainer.compile(create_optimizer(OptimizerConfig(warmup_steps=0), steps=4))
    assert pretrainer.stage_starts == (2,)
    own = pretrainer.core.discriminator.encoder.trainable_variables[-1]
    start, metrics = own.numpy(), []
    for step in range(4):
        if step in (0, 2):
            pretrainer.begin(step)
        before = own.numpy()
        metrics.append(pretrainer.train_step(TEXT))
        assert np.array_equal(own.numpy(), before) == (step < 2)
    assert not np.array_equal(own.numpy(), start)
    assert ["disc_loss" in values for values in metrics] == [False, False, True, True]
    rates = [float(values["learning_rate"]) for values in metrics]
    np.testing.assert_allclose(rates, 5e-4 * (1 - np.arange(4) / 4), rtol=1e-6)
    with pytest.raises(InputError, match="one stage"):
        pretrainer.fit([TEXT])


@pytest.mark.parametrize(
    "settings",
    [
        {"discriminator_start": 5, "uniform_generator": True},
        {"discriminator_start": 5, "freeze_generator": True},
        {"discriminator_start": 5, "name": "mlm"},
        {"discriminator_start": 10**6},
        {"unigram_generator": True, "uniform_generator": True},
        {"first_stage": 0.3},
    ],
)
def test_settings_that_would_have_no_effect_are_errors(settings):
    with pytest.raises(ValueError, match="|".join(settings)):
        config(objective=settings, sharing="none")


def test_temperature_and_disallow_correct_reach_the_sampler(electra):
    settings = {"disallow_correct": True, "temperature": 0.5}
    other = build_objective(objective=settings, masking={"rate": 0.3})
    # A large output bias makes the generator always predict one token.
    masked = electra.mask(TEXT, rng())
    label = int(masked.labels_BM[0, 0])
    for objective in (electra, other):
        bias = objective.model.generator.head.output_bias
        bias.assign(tf.one_hot(label, VOCABULARY) * 30)
    predictions = float(tf.reduce_sum(masked.weights_BM))
    labelled = float(tf.reduce_sum(tf.cast(masked.labels_BM == label, tf.float32)))
    values = compute_metrics(electra.losses(masked, rng(), training=False).metrics)
    assert values["sampled_masked_lm_accuracy"] == pytest.approx(labelled / predictions)
    values = compute_metrics(other.losses(masked, rng(), training=False).metrics)
    assert values["sampled_masked_lm_accuracy"] == 0
    electra.model.generator.head.output_bias.assign(tf.zeros([VOCABULARY]))


@pytest.mark.parametrize("scheme", ["paper", "whole_word", "original"])
def test_a_batch_without_maskable_tokens_has_finite_losses_and_gradients(
    electra, scheme
):
    masker = Masker(MaskingConfig(scheme=scheme), TOKENS, LENGTH)
    masked = masker(batch([0, 3, 2, 0]), rng())
    assert not masked.weights_BM.numpy().any()
    loss, grads = gradients(electra, masked)
    assert 0 < float(loss) < 50
    assert all(np.isfinite(value) for value in grads.values() if value is not None)
    assert not any(v for path, v in grads.items() if path.startswith("generator/"))


def test_an_empty_batch_has_zero_loss_and_gradients(electra):
    loss, grads = gradients(electra, electra.mask(batch([0, 0]), rng()))
    assert float(loss) == 0
    assert not any(grads.values())


def test_loss_is_invariant_to_padding_and_row_order(electra):
    masked = electra.mask(TEXT, rng())
    uniform_BM2 = rng().uniform(3, 4, (electra.mask.max_predictions_per_seq, 2))
    loss = loss_of(electra, masked, FixedRng(uniform_BM2))
    order = [2, 0, 3, 1]
    reordered = type(masked)(*(tf.gather(field, order) for field in masked))
    reordered_loss = loss_of(
        electra, reordered, FixedRng(tf.gather(uniform_BM2, order))
    )
    np.testing.assert_allclose(reordered_loss, loss, rtol=1e-6)
    padding_BL = 1 - masked.input_mask_BL
    junk = masked._replace(
        input_ids_BL=masked.input_ids_BL + 9 * padding_BL,
        masked_ids_BL=masked.masked_ids_BL + 7 * padding_BL,
        segment_ids_BL=masked.segment_ids_BL + padding_BL,
    )
    junk_loss = loss_of(electra, junk, FixedRng(uniform_BM2))
    np.testing.assert_allclose(junk_loss, loss, rtol=1e-6)
    wider = type(masked)(
        *(
            tf.pad(field, [[0, 0], [0, 8]]) if field.shape[1] == LENGTH else field
            for field in masked
        )
    )
    wider_loss = loss_of(electra, wider, FixedRng(uniform_BM2))
    np.testing.assert_allclose(wider_loss, loss, rtol=1e-6)


def test_dropout_is_applied_in_training_only():
    objective = build_objective(dropout=0.3, attention_dropout=0.3)
    masked = objective.mask(TEXT, rng())
    losses = [
        float(loss_of(objective, masked, rng(), training=training))
        for training in (True, True, False, False)
    ]
    assert losses[0] == losses[1] != losses[2] == losses[3]
    other_step = loss_of(objective, masked, rng(1), {"masked_lm": 1.0}, training=True)
    first_step = loss_of(objective, masked, rng(), {"masked_lm": 1.0}, training=True)
    assert float(other_step) != float(first_step)


@pytest.mark.parametrize(
    ("progress", "expected"),
    [(0.0, 4.0), (0.1, 4.0), (0.2, 3.0), (0.3, 2.0), (0.65, 7.0), (1.0, 12.0)],
)
def test_schedules_are_linear_between_their_points(progress, expected):
    points = ((0.1, 2.0), (0.3, 1.0), (1.0, 6.0))
    assert float(scheduled(2.0, points, progress)) == pytest.approx(expected)
    assert float(scheduled(2.0, points, tf.constant(progress))) == pytest.approx(
        expected
    )
    assert scheduled(2.0, (), progress) == 2.0


@pytest.mark.parametrize("sampler", ["inverse_cdf", "gumbel"])
def test_scheduled_settings_equal_constant_ones(sampler):
    """At each share of training the losses are those of the constant settings."""
    points = ((0.0, 2.0), (0.5, 1.0))
    changing = build_objective(
        masking={"rate": 0.3},
        objective={
            "sampler": sampler,
            "temperature_schedule": points,
            "discriminator_weight_schedule": points,
        },
    )
    masked = changing.mask(TEXT, rng())
    for progress, factor in ((0.0, 2.0), (0.25, 1.5), (0.5, 1.0)):
        constant = build_objective(
            masking={"rate": 0.3},
            objective={
                "sampler": sampler,
                "temperature": factor,
                "discriminator_weight": 50.0 * factor,
            },
        )
        losses = changing.losses(masked, rng(), True, progress)
        total = losses.combined(changing.weights(masked))
        assert float(total) == pytest.approx(
            float(loss_of(constant, masked, rng(), training=True)), rel=1e-5
        )
        values = compute_metrics(losses.metrics)
        assert values["temperature"] == pytest.approx(factor)
        assert values["discriminator_weight"] == pytest.approx(50 * factor)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature_schedule": ((0.5, 1.0), (0.1, 2.0))}, "must rise"),
        ({"temperature_schedule": ((0.0, 0.0), (0.1, 2.0))}, "must be above 0"),
        ({"temperature_schedule": ((0.0, 1.0), (1.1, 2.0))}, "less than or equal"),
        (
            {"temperature_schedule": ((0.0, 2.0),), "uniform_generator": True},
            "temperature_schedule",
        ),
    ],
)
def test_invalid_schedules_are_errors(settings, message):
    with pytest.raises(ValueError, match=message):
        config(objective=settings)
