"""Operations of a Transformer layer in few passes over memory, forward and backward.

Unfused, each element-wise operation reads and writes a whole tensor. Here XLA compiles
the operations between two matmuls into one loop, and hand-written backward passes
recompute intermediate values instead of storing them. XLA writes the operand of a row
sum to memory, so the functions use few row sums. Matmuls and the attention softmax stay
outside of XLA, because oneDNN is faster. Where XLA compiles the whole step, these
functions are part of it.
"""

import math
from collections.abc import Callable

import keras
import tensorflow as tf

from electra_tf.kernels.rng import DropoutSeeds, apply_dropout
from electra_tf.model.layer_ops import LayerOps

_NARROW = 512  # columns up to which `matmul` transposes the kernel


def xla_compiled(function: Callable) -> Callable:
    """Compile a function of tensors with XLA."""
    return tf.function(function, jit_compile=True, autograph=False)


class FusedLayerOps(LayerOps):
    """Fused operations of one training or evaluation step.

    Args:
        dropout: Source of dropout seeds; None disables dropout.
        on_cpu: Whether XLA compiles the fused functions alone, for a CPU. Row sums are
            then matmuls, and rows are added to a table's gradient in place, with an
            operation that XLA does not support.
    """

    def __init__(self, dropout: DropoutSeeds | None, on_cpu: bool = False):
        super().__init__(training=dropout is not None)
        self._dropout, self._on_cpu = dropout, on_cpu
        self._tables: dict[int, tuple[tf.Tensor, tf.Tensor]] = {}

    def embedding_lookup(self, table_VE: keras.Variable, ids: tf.Tensor) -> tf.Tensor:
        """Look up the rows `ids` of a table, in float32."""
        return tf.gather(self._table_pair(table_VE)[0], ids)

    def vocab_logits(
        self, x_XE: tf.Tensor, table_VE: keras.Variable, bias_V: tf.Tensor
    ) -> tf.Tensor:
        """Multiply vectors with the transposed table and add the bias.

        The table's gradient is computed without a transpose.
        """
        return _vocab_logits(
            x_XE, self._table_pair(table_VE)[1], tf.convert_to_tensor(bias_V)
        )

    def matmul(self, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """Multiply [B, L, ...] with a kernel.

        A narrow kernel's gradient is computed transposed, because oneDNN is slow for
        matmuls with many rows and few columns.
        """
        inner, outer = kernel.shape
        rows = tf.reshape(x, [-1, inner])
        if outer <= _NARROW and outer < inner:
            found = tf.matmul(rows, tf.transpose(kernel), transpose_b=True)
        else:
            found = tf.matmul(rows, kernel)
        return tf.reshape(found, [-1, keras.ops.shape(x)[1], outer])

    def dropout(self, x: tf.Tensor, dropout: keras.layers.Dropout) -> tf.Tensor:
        """Apply dropout with the seeds of the step."""
        seeds, rate = self._seeds(x, dropout), dropout.rate

        @tf.custom_gradient
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
        """Compute attention; the backward pass stores only softmax and result."""
        seeds, rate = self._seeds(queries_BNLH, dropout), dropout.rate
        on_cpu = self._on_cpu
        added_B11K = tf.cast(bias_B11K, tf.float32)

        @tf.custom_gradient
        def fused(queries_BNLH, keys_BNKH, values_BNKH):
            scores_BNLK = tf.matmul(queries_BNLH, keys_BNKH, transpose_b=True)
            weights_BNLK = tf.nn.softmax(tf.cast(scores_BNLK, tf.float32) + added_B11K)
            weights_BNLK = tf.cast(weights_BNLK, values_BNKH.dtype)
            kept_BNLK = _maybe_dropout(weights_BNLK, seeds, rate)
            seen_BLNH = _swap_heads(tf.matmul(kept_BNLK, values_BNKH))

            def gradient(upstream_BLNH):
                with tf.control_dependencies(
                    [upstream_BLNH]
                ):  # recompute, do not store
                    kept_BNLK = _maybe_dropout(weights_BNLK, seeds, rate)
                mean_BNL1 = _swap_heads(
                    _attention_mean(upstream_BLNH, seen_BLNH, on_cpu)
                )
                upstream_BNLH = _swap_heads(upstream_BLNH)
                with tf.name_scope("attention_backward"):
                    of_values = tf.matmul(kept_BNLK, upstream_BNLH, transpose_a=True)
                    of_kept = tf.matmul(upstream_BNLH, values_BNKH, transpose_b=True)
                    given = (of_kept, weights_BNLK, mean_BNL1, seeds, rate)
                    of_scores = tf.cast(_attention_backward(*given), queries_BNLH.dtype)
                    of_queries = tf.matmul(of_scores, keys_BNKH)
                    of_keys = tf.matmul(of_scores, queries_BNLH, transpose_a=True)
                    return of_queries, of_keys, of_values

            return seen_BLNH, gradient

        return fused(queries_BNLH, keys_BNKH, values_BNKH)

    def bias_dropout_add_norm(
        self,
        x: tf.Tensor,
        bias: tf.Tensor,
        residual: tf.Tensor,
        dropout: keras.layers.Dropout,
        norm: keras.layers.LayerNormalization,
    ) -> tf.Tensor:
        """Add bias, dropout, residual and normalise, in float32.

        The backward pass stores the sum instead of its operands.
        """
        seeds, rate = self._seeds(x, dropout), dropout.rate
        on_cpu = self._on_cpu

        @tf.custom_gradient
        def fused(x, bias, residual, gamma, beta):
            given = (x, bias, residual, seeds, rate, norm.epsilon, on_cpu)
            normed, *known = _bias_dropout_add_norm(gamma, beta, *given)

            def gradient(upstream):
                given = (upstream, gamma, *known, seeds, rate, on_cpu)
                of_x, of_sum, along = _bias_dropout_add_norm_backward(*given)
                of_bias = _sum_rows(of_x, bias.dtype)
                of_residual = tf.cast(of_sum, residual.dtype)
                of_gamma = _sum_rows(along, gamma.dtype)
                of_beta = _sum_rows(upstream, beta.dtype)
                return of_x, of_bias, of_residual, of_gamma, of_beta

            return normed, gradient

        weights = (tf.convert_to_tensor(w) for w in (bias, norm.gamma, norm.beta))
        bias, gamma, beta = weights
        return fused(x, bias, residual, gamma, beta)

    def _table_pair(self, table_VE: keras.Variable) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the table for lookups and for matmuls, the same pair within a step."""
        key = id(table_VE)
        if key not in self._tables:
            table_VE = tf.convert_to_tensor(table_VE.value)
            self._tables[key] = _split_gradient(table_VE, self._on_cpu)
        return self._tables[key]

    def _seeds(self, x: tf.Tensor, dropout: keras.layers.Dropout) -> tf.Tensor | None:
        if self._dropout is None or not dropout.rate:
            return None
        return self._dropout.seeds(x)


def _split_gradient(table_VE: tf.Tensor, on_cpu: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Return two copies of a table whose gradients are added sparsely.

    The rows of the lookup's gradient are added to the gradient of the matmul. A dense
    gradient of the lookup would be a second table, mostly zero.
    """

    @tf.custom_gradient
    def uses(table_VE: tf.Tensor):
        def gradient(of_rows, of_whole_VE):
            if not isinstance(of_rows, tf.IndexedSlices):
                return of_rows + of_whole_VE
            index, values = of_rows.indices[:, None], of_rows.values
            if not on_cpu:  # on a CPU this operation copies the table
                return tf.tensor_scatter_nd_add(of_whole_VE, index, values)
            return tf.raw_ops.ScatterNdNonAliasingAdd(
                input=of_whole_VE, indices=index, updates=values
            )

        return (tf.identity(table_VE), tf.identity(table_VE)), gradient

    return uses(table_VE)


@tf.custom_gradient
def _vocab_logits(x_XE: tf.Tensor, table_VE: tf.Tensor, bias_V: tf.Tensor):
    def gradient(upstream_XV: tf.Tensor):
        with tf.name_scope("vocabulary_backward"):
            # As a batch of one, because oneDNN's batched matmul is faster here.
            of_table_1VE = tf.matmul(upstream_XV[None], x_XE[None], transpose_a=True)
            of_table_VE = tf.cast(tf.squeeze(of_table_1VE, 0), table_VE.dtype)
            of_bias_V = _sum_rows(upstream_XV, bias_V.dtype)
            return tf.matmul(upstream_XV, table_VE), of_table_VE, of_bias_V

    logits_XV = tf.matmul(x_XE, table_VE, transpose_b=True)
    return tf.nn.bias_add(logits_XV, bias_V), gradient


def _sum_rows(t: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Sum over all axes but the last."""
    total = tf.raw_ops.BiasAddGrad(out_backprop=tf.cast(t, tf.float32))
    return tf.cast(total, dtype)


@tf.custom_gradient
def _bias_gelu(x: tf.Tensor, bias: tf.Tensor):
    def gradient(upstream):
        of_x = _bias_gelu_backward(upstream, x, bias)
        return of_x, _sum_rows(of_x, bias.dtype)

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
    slope = _normal_cdf(y) + y * density
    return tf.cast(tf.cast(upstream, tf.float32) * slope, x.dtype)


def _normal_cdf(y: tf.Tensor) -> tf.Tensor:
    """Compute the standard normal CDF."""
    return 0.5 * (1.0 + tf.math.erf(y * math.sqrt(0.5)))


def _maybe_dropout(x: tf.Tensor, seeds: tf.Tensor | None, rate: float) -> tf.Tensor:
    return x if seeds is None else _dropout(x, seeds, rate)


@xla_compiled
def _dropout(x: tf.Tensor, seeds: tf.Tensor, rate: float) -> tf.Tensor:
    return apply_dropout(x, seeds, rate)


@xla_compiled
def _attention_mean(
    upstream_BLNH: tf.Tensor, seen_BLNH: tf.Tensor, on_cpu: bool
) -> tf.Tensor:
    """Compute sum(weights * gradient of weights) over the keys of each query.

    It equals the sum of upstream * output over the head's width (FlashAttention), which
    is shorter than the keys.
    """
    parts_BLNH = tf.cast(upstream_BLNH, tf.float32) * tf.cast(seen_BLNH, tf.float32)
    return _row_sums(parts_BLNH, tf.ones(parts_BLNH.shape[-1]), on_cpu)


@xla_compiled
def _attention_backward(
    upstream: tf.Tensor,
    weights: tf.Tensor,
    mean: tf.Tensor,
    seeds: tf.Tensor | None,
    rate: float,
) -> tf.Tensor:
    of_weights = apply_dropout(tf.cast(upstream, tf.float32), seeds, rate)
    return tf.cast(weights, tf.float32) * (of_weights - mean)


def _swap_heads(x: tf.Tensor) -> tf.Tensor:
    """Transpose [B, N, L, H] to [B, L, N, H], or back."""
    return tf.transpose(x, (0, 2, 1, 3))


@xla_compiled
def _bias_dropout_add_norm(
    gamma, beta, x, bias, residual, seeds, rate, epsilon, on_cpu
):
    """Return the normalised sum, the sum, its mean and its scale."""
    given = (x, bias, residual, gamma, beta)
    x32, bias, residual, gamma, beta = (tf.cast(t, tf.float32) for t in given)
    total = residual + apply_dropout(x32 + bias, seeds, rate)
    shares = tf.ones_like(gamma) / gamma.shape[0]
    mean = _row_sums(total, shares, on_cpu)
    centred = total - mean
    variance = _row_sums(tf.square(centred), shares, on_cpu)
    scale = tf.math.rsqrt(variance + epsilon)
    normed = centred * scale * gamma + beta
    return tf.cast(normed, x.dtype), tf.cast(total, x.dtype), mean, scale


@xla_compiled
def _bias_dropout_add_norm_backward(
    upstream, gamma, total, mean, scale, seeds, rate, on_cpu
):
    """Return the gradients of x and of the sum, and that of gamma per position."""
    dtype = total.dtype
    upstream, gamma, total = (tf.cast(t, tf.float32) for t in (upstream, gamma, total))
    normal = (total - mean) * scale
    along, shares = upstream * normal, gamma / gamma.shape[0]
    slope, level = (_row_sums(t, shares, on_cpu) for t in (along, upstream))
    of_total = scale * (upstream * gamma - level - normal * slope)
    return (
        tf.cast(apply_dropout(of_total, seeds, rate), dtype),
        tf.cast(of_total, dtype),
        along,
    )


def _row_sums(x: tf.Tensor, weights: tf.Tensor, on_cpu: bool) -> tf.Tensor:
    """Return the weighted sum over the last axis, with that axis kept.

    On a CPU XLA adds one value after the other; a matmul uses vector instructions. On a
    TPU a matmul would round to bfloat16.
    """
    if on_cpu:
        return tf.tensordot(x, weights, 1)[..., None]
    return tf.reduce_sum(x * weights, -1, keepdims=True)
