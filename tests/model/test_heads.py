import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.model.heads import MaskedLMHead, ReplacedTokenHead
from electra_tf.model.transformer import InitializerFactory

WIDTH, EMBEDDING, VOCABULARY = 16, 8, 50
RANDOM = np.random.default_rng(0)
X_BMD = RANDOM.normal(size=(3, 4, WIDTH)).astype(np.float32)
TABLE_VE = RANDOM.normal(size=(VOCABULARY, EMBEDDING)).astype(np.float32)


def with_random_weights(head):
    """Assign random weights to the head and return it."""
    for variable in head.trainable_variables:
        variable.assign(np.random.default_rng(1).normal(size=variable.shape))
    return head


def masked_lm_head(dtype=None, width=WIDTH, embedding=EMBEDDING):
    head = MaskedLMHead(width, embedding, VOCABULARY, InitializerFactory(0), dtype)
    head.build()
    return head


def replaced_token_head(dtype=None, width=WIDTH):
    head = ReplacedTokenHead(width, InitializerFactory(0), dtype)
    head.build()
    return head


def weights(head):
    return {
        v.path.removeprefix("head/"): v.numpy().astype(np.float64)
        for v in head.trainable_variables
    }


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / 2**0.5))


def test_masked_lm_head_equals_numpy():
    head = with_random_weights(masked_lm_head())
    arrays = weights(head)
    hidden = gelu(X_BMD @ arrays["dense/kernel"] + arrays["dense/bias"])
    centred = hidden - hidden.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    normed = normed * arrays["layer_norm/gamma"] + arrays["layer_norm/beta"]
    expected_BMV = normed @ TABLE_VE.T.astype(np.float64) + arrays["output_bias"]
    np.testing.assert_allclose(head(X_BMD, TABLE_VE), expected_BMV, atol=1e-4)


def test_replaced_token_head_equals_numpy():
    head = with_random_weights(replaced_token_head())
    arrays = weights(head)
    hidden = gelu(X_BMD @ arrays["dense/kernel"] + arrays["dense/bias"])
    expected_BL = (hidden @ arrays["score/kernel"] + arrays["score/bias"])[..., 0]
    logits_BL = head(X_BMD)
    assert logits_BL.shape == (3, 4)
    np.testing.assert_allclose(logits_BL, expected_BL, atol=1e-4)


def test_initial_values_have_the_originals_distributions():
    replaced = replaced_token_head(width=256)
    masked = masked_lm_head(width=256, embedding=128)
    for head in (replaced, masked):
        kernel = head.dense.kernel.numpy()
        assert np.abs(kernel).max() <= 0.04
        assert abs(kernel.std() - 0.0176) < 5e-4
        assert not head.dense.bias.numpy().any()
    assert not masked.output_bias.numpy().any()
    assert (masked.layer_norm.gamma.numpy() == 1).all()
    # Glorot-uniform of 256 x 1.
    score = np.abs(replaced.score.kernel.numpy())
    assert 0.148 < score.max() <= 0.1528
    assert abs(score.mean() - 0.1528 / 2) < 5 * 0.1528 / 12**0.5 / 16
    assert not replaced.score.bias.numpy().any()


def test_mixed_precision_does_not_round_the_token_table():
    head = with_random_weights(masked_lm_head("mixed_bfloat16"))
    hidden = head.layer_norm(head.dense(X_BMD))
    assert hidden.dtype == tf.bfloat16
    hidden_BME = tf.cast(hidden, tf.float32).numpy().astype(np.float64)

    def expected_logits(table_VE):
        return hidden_BME @ table_VE.T.astype(np.float64) + head.output_bias.numpy()

    logits_BMV = head(X_BMD, TABLE_VE)
    assert logits_BMV.dtype == tf.float32
    rounded_VE = tf.cast(tf.cast(TABLE_VE, tf.bfloat16), tf.float32).numpy()
    error = np.abs(logits_BMV - expected_logits(TABLE_VE)).max()
    assert error < 1e-5 < 1e-2 < np.abs(logits_BMV - expected_logits(rounded_VE)).max()


def test_mixed_precision_does_not_round_the_score():
    head = with_random_weights(replaced_token_head("mixed_bfloat16"))
    hidden = head.dense(X_BMD)
    assert hidden.dtype == tf.bfloat16
    hidden_BLD = tf.cast(hidden, tf.float32).numpy().astype(np.float64)
    kernel, bias = (v.numpy().astype(np.float64) for v in head.score.weights)
    logits_BL = head(X_BMD)
    assert logits_BL.dtype == tf.float32
    exact_BL = (hidden_BLD @ kernel + bias)[..., 0]
    np.testing.assert_allclose(logits_BL, exact_BL, atol=1e-5)
    rounded = tf.cast(tf.cast(kernel, tf.bfloat16), tf.float64).numpy()
    assert np.abs(logits_BL - (hidden_BLD @ rounded + bias)[..., 0]).max() > 1e-2


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_weights_are_float32(dtype):
    for head in (masked_lm_head(dtype), replaced_token_head(dtype)):
        assert {v.dtype for v in head.trainable_variables} == {"float32"}
        assert head.dense.compute_dtype == keras.DTypePolicy(dtype).compute_dtype
