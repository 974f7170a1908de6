"""Layer operations as calls of GPU kernels, for a step that is exported as a program.

TensorFlow cannot run the calls. `gpu_kernels.py` has the kernels, and `program.py` puts
them into the program. A `FlatState` makes an objective use these operations.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from electra_tf.kernels.rng import DropoutSeeds
from electra_tf.kernels.weak_functions import custom_gradient

PREFIX = "electra_tf."  # start of the names of calls

_SHORTEST = 16  # rows and columns of a matmul within a kernel
_MOST_SUMS = 128  # partial sums of a kernel for norms
_BLOCK_VALUES = 4096  # of a program at a time, for norms
_ATTENTION_BLOCK = 64  # queries or keys at a time


class DeviceLayerOps(FusedLayerOps):
    """Fused operations of one exported training step.

    Operations that a kernel does not support are those of `FusedLayerOps`.
    """

    def __init__(self, dropout: DropoutSeeds, weights: Any):
        super().__init__(dropout)
        self._weights = weights
        # Of each layer norm, the copy of its result for the next residual, whose
        # gradient then reaches the kernel apart from that of the matmul.
        self._residuals: dict[int, tuple[tf.Tensor, tf.Tensor]] = {}

    def vocab_logits(
        self, x_XE: tf.Tensor, table_VE: keras.Variable | tf.Tensor, bias_V: tf.Tensor
    ) -> tf.Tensor:
        """Multiply in bfloat16 with float32 sums, if the encoders compute in it."""
        if self._weights.low_dtype == tf.float32:
            return super().vocab_logits(x_XE, table_VE, bias_V)
        if isinstance(table_VE, keras.Variable):
            table_VE = self._table_copies(table_VE)[1]
        return _low_vocab_logits(x_XE, table_VE, tf.convert_to_tensor(bias_V))

    def matmul(self, x: tf.Tensor, kernel: keras.Variable | tf.Tensor) -> tf.Tensor:
        """Multiply [B, L, ...] with a kernel, whose gradient is float32."""
        kernel = keras.ops.convert_to_tensor(kernel)
        rows = tf.reshape(x, [-1, kernel.shape[0]])
        product = _matmul(rows, kernel, _scope())
        return tf.reshape(product, [*x.shape[:-1], kernel.shape[1]])

    def feed_forward(
        self,
        x_BLD: tf.Tensor,
        first: keras.Variable,
        bias: keras.Variable,
        second: keras.Variable,
    ) -> tf.Tensor:
        """Apply GELU in the kernels of the matmuls before it, in both directions."""
        places, (width, inner) = self._places([bias]), first.shape
        rows = math.prod(x_BLD.shape[:-1])
        if places is None or any(size % _SHORTEST for size in (rows, width, inner)):
            return super().feed_forward(x_BLD, first, bias, second)
        (buffer,), (start,) = places
        scope, place, dtype = _scope(), tf.constant([start]), x_BLD.dtype
        like_inner, programs = (dtype, [rows, inner]), rows // _divisor(rows, 128)
        kernel_DF, kernel_FD = (
            self._weights.merged([kernel], dtype) for kernel in (first, second)
        )

        @custom_gradient
        def fused(x_XD, *_):
            with tf.name_scope("intermediate"):
                operands = [x_XD, kernel_DF, buffer, place]
                product_XF, inner_XF = _call("matmul_gelu", operands, [like_inner] * 2)

            def gradient(upstream_XD):
                with tf.name_scope(f"{scope}/output/"):
                    of_second = _transposed_matmul(inner_XF, upstream_XD)
                    grad_XF, sums_GF = _call(
                        "matmul_gelu_backward",
                        [upstream_XD, kernel_FD, product_XF, buffer, place],
                        [like_inner, (tf.float32, [programs, inner])],
                    )
                    biases = self._weights.summed([bias], sums_GF)
                with tf.name_scope(f"{scope}/intermediate/"):
                    grad_x = tf.matmul(grad_XF, kernel_DF, transpose_b=True)
                    of_first = _transposed_matmul(x_XD, grad_XF)
                    return grad_x, of_first, *biases, of_second

            with tf.name_scope("output"):
                return tf.matmul(inner_XF, kernel_FD), gradient

        weights = map(self._weights.tensor, (first, bias, second))
        return tf.reshape(fused(tf.reshape(x_BLD, [-1, width]), *weights), x_BLD.shape)

    def bias_dropout_add_norm(
        self,
        x: tf.Tensor,
        bias: keras.Variable,
        residual: tf.Tensor,
        dropout: keras.layers.Dropout,
        norm: keras.layers.LayerNormalization,
    ) -> tf.Tensor:
        """Add bias, dropout and residual and normalise, in one kernel each way."""
        weights = bias, norm.gamma, norm.beta
        places = self._places(weights)
        if places is None:
            return super().bias_dropout_add_norm(x, bias, residual, dropout, norm)
        buffers, starts = places
        seeds, number = self._dropout.place(x)
        places, rate = tf.constant([*starts, number]), {"rate": float(dropout.rate)}
        scope, width = _scope(), x.shape[-1]
        rows = math.prod(x.shape[:-1])
        padded = 1 << (width - 1).bit_length()
        block = _divisor(x.shape[1], max(1, _BLOCK_VALUES // padded))
        programs, rate["block"] = _divisor(rows // block, _MOST_SUMS), block

        @custom_gradient
        def fused(x_XD, residual_XD, *_):
            like_x, each = (x_XD.dtype, x_XD.shape), (tf.float32, [rows])
            with tf.name_scope("norm"):
                normed_XD, *sums = _call(
                    "add_norm",
                    [x_XD, residual_XD, *buffers, seeds, places],
                    [like_x, like_x, each, each],
                    epsilon=norm.epsilon,
                    **rate,
                )

            def gradient(upstream_XD, of_residual_XD):
                with tf.name_scope(f"{scope}/norm_backward/"):
                    grad_x, grad_total, sums_GN = _call(
                        "add_norm_backward",
                        [upstream_XD, of_residual_XD, *sums, buffers[1], seeds, places],
                        [like_x, like_x, (tf.float32, [programs, 3 * width])],
                        **rate,
                    )
                    grads = self._weights.summed(weights, sums_GN)
                    return grad_x, grad_total, *grads

            return (normed_XD, tf.identity(normed_XD)), gradient

        _, residual = self._residuals.get(id(residual), (None, residual))
        flat = (tf.reshape(t, [-1, width]) for t in (x, residual))
        normed, copy = fused(*flat, *map(self._weights.tensor, weights))
        normed, copy = (tf.reshape(t, x.shape) for t in (normed, copy))
        self._residuals[id(normed)] = normed, copy
        return normed

    def self_attention(
        self,
        x_BLD: tf.Tensor,
        weights: Mapping[str, tuple[keras.Variable, keras.Variable]],
        bias_B11K: tf.Tensor,
        heads: int,
        dropout: keras.layers.Dropout,
        cls_only: bool = False,
    ) -> tf.Tensor:
        """Project to queries, keys and values at once, and compute the attention."""
        kernels, biases = zip(*weights.values(), strict=True)
        places = self._places(biases)
        batch, length, width = x_BLD.shape
        size = width // heads
        is_supported = length % _SHORTEST == 0 and size & -size == size >= _SHORTEST
        if places is None or cls_only or bias_B11K.shape[2] != 1 or not is_supported:
            return super().self_attention(
                x_BLD, weights, bias_B11K, heads, dropout, cls_only
            )
        seeds, number = self._dropout.place(x_BLD)
        common = [
            places[0][0],
            tf.reshape(tf.cast(bias_B11K, tf.float32), [batch, length]),
            seeds,
            tf.constant([places[1][0], number]),
        ]
        shape_BLNH = [batch, length, heads, size]
        attend = _attention(shape_BLNH, common, dropout.rate)
        kernel_DE = self._weights.merged(kernels, x_BLD.dtype)
        scope = _scope()

        @custom_gradient
        def fused(x_XD, *_):
            context_XD, attend_backward = attend(tf.matmul(x_XD, kernel_DE))

            def gradient(upstream_XD):
                with tf.name_scope(f"{scope}/attention_backward/"):
                    grad_XE, sums_GE = attend_backward(upstream_XD)
                    grad_biases = self._weights.summed(biases, sums_GE)
                with tf.name_scope(f"{scope}/query/"):
                    grad_x = tf.matmul(grad_XE, kernel_DE, transpose_b=True)
                    grad_kernels = tf.split(_transposed_matmul(x_XD, grad_XE), 3, 1)
                    return grad_x, *grad_kernels, *grad_biases

            return context_XD, gradient

        x_XD = tf.reshape(x_BLD, [-1, width])
        context_XD = fused(x_XD, *map(self._weights.tensor, (*kernels, *biases)))
        return tf.reshape(context_XD, x_BLD.shape)

    def _places(
        self, variables: Sequence[keras.Variable]
    ) -> tuple[list[tf.Tensor], list[int]] | None:
        """Return the buffer and the place of each weight; None if one has none."""
        if any(self._weights.tensor(variable) is None for variable in variables):
            return None
        pairs = [self._weights.place(variable) for variable in variables]
        return [buffer for buffer, _ in pairs], [start for _, start in pairs]


def _divisor(size: int, largest: int) -> int:
    """Return the largest power of 2 that divides a size, at most `largest`."""
    return min(size & -size, largest)


def _scope() -> str:
    """Return the scope of names in which the gradients of an operation belong."""
    return tf.get_current_name_scope() or "layer"


def _call(
    name: str, operands: list[tf.Tensor], results: list[tuple[Any, Any]], **settings
) -> list[tf.Tensor]:
    """Call a kernel, whose results have the given types and shapes."""
    dtypes, shapes = zip(*results, strict=True)
    return gen_xla_ops.xla_custom_call_v2(
        operands=operands,
        call_target_name=PREFIX + name,
        backend_config=json.dumps(settings),
        has_side_effect=False,
        result_dtypes=dtypes,
        result_shapes=shapes,
    )


def _attention(
    shape_BLNH: list[int], operands: list[tf.Tensor], rate: float
) -> Callable:
    """Return a function of queries, keys and values, [X, 3 * N * H] without their bias.

    It returns the context [X, N * H] and a function of its gradient, which returns the
    gradient of the argument and partial sums of that of the bias.
    """
    batch, length, heads, size = shape_BLNH
    shape_BL3NH = [batch, length, 3, heads, size]

    def attend(qkv_XE: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        dtype, rates = qkv_XE.dtype, {"rate": float(rate)}
        rates["block"] = _divisor(length, _ATTENTION_BLOCK)
        inputs = [tf.reshape(qkv_XE, shape_BL3NH), *operands]
        shape_BNL = [batch, heads, length]
        results = [(dtype, shape_BLNH), (tf.float32, shape_BNL)]
        outputs = _call("attention", inputs, results, **rates)

        def backward(upstream_XD: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            upstream_BLNH = tf.reshape(upstream_XD, shape_BLNH)
            programs = batch * (length // rates["block"])
            shape_GE = [programs, 3 * heads * size]
            grad_qkv, sums_GE = _call(
                "attention_backward",
                [*inputs, *outputs, upstream_BLNH],
                [(dtype, shape_BL3NH), (tf.float32, shape_GE)],
                **rates,
            )
            return tf.reshape(grad_qkv, qkv_XE.shape), sums_GE

        return tf.reshape(outputs[0], [-1, heads * size]), backward

    return attend


def _transposed_matmul(x_XD: tf.Tensor, y_XF: tf.Tensor) -> tf.Tensor:
    """Return x^T y in float32."""
    shape = [x_XD.shape[1], y_XF.shape[1]]
    return _call("transposed_matmul", [x_XD, y_XF], [(tf.float32, shape)])[0]


def _matmul(x_XD: tf.Tensor, kernel_DF: tf.Tensor, scope: str) -> tf.Tensor:
    @custom_gradient
    def fused(x_XD: tf.Tensor, kernel_DF: tf.Tensor):
        def gradient(upstream_XF: tf.Tensor):
            with tf.name_scope(f"{scope}/"):
                grad_x = tf.matmul(upstream_XF, kernel_DF, transpose_b=True)
                return grad_x, _transposed_matmul(x_XD, upstream_XF)

        return tf.matmul(x_XD, kernel_DF), gradient

    return fused(x_XD, kernel_DF)


@custom_gradient
def _low_vocab_logits(x_XE: tf.Tensor, table_VE: tf.Tensor, bias_V: tf.Tensor):
    size = table_VE.shape[0]
    padding = [[0, -size % 8]]  # else XLA would copy the logits to add it
    low_XE = tf.cast(x_XE, tf.bfloat16)
    low_VE = tf.pad(tf.cast(table_VE, tf.bfloat16), [*padding, [0, 0]])

    def gradient(upstream_XV: tf.Tensor):
        with tf.name_scope("vocabulary_backward"):
            low_XV = tf.pad(tf.cast(upstream_XV, tf.bfloat16), [[0, 0], *padding])
            grad_x = tf.cast(tf.matmul(low_XV, low_VE), x_XE.dtype)
            grad_table_VE = _transposed_matmul(low_XV, low_XE)[:size]
            return grad_x, grad_table_VE, tf.reduce_sum(upstream_XV, 0)

    logits_XV = tf.matmul(low_XE, low_VE, transpose_b=True)[:, :size]
    return tf.cast(logits_XV, tf.float32) + bias_V, gradient
