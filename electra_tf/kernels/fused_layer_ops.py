"""Fused operations of a Transformer layer, with their gradients.

Without fusion, each element-wise operation reads and writes a whole tensor. Here XLA
compiles the operations between two matmuls into one loop, and custom gradients
recompute intermediate values instead of storing them. XLA writes the operand of a row
sum to memory, so the functions use few row sums. Matmuls and the attention softmax are
not compiled by XLA, because oneDNN is faster, unless XLA compiles the whole step.

Variables that start with `grad_` are gradients of the loss, and `upstream` is the
gradient of the operation's output.
"""

import contextlib
import copy
import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence

import keras
import tensorflow as tf

from electra_tf import backend
from electra_tf.kernels.rng import DropoutSeeds, apply_dropout
from electra_tf.kernels.weak_functions import custom_gradient
from electra_tf.model.layer_ops import LayerOps

_MAX_TRANSPOSED_COLUMNS = 512  # of kernels that `matmul` transposes


def has_only_cpus() -> bool:
    """Return whether TensorFlow sees no device other than CPUs."""
    kinds = {device.device_type for device in tf.config.list_logical_devices()}
    return kinds == {"CPU"}


def xla_compiled(function: Callable) -> Callable:
    """Compile a function of tensors with XLA."""
    return tf.function(function, jit_compile=True, autograph=False)


_XLA_START = threading.Lock()  # standard error belongs to the process


@functools.cache
def _start_xla() -> None:
    """Compile a first function; TensorFlow 2.20 logs a note then, at every level."""
    with tf.init_scope(), backend.held_back_stderr():
        xla_compiled(lambda: tf.constant(0))()


class FusedLayerOps(LayerOps):
    """Fused operations of one training or evaluation step.

    Args:
        dropout: Dropout seeds of the step; None disables dropout.
        on_cpu: Whether XLA compiles only the fused functions, for a CPU. Row sums are
            then matmuls, and the gradient of a lookup is added in place, with an
            operation that XLA does not support.
    """

    def __init__(self, dropout: DropoutSeeds | None, on_cpu: bool = False):
        super().__init__(training=dropout is not None)
        if on_cpu:
            with _XLA_START:
                _start_xla()
        self._dropout, self._on_cpu = dropout, on_cpu
        self._tables: dict[int, tuple[tf.Tensor, tf.Tensor]] = {}

    def reserve(self, dropouts: Sequence[keras.layers.Dropout]) -> int:
        """Return the number of the next dropout call, and skip one call of each."""
        if self._dropout is None:
            return 0
        number = self._dropout.number
        self._dropout.number += sum(1 for dropout in dropouts if dropout.rate)
        return number

    @contextlib.contextmanager
    def starting_at(self, number: int) -> Iterator["FusedLayerOps"]:
        """Yield operations whose dropout calls have numbers from this one on."""
        repeated = copy.copy(self)
        if self._dropout is not None:
            repeated._dropout = self._dropout.starting_at(number)
        yield repeated

    def embedding_lookup(self, table_VE: keras.Variable, ids: tf.Tensor) -> tf.Tensor:
        """Return the rows `ids` of a table, in float32."""
        return tf.gather(self._table_copies(table_VE)[0], ids)

    def vocab_logits(
        self, x_XE: tf.Tensor, table_VE: keras.Variable | tf.Tensor, bias_V: tf.Tensor
    ) -> tf.Tensor:
        """Multiply vectors with the transposed table and add the bias.

        The gradient of the table is computed without a transpose. A tensor is a sum of
        tables (`gdes`), which no lookup reads.
        """
        if isinstance(table_VE, keras.Variable):
            table_VE = self._table_copies(table_VE)[1]
        return _vocab_logits(x_XE, table_VE, tf.convert_to_tensor(bias_V))

    def matmul(self, x: tf.Tensor, kernel: keras.Variable | tf.Tensor) -> tf.Tensor:
        """Multiply [B, L, ...] with a kernel.

        The gradient of a narrow kernel is computed transposed, because oneDNN is slow
        for matmuls with many rows and few columns.
        """
        kernel = keras.ops.convert_to_tensor(kernel)
        inner, outer = kernel.shape
        rows = tf.reshape(x, [-1, inner])
        if outer <= _MAX_TRANSPOSED_COLUMNS and outer < inner:
            product = tf.matmul(rows, tf.transpose(kernel), transpose_b=True)
        else:
            product = tf.matmul(rows, kernel)
        return tf.reshape(product, [-1, keras.ops.shape(x)[1], outer])

    def dropout(self, x: tf.Tensor, dropout: keras.layers.Dropout) -> tf.Tensor:
        """Apply dropout with the seeds of the step."""
        seeds, rate = self._seeds(x, dropout), dropout.rate

        @custom_gradient
        def fused(x: tf.Tensor):
            def gradient(upstream):
                return _maybe_dropout(upstream, seeds, rate)

            return _maybe_dropout(x, seeds, rate), gradient

        return x if seeds is None else fused(x)

    def bias_gelu(self, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Add the bias, then apply GELU."""
        return _bias_gelu(x, tf.convert_to_tensor(bias))

    def attention(
        self,
        queries_BNLH: tf.Tensor,
        keys_BNKH: tf.Tensor,
        bias_B11K: tf.Tensor,
        values_BNKH: tf.Tensor,
        dropout: keras.layers.Dropout,
    ) -> tf.Tensor:
        """Compute attention; only softmax and output are stored for the gradient."""
        seeds, rate = self._seeds(queries_BNLH, dropout), dropout.rate
        on_cpu = self._on_cpu
        bias_B11K = tf.cast(bias_B11K, tf.float32)

        @custom_gradient
        def fused(queries_BNLH, keys_BNKH, values_BNKH):
            scores_BNLK = tf.matmul(queries_BNLH, keys_BNKH, transpose_b=True)
            weights_BNLK = tf.nn.softmax(tf.cast(scores_BNLK, tf.float32) + bias_B11K)
            weights_BNLK = tf.cast(weights_BNLK, values_BNKH.dtype)
            dropped_BNLK = _maybe_dropout(weights_BNLK, seeds, rate)
            output_BLNH = _swap_heads(tf.matmul(dropped_BNLK, values_BNKH))

            def gradient(upstream_BLNH):
                # Without the dependency, TensorFlow would merge both dropout calls and
                # store the result until the backward pass.
                with tf.control_dependencies([upstream_BLNH]):
                    dropped_BNLK = _maybe_dropout(weights_BNLK, seeds, rate)
                mean_BNL1 = _swap_heads(
                    _mean_grad_weights(upstream_BLNH, output_BLNH, on_cpu)
                )
                upstream_BNLH = _swap_heads(upstream_BLNH)
                with tf.name_scope("attention_backward"):
                    grad_values = tf.matmul(
                        dropped_BNLK, upstream_BNLH, transpose_a=True
                    )
                    grad_dropped = tf.matmul(
                        upstream_BNLH, values_BNKH, transpose_b=True
                    )
                    grad_scores = _softmax_backward(
                        grad_dropped, weights_BNLK, mean_BNL1, seeds, rate
                    )
                    grad_scores = tf.cast(grad_scores, queries_BNLH.dtype)
                    grad_queries = tf.matmul(grad_scores, keys_BNKH)
                    grad_keys = tf.matmul(grad_scores, queries_BNLH, transpose_a=True)
                    return grad_queries, grad_keys, grad_values

            return output_BLNH, gradient

        return fused(queries_BNLH, keys_BNKH, values_BNKH)

    def bias_dropout_add_norm(
        self,
        x: tf.Tensor,
        bias: tf.Tensor,
        residual: tf.Tensor,
        dropout: keras.layers.Dropout,
        norm: keras.layers.LayerNormalization,
    ) -> tf.Tensor:
        """Add the bias, apply dropout, add the residual and normalise, in float32.

        Only the sum is stored for the gradient, instead of its operands.
        """
        seeds, rate = self._seeds(x, dropout), dropout.rate
        on_cpu = self._on_cpu

        @custom_gradient
        def fused(x, bias, residual, gamma, beta):
            normed, total, mean, scale = _bias_dropout_add_norm(
                gamma, beta, x, bias, residual, seeds, rate, norm.epsilon, on_cpu
            )

            def gradient(upstream):
                grad_x, grad_total, grad_gammas = _bias_dropout_add_norm_backward(
                    upstream, gamma, total, mean, scale, seeds, rate, on_cpu
                )
                grad_bias = _sum_rows(grad_x, bias.dtype)
                grad_residual = tf.cast(grad_total, residual.dtype)
                grad_gamma = _sum_rows(grad_gammas, gamma.dtype)
                grad_beta = _sum_rows(upstream, beta.dtype)
                return grad_x, grad_bias, grad_residual, grad_gamma, grad_beta

            return normed, gradient

        weights = (tf.convert_to_tensor(w) for w in (bias, norm.gamma, norm.beta))
        bias, gamma, beta = weights
        return fused(x, bias, residual, gamma, beta)

    def _table_copies(self, table_VE: keras.Variable) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a table for lookups and for matmuls, the same pair within a step."""
        key = id(table_VE)
        if key not in self._tables:
            table_VE = tf.convert_to_tensor(table_VE.value)
            self._tables[key] = _copy_for_lookup_and_matmul(table_VE, self._on_cpu)
        return self._tables[key]

    def _seeds(self, x: tf.Tensor, dropout: keras.layers.Dropout) -> tf.Tensor | None:
        if self._dropout is None or not dropout.rate:
            return None
        return self._dropout.seeds(x)


def _copy_for_lookup_and_matmul(
    table_VE: tf.Tensor, on_cpu: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return two copies of a table, the first for lookups, the second for matmuls.

    The sparse gradient of the lookup is added to the dense gradient of the matmul. A
    dense gradient of the lookup would be another table, mostly zero.
    """

    @custom_gradient
    def copy(table_VE: tf.Tensor):
        def gradient(grad_lookup, grad_matmul_VE):
            if not isinstance(grad_lookup, tf.IndexedSlices):
                return grad_lookup + grad_matmul_VE
            index, rows = grad_lookup.indices[:, None], grad_lookup.values
            if not on_cpu:  # on a CPU this operation copies the table
                return tf.tensor_scatter_nd_add(grad_matmul_VE, index, rows)
            return tf.raw_ops.ScatterNdNonAliasingAdd(
                input=grad_matmul_VE, indices=index, updates=rows
            )

        return (tf.identity(table_VE), tf.identity(table_VE)), gradient

    return copy(table_VE)


@custom_gradient
def _vocab_logits(x_XE: tf.Tensor, table_VE: tf.Tensor, bias_V: tf.Tensor):
    def gradient(upstream_XV: tf.Tensor):
        with tf.name_scope("vocabulary_backward"):
            # As a batch of one, because oneDNN's batched matmul is faster here.
            grad_table_1VE = tf.matmul(upstream_XV[None], x_XE[None], transpose_a=True)
            grad_table_VE = tf.cast(tf.squeeze(grad_table_1VE, 0), table_VE.dtype)
            grad_bias_V = _sum_rows(upstream_XV, bias_V.dtype)
            return tf.matmul(upstream_XV, table_VE), grad_table_VE, grad_bias_V

    logits_XV = tf.matmul(x_XE, table_VE, transpose_b=True)
    return tf.nn.bias_add(logits_XV, bias_V), gradient


def _sum_rows(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Sum over all axes but the last."""
    total = tf.raw_ops.BiasAddGrad(out_backprop=tf.cast(x, tf.float32))
    return tf.cast(total, dtype)


@custom_gradient
def _bias_gelu(x: tf.Tensor, bias: tf.Tensor):
    def gradient(upstream):
        grad_x = _bias_gelu_backward(upstream, x, bias)
        return grad_x, _sum_rows(grad_x, bias.dtype)

    return _bias_gelu_forward(x, bias), gradient


@xla_compiled
def _bias_gelu_forward(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    y = tf.cast(x, tf.float32) + tf.cast(bias, tf.float32)
    return tf.cast(y * _normal_cdf(y), x.dtype)


@xla_compiled
def _bias_gelu_backward(
    upstream: tf.Tensor, x: tf.Tensor, bias: tf.Tensor
) -> tf.Tensor:
    y = tf.cast(x, tf.float32) + tf.cast(bias, tf.float32)
    density = tf.exp(-0.5 * tf.square(y)) / math.sqrt(2 * math.pi)
    derivative = _normal_cdf(y) + y * density
    return tf.cast(tf.cast(upstream, tf.float32) * derivative, x.dtype)


def _normal_cdf(y: tf.Tensor) -> tf.Tensor:
    """Return the cumulative distribution function of the standard normal."""
    return 0.5 * (1.0 + tf.math.erf(y * math.sqrt(0.5)))


def _maybe_dropout(x: tf.Tensor, seeds: tf.Tensor | None, rate: float) -> tf.Tensor:
    return x if seeds is None else _dropout(x, seeds, rate)


@xla_compiled
def _dropout(x: tf.Tensor, seeds: tf.Tensor, rate: float) -> tf.Tensor:
    return apply_dropout(x, seeds, rate)


@xla_compiled
def _mean_grad_weights(
    upstream_BLNH: tf.Tensor, output_BLNH: tf.Tensor, on_cpu: bool
) -> tf.Tensor:
    """Return sum(weights * gradient of weights) over the keys of each query.

    It equals sum(upstream * output) over the head's width (FlashAttention), which is
    shorter than the keys.
    """
    terms_BLNH = tf.cast(upstream_BLNH, tf.float32) * tf.cast(output_BLNH, tf.float32)
    return _row_sums(terms_BLNH, tf.ones(terms_BLNH.shape[-1]), on_cpu)


@xla_compiled
def _softmax_backward(
    upstream: tf.Tensor,
    weights: tf.Tensor,
    mean: tf.Tensor,
    seeds: tf.Tensor | None,
    rate: float,
) -> tf.Tensor:
    """Return the gradient of the scores, through dropout and softmax."""
    grad_weights = apply_dropout(tf.cast(upstream, tf.float32), seeds, rate)
    return tf.cast(weights, tf.float32) * (grad_weights - mean)


def _swap_heads(x: tf.Tensor) -> tf.Tensor:
    """Transpose [B, N, L, H] to [B, L, N, H], or back."""
    return tf.transpose(x, (0, 2, 1, 3))


@xla_compiled
def _bias_dropout_add_norm(
    gamma, beta, x, bias, residual, seeds, rate, epsilon, on_cpu
):
    """Return the normalised sum, the sum, its mean and its scale."""
    dtype, operands = x.dtype, (x, bias, residual, gamma, beta)
    x, bias, residual, gamma, beta = (tf.cast(t, tf.float32) for t in operands)
    total = residual + apply_dropout(x + bias, seeds, rate)
    mean_weights = tf.ones_like(gamma) / gamma.shape[0]
    mean = _row_sums(total, mean_weights, on_cpu)
    centred = total - mean
    variance = _row_sums(tf.square(centred), mean_weights, on_cpu)
    scale = tf.math.rsqrt(variance + epsilon)
    normed = centred * scale * gamma + beta
    return tf.cast(normed, dtype), tf.cast(total, dtype), mean, scale


@xla_compiled
def _bias_dropout_add_norm_backward(
    upstream, gamma, total, mean, scale, seeds, rate, on_cpu
):
    """Return the gradients of x, of the sum, and of gamma at each position."""
    dtype = total.dtype
    upstream, gamma, total = (tf.cast(t, tf.float32) for t in (upstream, gamma, total))
    standardized = (total - mean) * scale
    grad_gammas, mean_weights = upstream * standardized, gamma / gamma.shape[0]
    # Means of upstream * gamma * standardized and of upstream * gamma.
    projection, mean_grad = (
        _row_sums(t, mean_weights, on_cpu) for t in (grad_gammas, upstream)
    )
    grad_total = scale * (upstream * gamma - mean_grad - standardized * projection)
    return (
        tf.cast(apply_dropout(grad_total, seeds, rate), dtype),
        tf.cast(grad_total, dtype),
        grad_gammas,
    )


def _row_sums(x: tf.Tensor, weights: tf.Tensor, on_cpu: bool) -> tf.Tensor:
    """Return the weighted sum over the last axis, with a last axis of size 1.

    On a CPU XLA adds the values one by one, and a matmul uses vector instructions. On a
    TPU a matmul would round to bfloat16.
    """
    if on_cpu:
        return tf.tensordot(x, weights, 1)[..., None]
    return tf.reduce_sum(x * weights, -1, keepdims=True)
