"""Kernels for GPUs, interpreted by JAX on a CPU, equal TensorFlow's operations."""

import importlib
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from tests.conftest import ROOT

pytest.importorskip("jax", reason="needs the extra tpu-check or gpu-check")
import jax.numpy as jnp

BATCH, LENGTH, HEADS, SIZE = 3, 32, 2, 16
WIDTH, INNER = 24, 32  # a width that is no power of 2
RATE, EPSILON = 0.3, 1e-12
RANDOM = np.random.default_rng(0)
SEEDS = RANDOM.integers(0, 2**32, (BATCH, 2), np.uint32)


@pytest.fixture(scope="module")
def kernels():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools" / "one_gpu"))
        module = importlib.import_module("gpu_kernels")
        module.interpret()
        yield module
        module.interpret(False)


def normal(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


class Seeds:
    """Dropout seeds of one call."""

    def seeds(self, x):
        return tf.constant(SEEDS)


def norm_kernels(kernels):
    settings = {"rate": RATE, "block": 16}

    def forward(*x):
        return kernels.add_norm(*x, SEEDS, **settings, epsilon=EPSILON)

    def backward(tensors, upstream):
        _, *sums = forward(*tensors)
        grad_x, grad_residual, grads = kernels.add_norm_backward(
            upstream, *sums, jnp.asarray(tensors[3]), SEEDS, **settings
        )
        return grad_x, grad_residual, *grads.sum(0)

    def plain(x, residual, bias, gamma, beta):
        norm = types.SimpleNamespace(gamma=gamma, beta=beta, epsilon=EPSILON)
        x, residual = (tf.reshape(t, [BATCH, LENGTH, WIDTH]) for t in (x, residual))
        dropout = keras.layers.Dropout(RATE)
        result = FusedLayerOps(Seeds()).bias_dropout_add_norm(
            x, bias, residual, dropout, norm
        )
        return tf.reshape(result, [-1, WIDTH])

    shape = BATCH * LENGTH, WIDTH
    tensors = normal(*shape), normal(*shape), *normal(3, WIDTH)
    return lambda *x: forward(*x)[0], backward, plain, tensors


def feed_forward_kernels(kernels):
    def plain(x, first, bias, second):
        return FusedLayerOps(None).bias_gelu(x @ first, bias) @ second

    def forward(x, first, bias, second):
        return kernels.matmul_gelu(x, first, bias)[1] @ second

    def backward(tensors, upstream):
        x, first, bias, second = tensors
        product, inner = kernels.matmul_gelu(x, first, bias)
        grad, sums = kernels.matmul_gelu_backward(upstream, second, product, bias)
        return grad @ first.T, x.T @ grad, sums.sum(0), inner.T @ upstream

    first, second = normal(WIDTH, INNER) / 4, normal(INNER, WIDTH) / 4
    tensors = normal(BATCH * LENGTH, WIDTH), first, normal(INNER), second
    return forward, backward, plain, tensors


def attention_kernels(kernels):
    shape = BATCH, LENGTH, 3, HEADS, SIZE
    size = 3 * HEADS * SIZE
    mask = np.where(np.arange(LENGTH) < np.array([[32], [20], [7]]), 0, -1e4)
    mask = mask.astype(np.float32)

    def call(qkv, bias):
        operands = qkv, bias, mask, SEEDS
        return operands, kernels.attention(*operands, rate=RATE, block=16)

    def backward(tensors, upstream):
        operands, results = call(*tensors)
        grad, grad_bias = kernels.attention_backward(
            *operands, *results, upstream, rate=RATE, block=16
        )
        return grad, grad_bias.sum(0)

    def plain(qkv, bias):
        qkv += tf.cast(tf.reshape(bias, [3, HEADS, SIZE]), qkv.dtype)
        q, k, v = (tf.transpose(t, (0, 2, 1, 3)) for t in tf.unstack(qkv, axis=2))
        dropout = keras.layers.Dropout(RATE)
        return FusedLayerOps(Seeds()).attention(
            q * SIZE**-0.5, k, mask[:, None, None], v, dropout
        )

    tensors = normal(*shape), normal(size)
    return lambda *x: call(*x)[1][0], backward, plain, tensors


ALL = {
    "norm": norm_kernels,
    "feed_forward": feed_forward_kernels,
    "attention": attention_kernels,
}


def as_float32(x):
    return np.asarray(jnp.asarray(x).astype(jnp.float32))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2**-6)]
)
@pytest.mark.parametrize("name", ALL)
def test_values_and_gradients_equal_those_of_tensorflow(
    kernels, name, dtype, tolerance
):
    forward, backward, plain, tensors = ALL[name](kernels)
    # Vectors are float32 in buffers.
    lows = [jnp.asarray(x, dtype if x.ndim > 1 else "float32") for x in tensors]
    result = forward(*lows)
    upstream = jnp.asarray(normal(*result.shape), dtype)
    actual = result, *backward(lows, upstream)
    sources = [tf.cast(tf.constant(as_float32(x)), x.dtype.name) for x in lows]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        expected = plain(*sources)
    upstream = tf.cast(tf.constant(as_float32(upstream)), dtype)
    expected = expected, *tape.gradient(expected, sources, upstream)
    assert (np.asarray(tf.cast(expected[0], tf.float32)) != 0).any()
    for one, other in zip(actual, expected, strict=True):
        other = tf.cast(other, tf.float32).numpy()
        atol = tolerance * np.abs(other).max()
        np.testing.assert_allclose(as_float32(one), other, tolerance, atol)


@pytest.mark.parametrize("name", ALL)
def test_gradients_equal_finite_differences(kernels, name):
    forward, backward, _, tensors = ALL[name](kernels)
    upstream = normal(*forward(*tensors).shape)
    gradients = backward([jnp.asarray(x) for x in tensors], jnp.asarray(upstream))
    step = 2e-3
    for index, gradient in enumerate(gradients):
        direction = normal(*tensors[index].shape)
        sums = []
        for sign in (1, -1):
            moved = [*tensors]
            moved[index] = tensors[index] + sign * step * direction
            result = as_float32(forward(*moved)).astype(np.float64)
            sums.append((result * upstream).sum())
        slope = (sums[0] - sums[1]) / (2 * step)
        expected = (as_float32(gradient) * direction).sum()
        scale = np.linalg.norm(gradient) * np.linalg.norm(direction)
        assert abs(slope - expected) < 1e-3 * scale


def test_the_error_function_is_exact(kernels):
    x = np.linspace(-6, 6, 10001).astype(np.float32)
    exact = tf.math.erf(tf.constant(x, tf.float64))
    np.testing.assert_allclose(kernels.erf(jnp.asarray(x)), exact, atol=5e-7)
