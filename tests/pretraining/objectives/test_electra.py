import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.batch import Batch
from electra_tf.config.pretraining import MaskingConfig
from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.pretraining.masking import Masker
from electra_tf.pretraining.metrics import compute_metrics
from electra_tf.pretraining.objectives.electra import ElectraObjective
from pretraining.synthetic import LENGTH, TOKENS, VOCABULARY, batch, config

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


class Given:
    """Noise that hands out rows of its numbers; nothing is dropped."""

    def __init__(self, uniform):
        self.numbers = uniform

    def uniform(self, purpose, rows, shape):
        assert self.numbers.shape == (rows, *shape)
        return self.numbers

    def dropout(self):
        return None


def built(**settings):
    objective = ElectraObjective(config(**settings), TOKENS)
    objective.model.build()
    return objective


@pytest.fixture(scope="module")
def electra():
    return built(masking={"rate": 0.3})


def rng(step=0):
    return make_rng(0, TRAINING, step)


def loss_of(objective, masked, source, factors=None, training=False):
    losses = objective.losses(masked, source, training=training)
    if factors:
        losses = losses._replace(factors=factors)
    return losses.combined(objective.weights(masked))


def gradients(objective, masked, factors=None):
    """The largest absolute gradient of each weight; None where none arrives."""
    variables = objective.model.trainable_variables
    with tf.GradientTape() as tape:
        loss = loss_of(objective, masked, rng(), factors, training=True)
    found = tape.gradient(loss, [v.value for v in variables])
    return loss, {
        v.path.removeprefix("electra/"): g
        if g is None
        else float(tf.reduce_max(tf.abs(tf.convert_to_tensor(g))))
        for v, g in zip(variables, found, strict=True)
    }


def test_metrics_have_the_originals_names_and_losses_their_weights(electra):
    masked = electra.mask(TEXT, rng())
    losses = electra.losses(masked, rng(), training=False)
    assert set(losses.metrics) == METRICS
    weights = electra.weights(masked)
    assert set(weights) == set(losses.parts) == set(losses.factors)
    slots = sum(math.ceil(0.3 * n) for n in (16, 12, 9, 16))
    assert {name: float(weight) for name, weight in weights.items()} == {
        "masked_lm": slots,
        "disc": 16 + 12 + 9 + 16,
    }
    for name, pair in losses.parts.items():
        assert float(pair.weight) == float(weights[name])
        assert losses.metrics[f"{name}_loss"] is pair


def test_the_loss_is_the_weighted_sum_of_both():
    objective = built(objective={"generator_weight": 3.0, "discriminator_weight": 20.0})
    masked = objective.mask(TEXT, rng())
    values = compute_metrics(objective.losses(masked, rng(), training=False).metrics)
    expected = 3 * values["masked_lm_loss"] + 20 * values["disc_loss"]
    np.testing.assert_allclose(loss_of(objective, masked, rng()), expected, rtol=1e-6)
    # Who has learnt nothing yet is near chance.
    assert abs(values["masked_lm_loss"] - math.log(VOCABULARY)) < 0.3
    assert abs(values["disc_loss"] - math.log(2)) < 0.3


@pytest.mark.parametrize("sharing", ["none", "embeddings", "all"])
def test_who_learns_from_which_loss(sharing):
    full = {"generator_width": 1.0} if sharing == "all" else {}
    objective = built(sharing=sharing, masking={"rate": 0.3}, **full)
    masked = objective.mask(TEXT, rng())
    _, of_lm = gradients(objective, masked, {"masked_lm": 1.0})
    _, of_disc = gradients(objective, masked, {"disc": 1.0})
    shared = {
        "none": (),
        "embeddings": ("discriminator/encoder/embeddings/",),
        "all": ("discriminator/encoder/",),
    }[sharing]
    for path in of_lm:
        from_lm = path.startswith(("generator/", *shared))
        from_disc = path.startswith("discriminator/")
        if "/key/bias" in path:  # moves all scores of a query alike: 0 but for rounding
            continue
        assert (of_lm[path] is not None) == from_lm, path
        assert (of_disc[path] is not None) == from_disc, path
        assert not from_lm or of_lm[path] > 0, path
        assert not from_disc or of_disc[path] > 0, path


def test_a_uniform_generator_has_no_weights_and_knows_nothing():
    objective = built(objective={"uniform_generator": True}, masking={"rate": 0.3})
    paths = [v.path for v in objective.model.trainable_variables]
    assert all(path.startswith("electra/discriminator/") for path in paths)
    masked = objective.mask(TEXT, rng())
    losses = objective.losses(masked, rng(), training=True)
    values = compute_metrics(losses.metrics)
    assert not {"masked_lm_loss", "masked_lm_accuracy"} & values.keys()
    total, weight = map(float, losses.parts["masked_lm"])
    assert total / weight == pytest.approx(math.log(VOCABULARY), rel=1e-6)
    loss, found = gradients(objective, masked)
    expected = math.log(VOCABULARY) + 50 * values["disc_loss"]
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    assert None not in found.values()
    # It samples evenly: right once in a vocabulary.
    many = Batch(*(tf.tile(field, [200, 1]) for field in TEXT))
    masked = objective.mask(many, rng())
    metrics = objective.losses(masked, rng(), training=False).metrics
    hits, drawn = map(float, metrics["sampled_masked_lm_accuracy"])
    deviation = (drawn / VOCABULARY) ** 0.5
    assert abs(hits - drawn / VOCABULARY) < 5 * deviation


def test_temperature_and_disallow_correct_reach_the_sampler(electra):
    settings = {"disallow_correct": True, "temperature": 0.5}
    other = built(objective=settings, masking={"rate": 0.3})
    # A generator that knows the text: its bias is far up for one token.
    masked = electra.mask(TEXT, rng())
    label = int(masked.labels_BM[0, 0])
    for objective in (electra, other):
        bias = objective.model.generator.head.output_bias
        bias.assign(tf.one_hot(label, VOCABULARY) * 30)
    slots = float(tf.reduce_sum(masked.weights_BM))
    labelled = float(tf.reduce_sum(tf.cast(masked.labels_BM == label, tf.float32)))
    values = compute_metrics(electra.losses(masked, rng(), training=False).metrics)
    assert values["sampled_masked_lm_accuracy"] == pytest.approx(labelled / slots)
    values = compute_metrics(other.losses(masked, rng(), training=False).metrics)
    assert values["sampled_masked_lm_accuracy"] == 0
    electra.model.generator.head.output_bias.assign(tf.zeros([VOCABULARY]))


@pytest.mark.parametrize("scheme", ["paper", "whole_word", "original"])
def test_a_batch_with_nothing_to_mask_gives_finite_losses_and_gradients(
    electra, scheme
):
    masker = Masker(MaskingConfig(scheme=scheme), TOKENS, LENGTH)
    masked = masker(batch([0, 3, 2, 0]), rng())
    assert not masked.weights_BM.numpy().any()
    loss, found = gradients(electra, masked)
    assert 0 < float(loss) < 50
    assert all(np.isfinite(value) for value in found.values() if value is not None)
    assert not any(v for path, v in found.items() if path.startswith("generator/"))


def test_an_empty_batch_changes_nothing(electra):
    loss, found = gradients(electra, electra.mask(batch([0, 0]), rng()))
    assert float(loss) == 0
    assert not any(found.values())


def test_padding_and_the_order_of_rows_do_not_matter(electra):
    masked = electra.mask(TEXT, rng())
    uniform_BM2 = rng().uniform(3, 4, (electra.mask.max_predictions_per_seq, 2))
    loss = loss_of(electra, masked, Given(uniform_BM2))
    order = [2, 0, 3, 1]
    moved = type(masked)(*(tf.gather(field, order) for field in masked))
    found = loss_of(electra, moved, Given(tf.gather(uniform_BM2, order)))
    np.testing.assert_allclose(found, loss, rtol=1e-6)
    padding_BL = 1 - masked.input_mask_BL
    junk = masked._replace(
        input_ids_BL=masked.input_ids_BL + 9 * padding_BL,
        masked_ids_BL=masked.masked_ids_BL + 7 * padding_BL,
        segment_ids_BL=masked.segment_ids_BL + padding_BL,
    )
    found = loss_of(electra, junk, Given(uniform_BM2))
    np.testing.assert_allclose(found, loss, rtol=1e-6)
    wider = type(masked)(
        *(
            tf.pad(field, [[0, 0], [0, 8]]) if field.shape[1] == LENGTH else field
            for field in masked
        )
    )
    found = loss_of(electra, wider, Given(uniform_BM2))
    np.testing.assert_allclose(found, loss, rtol=1e-6)


def test_training_drops_values_and_evaluation_does_not():
    dropping = built(dropout=0.3, attention_dropout=0.3)
    masked = dropping.mask(TEXT, rng())
    found = [
        float(loss_of(dropping, masked, rng(), training=training))
        for training in (True, True, False, False)
    ]
    assert found[0] == found[1] != found[2] == found[3]
    masked_lm = loss_of(dropping, masked, rng(1), {"masked_lm": 1.0}, training=True)
    first = loss_of(dropping, masked, rng(), {"masked_lm": 1.0}, training=True)
    assert float(masked_lm) != float(first)
