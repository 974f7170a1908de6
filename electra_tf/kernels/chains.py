"""The towers' chains in one pass over memory each, forward and backward.

On a CPU what stands between the products took half of a small model's step, as each
operation reads and writes all of its tensor. Here XLA makes one loop of a chain, and
the backward passes, written by hand, recompute from a chain's inputs what automatic
ones would have stored. Products and attention's softmax, which is kept for its backward
pass, stay outside: oneDNN's are faster. Where XLA compiles the whole step, the chains
are simply part of it.
"""

import math
from collections.abc import Callable

import keras
import tensorflow as tf

from electra_tf.kernels.noise import Dropout, kept
from electra_tf.model.chains import Chains


def loop(function: Callable) -> Callable:
    """Compiles a function of tensors into one loop over them."""
    return tf.function(function, jit_compile=True, autograph=False)


class FusedChains(Chains):
    """The chains of one step.

    Args:
        dropout: Where it gets its random bits; None drops nothing.
    """

    def __init__(self, dropout: Dropout | None):
        super().__init__(training=dropout is not None)
        self._dropout = dropout
        self._tables: dict[int, tuple[tf.Tensor, tf.Tensor]] = {}

    def rows(self, table_VE: keras.Variable, ids: tf.Tensor) -> tf.Tensor:
        """As the plain one, float32."""
        return tf.gather(self._uses(table_VE)[0], ids)

    def whole(self, table_VE: keras.Variable) -> tf.Tensor:
        """As the plain one."""
        return self._uses(table_VE)[1]

    def drop(self, x: tf.Tensor, dropout: keras.layers.Dropout) -> tf.Tensor:
        """As the plain one, with the step's random bits."""
        bits = self._bits(x, dropout)
        return kept(x, bits, dropout.rate)

    def gelu(self, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """As the plain one."""
        return _gelu(x, tf.convert_to_tensor(bias))

    def attend(
        self,
        scores_BNLK: tf.Tensor,
        bias_B11K: tf.Tensor,
        values_BNKH: tf.Tensor,
        dropout: keras.layers.Dropout,
    ) -> tf.Tensor:
        """As the plain one; only the softmax is kept for the backward pass."""
        bits, rate = self._bits(scores_BNLK, dropout), dropout.rate
        added_B11K = tf.cast(bias_B11K, tf.float32)

        @tf.custom_gradient
        def chain(scores_BNLK: tf.Tensor, values_BNKH: tf.Tensor):
            dtype = values_BNKH.dtype
            weights_BNLK = tf.nn.softmax(tf.cast(scores_BNLK, tf.float32) + added_B11K)

            def gradient(upstream_BNLH):
                with tf.control_dependencies([upstream_BNLH]):  # or it were kept
                    kept_BNLK = _attend_kept(weights_BNLK, bits, rate, dtype)
                of_values = tf.matmul(kept_BNLK, upstream_BNLH, transpose_a=True)
                of_kept = tf.matmul(upstream_BNLH, values_BNKH, transpose_b=True)
                of_scores = _attend_backward(of_kept, weights_BNLK, bits, rate)
                return tf.cast(of_scores, scores_BNLK.dtype), of_values

            kept_BNLK = _attend_kept(weights_BNLK, bits, rate, dtype)
            return tf.matmul(kept_BNLK, values_BNKH), gradient

        return chain(scores_BNLK, values_BNKH)

    def add_norm(
        self,
        x: tf.Tensor,
        bias: tf.Tensor,
        residual: tf.Tensor,
        dropout: keras.layers.Dropout,
        norm: keras.layers.LayerNormalization,
    ) -> tf.Tensor:
        """As the plain one, all of it in float32."""
        bits, rate, epsilon = self._bits(x, dropout), dropout.rate, norm.epsilon

        @tf.custom_gradient
        def chain(x, bias, residual, gamma, beta):
            given = (x, bias, residual, bits, rate, epsilon)

            def gradient(upstream):
                of_x, of_residual, along = _add_norm_backward(upstream, gamma, *given)
                of_bias = _columns(of_x, bias.dtype)
                of_gamma = _columns(along, gamma.dtype)
                of_beta = _columns(upstream, beta.dtype)
                return of_x, of_bias, of_residual, of_gamma, of_beta

            return _add_norm(gamma, beta, *given), gradient

        weights = (tf.convert_to_tensor(w) for w in (bias, norm.gamma, norm.beta))
        bias, gamma, beta = weights
        return chain(x, bias, residual, gamma, beta)

    def _uses(self, table_VE: keras.Variable) -> tuple[tf.Tensor, tf.Tensor]:
        """The same table for all lookups of a step, and for all products."""
        key = id(table_VE)
        if key not in self._tables:
            self._tables[key] = _two_uses(tf.convert_to_tensor(table_VE.value))
        return self._tables[key]

    def _bits(self, x: tf.Tensor, dropout: keras.layers.Dropout) -> tf.Tensor | None:
        if self._dropout is None or not dropout.rate:
            return None
        return self._dropout.bits(x)


@tf.custom_gradient
def _two_uses(table_VE: tf.Tensor):
    """Where rows of the gradient are added to the product's, not as a table of zeros.

    A vocabulary is far longer than a batch.
    """

    def gradient(of_rows, of_whole_VE):
        if not isinstance(of_rows, tf.IndexedSlices):
            return of_rows + of_whole_VE
        index = of_rows.indices[:, None]
        return tf.tensor_scatter_nd_add(of_whole_VE, index, of_rows.values)

    return (tf.identity(table_VE), tf.identity(table_VE)), gradient


def _columns(t: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The sum over all axes but the last."""
    total = tf.raw_ops.BiasAddGrad(out_backprop=tf.cast(t, tf.float32))
    return tf.cast(total, dtype)


@tf.custom_gradient
def _gelu(x: tf.Tensor, bias: tf.Tensor):
    def gradient(upstream):
        of_x = _gelu_backward(upstream, x, bias)
        return of_x, _columns(of_x, bias.dtype)

    return _gelu_forward(x, bias), gradient


@loop
def _gelu_forward(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    y = tf.cast(x, tf.float32) + tf.cast(bias, tf.float32)
    return tf.cast(y * _below(y), x.dtype)


@loop
def _gelu_backward(upstream: tf.Tensor, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    y = tf.cast(x, tf.float32) + tf.cast(bias, tf.float32)
    density = tf.exp(-0.5 * tf.square(y)) / math.sqrt(2 * math.pi)
    slope = _below(y) + y * density
    return tf.cast(tf.cast(upstream, tf.float32) * slope, x.dtype)


def _below(y: tf.Tensor) -> tf.Tensor:
    """The normal distribution function."""
    return 0.5 * (1.0 + tf.math.erf(y * math.sqrt(0.5)))


def _attend_kept(
    weights: tf.Tensor, bits: tf.Tensor | None, rate: float, dtype: tf.DType
) -> tf.Tensor:
    return tf.cast(weights if bits is None else _kept(weights, bits, rate), dtype)


@loop
def _kept(weights: tf.Tensor, bits: tf.Tensor, rate: float) -> tf.Tensor:
    return kept(weights, bits, rate)


@loop
def _attend_backward(
    upstream: tf.Tensor, weights: tf.Tensor, bits: tf.Tensor | None, rate: float
) -> tf.Tensor:
    of_weights = kept(tf.cast(upstream, tf.float32), bits, rate)
    mean = tf.reduce_sum(of_weights * weights, -1, keepdims=True)
    return weights * (of_weights - mean)


def _normal(x, bias, residual, bits, rate, epsilon) -> tuple[tf.Tensor, tf.Tensor]:
    """The sum with mean 0 and deviation 1, and what it was multiplied with."""
    x, bias, residual = (tf.cast(t, tf.float32) for t in (x, bias, residual))
    total = residual + kept(x + bias, bits, rate)
    centred = total - tf.reduce_mean(total, -1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)
    scale = tf.math.rsqrt(variance + epsilon)
    return centred * scale, scale


@loop
def _add_norm(gamma, beta, x, bias, residual, bits, rate, epsilon) -> tf.Tensor:
    normal, _ = _normal(x, bias, residual, bits, rate, epsilon)
    gamma, beta = tf.cast(gamma, tf.float32), tf.cast(beta, tf.float32)
    return tf.cast(normal * gamma + beta, x.dtype)


@loop
def _add_norm_backward(upstream, gamma, x, bias, residual, bits, rate, epsilon):
    """Gradients of x and residual, and of gamma before it is summed up."""
    normal, scale = _normal(x, bias, residual, bits, rate, epsilon)
    upstream = tf.cast(upstream, tf.float32)
    of_normal = upstream * tf.cast(gamma, tf.float32)
    along = tf.reduce_mean(of_normal * normal, -1, keepdims=True)
    mean = tf.reduce_mean(of_normal, -1, keepdims=True)
    of_total = scale * (of_normal - mean - normal * along)
    of_x = kept(of_total, bits, rate)
    of_residual = tf.cast(of_total, residual.dtype)
    return tf.cast(of_x, x.dtype), of_residual, upstream * normal
