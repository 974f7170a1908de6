"""Replaced-token detection, and the original tokens from the same states."""

import numpy as np
import pytest
from tiny import batch, objective, rng

from electra_tf.pretraining.metrics import compute_metrics

TEXT = batch([16, 12, 9, 16])


def test_the_third_loss_is_the_cross_entropy_of_the_originals():
    electra = objective()
    corrective = objective("corrective", objective={"main_weight": 3.0})
    model, masked = corrective.model, corrective.mask(TEXT, rng())
    losses = corrective.losses(masked, rng(), False)
    # Both losses of ELECTRA are unchanged.
    for name, loss in electra.losses(masked, rng(), False).parts.items():
        np.testing.assert_allclose(losses.parts[name].total, loss.total, rtol=1e-6)
    layer_ops = corrective.layer_ops(rng(), False)
    corrupted, _ = corrective._corrupt(masked, rng(), layer_ops, 0.0)
    x_BLD = model.encoder(
        corrupted.corrupted_ids_BL, masked.segment_ids_BL, masked.input_mask_BL
    ).numpy()
    table_VE = np.asarray(model.encoder.embeddings.word_embeddings)
    total = count = 0
    for row, slot in np.argwhere(masked.weights_BM.numpy() == 1):
        x_D = x_BLD[row, masked.positions_BM[row, slot]]
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
