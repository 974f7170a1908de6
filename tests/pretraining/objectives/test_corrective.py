"""Replaced-token detection, and the original tokens from the same states."""

import numpy as np
import pytest
import tensorflow as tf
from tiny import TOKENS, batch, config

from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.pretraining.metrics import compute_metrics
from electra_tf.pretraining.objectives.common import make_layer_ops
from electra_tf.pretraining.objectives.corrective import CorrectiveObjective
from electra_tf.pretraining.objectives.electra import ElectraObjective

TEXT = batch([16, 12, 9, 16])


def build(kind, name, **objective):
    settings = config(masking={"rate": 0.3}, objective={"name": name, **objective})
    result = kind(settings, TOKENS)
    result.model.build()
    return result


def rng():
    return make_rng(0, TRAINING, 0)


@pytest.fixture(scope="module")
def corrective():
    return build(CorrectiveObjective, "corrective", main_weight=3.0)


@pytest.fixture(scope="module")
def result(corrective):
    """Return the losses, and the gradient of the corrector's loss by path."""
    masked = corrective.mask(TEXT, rng())
    with tf.GradientTape() as tape:
        losses = corrective.losses(masked, rng(), False)
        total, weight = losses.parts["main_lm"]
        mean = total / weight
    variables = corrective.model.trainable_variables
    values = tape.gradient(mean, [v.value for v in variables])
    return losses, {v.path: g for v, g in zip(variables, values, strict=True)}


def test_both_losses_of_electra_are_unchanged(result):
    electra = build(ElectraObjective, "electra")
    expected = electra.losses(electra.mask(TEXT, rng()), rng(), False)
    for name, loss in expected.parts.items():
        np.testing.assert_allclose(result[0].parts[name].total, loss.total, rtol=1e-6)


def test_the_third_loss_is_the_cross_entropy_of_the_originals(corrective, result):
    losses, _ = result
    model, masked = corrective.model, corrective.mask(TEXT, rng())
    corrupted, _ = corrective._corrupt(
        masked, rng(), make_layer_ops(rng(), False, "off"), 0.0
    )
    x_BLD = model.encoder(
        corrupted.corrupted_ids_BL, masked.segment_ids_BL, masked.input_mask_BL
    ).numpy()
    table_VE = np.asarray(model.encoder.embeddings.word_embeddings)
    total = count = 0
    for row, positions in enumerate(masked.positions_BM.numpy()):
        for slot, position in enumerate(positions):
            if masked.weights_BM[row, slot] == 0:
                continue
            x_D = x_BLD[row, position]
            hidden_E = np.asarray(model.corrector.outputs(x_D[None, None]))[0]
            logits_V = table_VE @ hidden_E + np.asarray(model.corrector.output_bias)
            log_sum = np.log(np.exp(logits_V).sum())
            total += log_sum - logits_V[masked.labels_BM[row, slot]]
            count += 1
    np.testing.assert_allclose(losses.parts["main_lm"], [total, count], rtol=1e-5)
    values = compute_metrics(losses.metrics)
    assert values["main_lm_loss"] == pytest.approx(total / count, rel=1e-5)
    combined = losses.combined(corrective.weights(masked))
    expected = values["masked_lm_loss"] + 50 * values["disc_loss"]
    assert float(combined) == pytest.approx(expected + 3 * total / count, rel=1e-5)


def test_it_trains_the_encoder_and_its_head_alone(result):
    for path, gradient in result[1].items():
        trained = path.startswith(
            ("electra/discriminator/encoder", "electra/corrector")
        )
        assert (gradient is not None) == trained, path
