import math

import numpy as np
import pytest
import tensorflow as tf
from tiny import MASK, TOKENS, VOCABULARY, batch, config

from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.pretraining.metrics import compute_metrics
from electra_tf.pretraining.objectives.electra import ElectraObjective
from electra_tf.pretraining.objectives.mlm import MaskedLMObjective

TEXT = batch([16, 12, 9, 16])


def build_objective(objective=None, **settings):
    mlm_objective = MaskedLMObjective(
        config(objective={"name": "mlm", **(objective or {})}, **settings), TOKENS
    )
    mlm_objective.model.build()
    return mlm_objective


@pytest.fixture(scope="module")
def mlm():
    return build_objective(masking={"rate": 0.3})


def rng(step=0):
    return make_rng(0, TRAINING, step)


def gradients(objective, masked):
    variables = objective.model.trainable_variables
    with tf.GradientTape() as tape:
        losses = objective.losses(masked, rng(), training=True)
        loss = losses.combined(objective.weights(masked))
    grads = tape.gradient(loss, [v.value for v in variables])
    return loss, [None if g is None else tf.convert_to_tensor(g) for g in grads]


def test_metric_names_equal_the_originals_and_the_loss_has_a_weight(mlm):
    masked = mlm.mask(TEXT, rng())
    losses = mlm.losses(masked, rng(), training=False)
    assert set(losses.metrics) == {"masked_lm_loss", "masked_lm_accuracy"}
    weights = mlm.weights(masked)
    assert set(weights) == set(losses.parts) == set(losses.factors) == {"masked_lm"}
    predictions = sum(math.ceil(0.3 * n) for n in (16, 12, 9, 16))
    assert float(weights["masked_lm"]) == predictions
    assert float(losses.parts["masked_lm"].weight) == predictions
    assert losses.metrics["masked_lm_loss"] is losses.parts["masked_lm"]


def test_loss_is_the_cross_entropy_of_masked_tokens():
    objective = build_objective({"generator_weight": 3.0}, masking={"rate": 0.3})
    masked = objective.mask(TEXT, rng())
    logits_BMV = objective.model(
        masked.masked_ids_BL,
        masked.segment_ids_BL,
        masked.input_mask_BL,
        masked.positions_BM,
    ).numpy()
    used = masked.weights_BM.numpy() == 1
    probabilities = tf.nn.softmax(logits_BMV).numpy()[used]
    label_probabilities = probabilities[
        np.arange(used.sum()), masked.labels_BM.numpy()[used]
    ]
    losses = objective.losses(masked, rng(), training=True)
    loss = losses.combined(objective.weights(masked))
    expected = -3 * np.log(label_probabilities).mean()
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    predicted = logits_BMV.argmax(-1)[used]
    assert compute_metrics(losses.metrics)["masked_lm_accuracy"] == pytest.approx(
        (predicted == masked.labels_BM.numpy()[used]).mean()
    )
    assert abs(float(loss) / 3 - math.log(VOCABULARY)) < 0.3


def test_every_weight_has_a_gradient(mlm):
    _, grads = gradients(mlm, mlm.mask(TEXT, rng()))
    assert all(g is not None and tf.reduce_any(g != 0) for g in grads)


def test_encoder_equals_the_discriminators(mlm):
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


def test_bert_replacement_keeps_some_tokens():
    objective = build_objective(masking={"rate": 0.5, "replacement": "bert"})
    masked = objective.mask(TEXT, rng())
    used = masked.weights_BM.numpy() == 1
    replacements = np.take_along_axis(
        masked.masked_ids_BL.numpy(), masked.positions_BM.numpy(), 1
    )[used]
    assert 0 < (replacements != MASK).sum() < used.sum() / 2
    loss, grads = gradients(objective, masked)
    assert abs(float(loss) - math.log(VOCABULARY)) < 0.3
    assert all(np.isfinite(g).all() for g in grads)


@pytest.mark.parametrize("lengths", [[0, 0], [2, 3]])
def test_a_batch_without_maskable_tokens_has_zero_loss_and_gradients(mlm, lengths):
    loss, grads = gradients(mlm, mlm.mask(batch(lengths), rng()))
    assert float(loss) == 0
    assert not any(np.any(g) for g in grads)


def test_dropout_is_applied_in_training_only():
    objective = build_objective(dropout=0.3)
    masked = objective.mask(TEXT, rng())
    losses = [
        float(objective.losses(masked, rng(), training).parts["masked_lm"].total)
        for training in (True, True, False, False)
    ]
    assert losses[0] == losses[1] != losses[2] == losses[3]
