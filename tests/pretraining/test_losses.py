import numpy as np
import pytest
import tensorflow as tf

from electra_tf.pretraining import losses
from electra_tf.pretraining.losses import mlm_predictions, replaced_token_loss
from tests.tiny import in_every_mode, log_softmax

RANDOM = np.random.default_rng(0)
LOGITS_BMV = RANDOM.normal(scale=3, size=(4, 3, 11)).astype(np.float32)
LABELS_BM = RANDOM.integers(0, 11, (4, 3)).astype(np.int32)
WEIGHTS_BM = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]], np.float32)
LOGITS_BL = RANDOM.normal(scale=3, size=(4, 6)).astype(np.float32)
FAKE_BL = RANDOM.integers(0, 2, (4, 6)).astype(np.int32)
MASK_BL = np.arange(6) < np.array([[6], [4], [1], [0]])


def masked_lm_loss(logits_BMV, labels_BM, weights_BM):
    return losses.masked_lm_loss(mlm_predictions(logits_BMV, labels_BM), weights_BM)


def assert_close(pair, total, weight):
    np.testing.assert_allclose(pair.total, total, rtol=1e-6)
    assert pair.total.dtype == pair.weight.dtype == tf.float32
    assert float(pair.weight) == weight


def test_masked_lm_loss():
    log_p_BMV = log_softmax(LOGITS_BMV)
    label_BM = np.take_along_axis(log_p_BMV, LABELS_BM[..., None], -1)[..., 0]
    total = -(label_BM * WEIGHTS_BM).sum()
    assert_close(masked_lm_loss(LOGITS_BMV, LABELS_BM, WEIGHTS_BM), total, 6)


def test_mlm_predictions_equal_tensorflow():
    far_BMV = LOGITS_BMV.copy()
    far_BMV[0, 0] *= 1e4  # what is not the largest has a probability of exactly 0
    logits_BMV, labels_BM = tf.constant(far_BMV), tf.constant(LABELS_BM)
    upstream_BM = tf.constant(RANDOM.normal(size=(4, 3)).astype(np.float32))

    def result(logits_BMV):
        with tf.GradientTape() as tape:
            tape.watch(logits_BMV)
            predictions = mlm_predictions(logits_BMV, labels_BM)
        gradient = tape.gradient(predictions.xent_BM, logits_BMV, upstream_BM)
        return (*predictions, gradient)

    with tf.GradientTape() as tape:
        tape.watch(logits_BMV)
        xent_BM = tf.nn.sparse_softmax_cross_entropy_with_logits(labels_BM, logits_BMV)
    gradient = tape.gradient(xent_BM, logits_BMV, upstream_BM)
    right_BM = tf.argmax(logits_BMV, -1, tf.int32) == labels_BM
    assert 0 < np.mean(right_BM) < 1
    assert (tf.nn.softmax(logits_BMV).numpy() == 0).any()
    expected = (xent_BM, tf.nn.softmax(logits_BMV), right_BM, gradient)
    for mode in in_every_mode(result, logits_BMV):
        for one, other in zip(mode, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=2e-6)


def test_replaced_token_loss():
    fake_BL = 1 / (1 + np.exp(-LOGITS_BL.astype(np.float64)))
    chance_BL = np.where(FAKE_BL == 1, fake_BL, 1 - fake_BL)
    total = -np.log(chance_BL[MASK_BL]).sum()
    assert_close(
        replaced_token_loss(LOGITS_BL, FAKE_BL, MASK_BL.astype(np.int32)), total, 11
    )


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_huge_logits_give_finite_losses_and_gradients(size):
    logits = tf.Variable(LOGITS_BL * size)
    with tf.GradientTape() as tape:
        one = replaced_token_loss(logits, FAKE_BL, MASK_BL.astype(np.int32)).total
        other = masked_lm_loss(logits[None], np.zeros((1, 4), "i"), np.ones((1, 4)))
        total = one + other.total
    assert np.isfinite(total)
    assert np.isfinite(tape.gradient(total, logits)).all()
