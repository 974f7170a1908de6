"""BERT's loss, by hand, and its encoder."""

import numpy as np
import pytest
import tensorflow as tf
from tiny import batch, objective, rng

from electra_tf.pretraining.metrics import compute_metrics

TEXT = batch([16, 12, 9, 16])


def test_loss_is_the_cross_entropy_of_masked_tokens():
    mlm = objective("mlm", objective={"generator_weight": 3.0})
    masked = mlm.mask(TEXT, rng())
    ids = masked.masked_ids_BL, masked.segment_ids_BL, masked.input_mask_BL
    logits_BMV = mlm.model(*ids, masked.positions_BM).numpy()
    used = masked.weights_BM.numpy() == 1
    probabilities_XV = tf.nn.softmax(logits_BMV).numpy()[used]
    labels_X = masked.labels_BM.numpy()[used]
    losses = mlm.losses(masked, rng(), training=True)
    expected = -3 * np.log(probabilities_XV[np.arange(used.sum()), labels_X]).mean()
    loss = losses.combined(mlm.weights(masked))
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    accuracy = compute_metrics(losses.metrics)["masked_lm_accuracy"]
    share = (logits_BMV.argmax(-1)[used] == labels_X).mean()
    assert accuracy == pytest.approx(share)


def test_encoder_equals_the_discriminators():
    ours, theirs = (
        {v.path.rpartition("/encoder/")[2]: v.numpy() for v in encoder.weights}
        for encoder in (objective("mlm").model.encoder, objective().model.encoder)
    )
    assert ours.keys() == theirs.keys()
    for path, array in theirs.items():
        np.testing.assert_array_equal(array, ours[path])
