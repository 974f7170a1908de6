"""LayerOps, compared with NumPy."""

import math

import keras
import numpy as np
import tensorflow as tf

from electra_tf.config.pretraining import ModelConfig
from electra_tf.model.layer_ops import LayerOps, gelu
from electra_tf.model.transformer import Block, InitializerFactory

RANDOM = np.random.default_rng(0)


def normal(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def test_gelu_is_exact():
    x = np.linspace(-6, 6, 241).astype(np.float32)
    expected = [value * 0.5 * (1 + math.erf(value / 2**0.5)) for value in x.tolist()]
    np.testing.assert_allclose(gelu(tf.constant(x)), expected, atol=2e-6)
    shifted = LayerOps().bias_gelu(tf.constant(x - 0.5), tf.constant(0.5))
    np.testing.assert_allclose(shifted, expected, atol=2e-6)


def test_attention_is_a_softmax_over_the_keys_without_padding():
    queries_BNLH, keys_BNKH = normal(2, 2, 3, 5), normal(2, 2, 4, 5)
    scores_BNLK = np.einsum("bnlh,bnkh->bnlk", queries_BNLH, keys_BNKH)
    off = keras.layers.Dropout(0.0)
    bias_B11K = np.zeros((2, 1, 1, 4), np.float32)
    bias_B11K[1, ..., 2:] = -10000
    # With one-hot values, the outputs are the attention probabilities.
    values_BNKH = tf.eye(scores_BNLK.shape[-1], batch_shape=scores_BNLK.shape[:2])
    outputs = LayerOps().attention(queries_BNLH, keys_BNKH, bias_B11K, values_BNKH, off)
    powers = np.exp(scores_BNLK) * (bias_B11K == 0)
    expected = powers / powers.sum(-1, keepdims=True)
    np.testing.assert_allclose(outputs, expected.transpose(0, 2, 1, 3), atol=1e-6)


def test_bias_dropout_add_norm_normalises_the_residual_sum():
    x, bias, residual = normal(2, 3, 8), normal(8), normal(2, 3, 8)
    norm = keras.layers.LayerNormalization(epsilon=1e-12)
    norm.build((None, None, 8))
    norm.gamma.assign(normal(8))
    norm.beta.assign(normal(8))
    off = keras.layers.Dropout(0.0)
    outputs = LayerOps().bias_dropout_add_norm(
        tf.constant(x), bias, residual, off, norm
    )
    total = (x + bias + residual).astype(np.float64)
    deviation = total.std(-1, keepdims=True)
    expected = (total - total.mean(-1, keepdims=True)) / deviation
    expected = expected * norm.gamma.numpy() + norm.beta.numpy()
    np.testing.assert_allclose(outputs, expected, atol=1e-5)


def test_a_block_applies_dropout_if_the_model_around_it_trains():
    shape = ModelConfig(vocabulary_size=9, width=8, heads=2, dropout=0.5).encoder
    inputs, bias = keras.Input((3, 8)), tf.zeros([1, 1, 1, 3])
    block = Block(shape, InitializerFactory(0), "layer_0")
    block.build()
    model = keras.Model(inputs, block(inputs, bias))
    x = tf.constant(normal(2, 3, 8))
    trained, tested = model(x, training=True).numpy(), model(x).numpy()
    assert np.abs(trained - tested).max() > 1e-4
    np.testing.assert_array_equal(tested, model(x, training=False))


def test_dropout_is_applied_in_training_only():
    x, dropout = tf.ones([50, 50]), keras.layers.Dropout(0.25)
    assert (LayerOps(training=False).dropout(x, dropout).numpy() == 1).all()
    dropped = LayerOps(training=True).dropout(x, dropout).numpy()
    assert 0.2 < (dropped == 0).mean() < 0.3
