"""Fused layer operations equal the plain ones, forward and backward."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.model import EncoderConfig
from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from electra_tf.kernels.rng import TRAINING, apply_dropout, make_rng
from electra_tf.model.layer_ops import LayerOps
from electra_tf.model.transformer import Embeddings, InitializerFactory
from tests.tiny import in_every_mode

RANDOM = np.random.default_rng(0)
OFF, ON = keras.layers.Dropout(0.0), keras.layers.Dropout(0.3)


def normal(*shape):
    return tf.constant(RANDOM.normal(size=shape).astype(np.float32))


def dropout():
    return make_rng(0, TRAINING, 5).dropout()


class SameSeeds(LayerOps):
    """Plain layer operations with the dropout of the fused ones."""

    def __init__(self):
        super().__init__()
        self._dropout = dropout()

    def dropout(self, x, dropout):
        if not dropout.rate:
            return x
        return apply_dropout(x, self._dropout.seeds(x), dropout.rate)


@pytest.fixture(scope="module")
def norm():
    layer = keras.layers.LayerNormalization(epsilon=1e-12)
    layer.build((None, None, 8))
    layer.gamma.assign(normal(8))
    layer.beta.assign(normal(8))
    return layer


def layer_ops_of(norm, dropout):
    """Return each operation as a function of (layer_ops, tensors), with its tensors."""
    bias_B11K = tf.constant([0.0, 0.0, -10000.0, -10000.0])[None, None, None]
    weights = norm.gamma.value, norm.beta.value

    def add_norm(layer_ops, x, bias, residual, gamma, beta):
        layer_norm = type("Norm", (), {"gamma": gamma, "beta": beta, "epsilon": 1e-12})
        if isinstance(layer_ops, SameSeeds):
            return norm(residual + layer_ops.dropout(x + bias, dropout))
        return layer_ops.bias_dropout_add_norm(x, bias, residual, dropout, layer_norm)

    return {
        "gelu": (
            lambda layer_ops, *x: layer_ops.bias_gelu(*x),
            (3 * normal(4, 6, 8), normal(8)),
        ),
        "attend": (
            lambda layer_ops, q, k, v: layer_ops.attention(q, k, bias_B11K, v, dropout),
            (normal(4, 2, 6, 3), normal(4, 2, 4, 3), normal(4, 2, 4, 5)),
        ),
        "drop": (
            lambda layer_ops, x: layer_ops.dropout(x, dropout),
            (normal(4, 6, 8),),
        ),
        "add_norm": (add_norm, (normal(4, 6, 8), normal(8), normal(4, 6, 8), *weights)),
        **{
            name: (
                lambda layer_ops, x, kernel: layer_ops.matmul(x, kernel),
                (normal(4, 6, inner), normal(inner, outer)),
            )
            for name, inner, outer in (("widening", 8, 12), ("narrowing", 8, 6))
        },
    }


NAMES = ["gelu", "attend", "drop", "add_norm", "widening", "narrowing"]
ON_CPU = [False, True]


@pytest.mark.parametrize("on_cpu", ON_CPU)
@pytest.mark.parametrize(
    ("name", "layer"),
    [(name, OFF) for name in NAMES]
    + [(name, ON) for name in ("attend", "drop", "add_norm")],
)
def test_values_and_gradients_equal_the_plain_operations(norm, layer, name, on_cpu):
    operation, tensors = layer_ops_of(norm, layer)[name]
    tensors = [tf.convert_to_tensor(x) for x in tensors]
    upstream = normal(*operation(SameSeeds(), *tensors).shape)

    def values_and_gradients(make, *tensors):
        sources = list(tensors)
        with tf.GradientTape() as tape:
            tape.watch(sources)
            watched = [*sources]
            if make is SameSeeds and name == "add_norm":
                watched[3:] = norm.gamma.value, norm.beta.value
            result = operation(make(), *watched)
        if make is SameSeeds and name == "add_norm":
            sources[3:] = norm.gamma.value, norm.beta.value
        return result, *tape.gradient(result, sources, upstream)

    expected = values_and_gradients(SameSeeds, *tensors)
    assert all(np.ptp(values) > 0 for values in expected)
    fused = functools.partial(_fused, on_cpu)
    # Steps that XLA compiles do not set `on_cpu`.
    for mode in in_every_mode(
        lambda *x: values_and_gradients(fused, *x), *tensors, xla=not on_cpu
    ):
        for actual, reference in zip(mode, expected, strict=True):
            np.testing.assert_allclose(actual, reference, rtol=2e-5, atol=2e-6)


def _fused(on_cpu):
    return FusedLayerOps(dropout(), on_cpu)


@pytest.mark.parametrize("on_cpu", ON_CPU)
@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_is_computed_in_float32(norm, name, on_cpu):
    operation, tensors = layer_ops_of(norm, ON)[name]
    low = [tf.cast(x, tf.bfloat16) for x in tensors]
    with tf.GradientTape() as tape:
        tape.watch(low)
        result = operation(_fused(on_cpu), *low)
    gradients = tape.gradient(result, low)
    high = [tf.cast(x, tf.float32) for x in low]
    with tf.GradientTape() as tape:
        tape.watch(high)
        expected = operation(_fused(on_cpu), *high)
    for actual, reference in zip(
        [result, *gradients], [expected, *tape.gradient(expected, high)], strict=True
    ):
        assert actual.dtype == tf.bfloat16
        # Only the result is rounded, or truncated by the matmuls of processors without
        # bfloat16 instructions. Attention also rounds its matmuls, and the layer norm
        # rounds the sum that it stores for the backward pass.
        rounds = name == "attend" or (name == "add_norm" and actual is not result)
        atol = 2**-5 * np.abs(reference).max() if rounds else 0
        np.testing.assert_allclose(tf.cast(actual, tf.float32), reference, 2**-7, atol)


@pytest.mark.parametrize("on_cpu", ON_CPU)
def test_the_gradient_of_a_table_is_the_sum_over_its_uses(on_cpu):
    table = keras.Variable(RANDOM.normal(size=(7, 4)).astype(np.float32))
    ids, others = tf.constant([[1, 2, 2]]), tf.constant([[2, 6]])
    upstream, more = normal(1, 3, 4), normal(1, 2, 4)
    x_XE, bias_V, of_scores_XV = normal(5, 4), normal(7), normal(5, 7)

    def total(layer_ops):
        return (
            tf.reduce_sum(layer_ops.embedding_lookup(table, ids) * upstream)
            + tf.reduce_sum(layer_ops.embedding_lookup(table, others) * more)
            + tf.reduce_sum(layer_ops.vocab_logits(x_XE, table, bias_V) * of_scores_XV)
        )

    def gradient():
        with tf.GradientTape() as tape:
            tape.watch(bias_V)
            loss = total(FusedLayerOps(None, on_cpu))
        return loss, *tape.gradient(loss, (table.value, bias_V))

    expected = of_scores_XV.numpy().T @ x_XE.numpy()
    for rows, values in ((ids, upstream), (others, more)):
        np.add.at(expected, rows.numpy()[0], values.numpy()[0])
    for loss, result, of_bias in in_every_mode(gradient, xla=not on_cpu):
        np.testing.assert_allclose(loss, total(LayerOps()), rtol=1e-6)
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(of_bias, of_scores_XV.numpy().sum(0), rtol=1e-6)


@pytest.mark.parametrize("layer_ops", [LayerOps(), FusedLayerOps(None, on_cpu=True)])
def test_vocab_logits_of_a_bfloat16_layer_are_exact(layer_ops):
    shape = EncoderConfig(
        depth=1, width=16, embedding=16, heads=1, feed_forward=16, vocabulary_size=30,
        max_positions=8, segments=2, dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    layer = Embeddings(shape, InitializerFactory(1, stddev=1.0), dtype="mixed_bfloat16")
    ids, x_XE = tf.constant([[3, 4, 5]]), normal(5, 16)

    class Model(keras.Model):
        def call(self, ids):
            result = layer(ids, tf.zeros_like(ids), layer_ops=layer_ops)
            assert result.dtype == tf.bfloat16
            return layer_ops.vocab_logits(x_XE, layer.word_embeddings, tf.zeros(30))

    found_XV = Model(dtype="mixed_bfloat16")(ids)
    table_VE = layer.word_embeddings.numpy()
    np.testing.assert_allclose(found_XV, x_XE.numpy() @ table_VE.T, atol=1e-5)
    rounded_VE = tf.cast(tf.cast(table_VE, tf.bfloat16), tf.float32).numpy()
    assert np.abs(found_XV - x_XE.numpy() @ rounded_VE.T).max() > 1e-3
