import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.pretraining.metrics import compute_metrics
from electra_tf.pretraining.objectives.electra import ElectraObjective
from electra_tf.pretraining.objectives.mlm import MaskedLMObjective
from pretraining.synthetic import MASK, TOKENS, VOCABULARY, batch, config

TEXT = batch([16, 12, 9, 16])


def built(objective=None, **settings):
    found = MaskedLMObjective(
        config(objective={"name": "mlm", **(objective or {})}, **settings), TOKENS
    )
    found.model.build()
    return found


@pytest.fixture(scope="module")
def mlm():
    return built(masking={"rate": 0.3})


def rng(step=0):
    return make_rng(0, TRAINING, step)


def gradients(objective, masked):
    variables = objective.model.trainable_variables
    with tf.GradientTape() as tape:
        losses = objective.losses(masked, rng(), training=True)
        loss = losses.combined(objective.weights(masked))
    found = tape.gradient(loss, [v.value for v in variables])
    return loss, [None if g is None else tf.convert_to_tensor(g) for g in found]


def test_metrics_have_the_originals_names_and_the_loss_its_weight(mlm):
    masked = mlm.mask(TEXT, rng())
    losses = mlm.losses(masked, rng(), training=False)
    assert set(losses.metrics) == {"masked_lm_loss", "masked_lm_accuracy"}
    weights = mlm.weights(masked)
    assert set(weights) == set(losses.parts) == set(losses.factors) == {"masked_lm"}
    slots = sum(math.ceil(0.3 * n) for n in (16, 12, 9, 16))
    assert float(weights["masked_lm"]) == slots
    assert float(losses.parts["masked_lm"].weight) == slots
    assert losses.metrics["masked_lm_loss"] is losses.parts["masked_lm"]


def test_the_loss_is_that_of_the_masked_tokens_by_hand():
    objective = built({"generator_weight": 3.0}, masking={"rate": 0.3})
    masked = objective.mask(TEXT, rng())
    logits_BMV = objective.model(
        masked.masked_ids_BL,
        masked.segment_ids_BL,
        masked.input_mask_BL,
        masked.positions_BM,
    ).numpy()
    used = masked.weights_BM.numpy() == 1
    chances = tf.nn.softmax(logits_BMV).numpy()[used]
    right = chances[np.arange(used.sum()), masked.labels_BM.numpy()[used]]
    losses = objective.losses(masked, rng(), training=True)
    loss = losses.combined(objective.weights(masked))
    np.testing.assert_allclose(loss, -3 * np.log(right).mean(), rtol=1e-5)
    guesses = logits_BMV.argmax(-1)[used]
    assert compute_metrics(losses.metrics)["masked_lm_accuracy"] == pytest.approx(
        (guesses == masked.labels_BM.numpy()[used]).mean()
    )
    assert abs(float(loss) / 3 - math.log(VOCABULARY)) < 0.3


def test_every_weight_learns(mlm):
    _, found = gradients(mlm, mlm.mask(TEXT, rng()))
    assert all(g is not None and tf.reduce_any(g != 0) for g in found)


def test_its_encoder_is_the_discriminators(mlm):
    other = ElectraObjective(config(), TOKENS)
    other.model.build()
    ours = {v.path.removeprefix("bert/"): v for v in mlm.model.trainable_variables}
    prefix = "electra/discriminator/"
    theirs = {
        v.path.removeprefix(prefix): v for v in other.model.encoder.trainable_variables
    }
    assert {path for path in ours if path.startswith("encoder/")} == set(theirs)
    for path, variable in theirs.items():
        np.testing.assert_array_equal(variable, ours[path])
    heads = {path for path in ours if path.startswith("head/")}
    assert set(ours) == set(theirs) | heads
    assert tuple(mlm.model.head.output_bias.shape) == (VOCABULARY,)


def test_berts_own_writing_is_a_switch():
    objective = built(masking={"rate": 0.5, "replacement": "bert"})
    masked = objective.mask(TEXT, rng())
    used = masked.weights_BM.numpy() == 1
    written = np.take_along_axis(
        masked.masked_ids_BL.numpy(), masked.positions_BM.numpy(), 1
    )[used]
    assert 0 < (written != MASK).sum() < used.sum() / 2
    loss, found = gradients(objective, masked)
    assert abs(float(loss) - math.log(VOCABULARY)) < 0.3
    assert all(np.isfinite(g).all() for g in found)


@pytest.mark.parametrize("lengths", [[0, 0], [2, 3]])
def test_a_batch_with_nothing_to_mask_changes_nothing(mlm, lengths):
    loss, found = gradients(mlm, mlm.mask(batch(lengths), rng()))
    assert float(loss) == 0
    assert not any(np.any(g) for g in found)


def test_training_drops_values_and_evaluation_does_not():
    objective = built(dropout=0.3)
    masked = objective.mask(TEXT, rng())
    found = [
        float(objective.losses(masked, rng(), training).parts["masked_lm"].total)
        for training in (True, True, False, False)
    ]
    assert found[0] == found[1] != found[2] == found[3]
