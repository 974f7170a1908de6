"""Layer operations as calls of GPU kernels, for a step that is exported as a program.

TensorFlow cannot run the calls. `gpu_kernels.py` has the kernels, and `program.py` puts
them into the program. An objective uses these operations with
`objective.make_layer_ops = functools.partial(make_layer_ops, precision)`.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from electra_tf import compat
from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from electra_tf.kernels.rng import DropoutSeeds
from electra_tf.kernels.weak_functions import custom_gradient

PREFIX = "electra_tf."  # start of the names of calls

_SHORTEST = 16  # rows and columns of a matmul within a kernel
_MOST_SUMS = 128  # partial sums of a kernel for norms
_BLOCK_VALUES = 4096  # of a program at a time, for norms
_ATTENTION_BLOCK = 64  # queries or keys at a time


def make_layer_ops(
    precision: str, dropout: DropoutSeeds | None, on_cpu: bool
) -> FusedLayerOps:
    """Return the operations of one step of an objective, `Objective.make_layer_ops`."""
    # Without dropout there are no gradients.
    return DeviceLayerOps(dropout, precision) if dropout else FusedLayerOps(None)


class DeviceLayerOps(FusedLayerOps):
    """Fused operations of one exported training step.

    Weights are float32, and cast where a matmul reads them. Operations that a kernel
    does not support are those of `FusedLayerOps`.
    """

    def __init__(self, dropout: DropoutSeeds, precision: str):
        super().__init__(dropout)
        self._is_low = precision != "float32"

    def vocab_logits(
        self, x_XE: tf.Tensor, table_VE: keras.Variable | tf.Tensor, bias_V: tf.Tensor
    ) -> tf.Tensor:
        """Multiply in bfloat16 with float32 sums, if the encoders compute in it."""
        if not self._is_low:
            return super().vocab_logits(x_XE, table_VE, bias_V)
        if isinstance(table_VE, keras.Variable):
            table_VE = self._table_copies(table_VE)[1]
        return _low_vocab_logits(x_XE, table_VE, tf.convert_to_tensor(bias_V))

    def matmul(self, x: tf.Tensor, kernel: keras.Variable | tf.Tensor) -> tf.Tensor:
        """Multiply [B, L, ...] with a kernel, whose gradient is float32."""
        rows = tf.reshape(x, [-1, kernel.shape[0]])
        product = _matmul(rows, _float32(kernel), _scope())
        return tf.reshape(product, [*x.shape[:-1], kernel.shape[1]])

    def feed_forward(
        self,
        x_BLD: tf.Tensor,
        kernel_DF: keras.Variable,
        bias_F: keras.Variable,
        kernel_FD: keras.Variable,
    ) -> tf.Tensor:
        """Apply GELU in the kernels of the matmuls before it, in both directions."""
        (width, inner), rows = kernel_DF.shape, math.prod(x_BLD.shape[:-1])
        if any(size % _SHORTEST for size in (rows, width, inner)):
            return super().feed_forward(x_BLD, kernel_DF, bias_F, kernel_FD)
        scope, dtype = _scope(), x_BLD.dtype
        like_inner, programs = (dtype, [rows, inner]), rows // _divisor(rows, 128)

        @custom_gradient
        def fused(x_XD, kernel_DF, bias_F, kernel_FD):
            low_DF, low_FD = (tf.cast(w, dtype) for w in (kernel_DF, kernel_FD))
            with tf.name_scope("intermediate"):
                product_XF, inner_XF = _call(
                    "matmul_gelu", [x_XD, low_DF, bias_F], [like_inner] * 2
                )

            def gradient(upstream_XD):
                with tf.name_scope(f"{scope}/output/"):
                    of_second = _transposed_matmul(inner_XF, upstream_XD)
                    grad_XF, sums_GF = _call(
                        "matmul_gelu_backward",
                        [upstream_XD, low_FD, product_XF, bias_F],
                        [like_inner, (tf.float32, [programs, inner])],
                    )
                    of_bias = tf.reduce_sum(sums_GF, 0)
                with tf.name_scope(f"{scope}/intermediate/"):
                    grad_x = tf.matmul(grad_XF, low_DF, transpose_b=True)
                    of_first = _transposed_matmul(x_XD, grad_XF)
                    return grad_x, of_first, of_bias, of_second

            with tf.name_scope("output"):
                return tf.matmul(inner_XF, low_FD), gradient

        weights = map(_float32, (kernel_DF, bias_F, kernel_FD))
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
        seeds, scope, width = self._kernel_seeds(x, dropout), _scope(), x.shape[-1]
        rows, padded = math.prod(x.shape[:-1]), 1 << (width - 1).bit_length()
        block = _divisor(x.shape[1], max(1, _BLOCK_VALUES // padded))
        programs = _divisor(rows // block, _MOST_SUMS)
        settings = {"rate": float(dropout.rate), "block": block}

        @custom_gradient
        def fused(x_XD, residual_XD, bias_D, gamma_D, beta_D):
            like_x, each = (x_XD.dtype, x_XD.shape), (tf.float32, [rows])
            with tf.name_scope("norm"):
                normed_XD, *sums = _call(
                    "add_norm",
                    [x_XD, residual_XD, bias_D, gamma_D, beta_D, seeds],
                    [like_x, like_x, each, each],
                    epsilon=norm.epsilon,
                    **settings,
                )

            def gradient(upstream_XD):
                with tf.name_scope(f"{scope}/norm_backward/"):
                    grad_x, grad_total, sums_G3D = _call(
                        "add_norm_backward",
                        [upstream_XD, *sums, gamma_D, seeds],
                        [like_x, like_x, (tf.float32, [programs, 3, width])],
                        **settings,
                    )
                    grads = tf.unstack(tf.reduce_sum(sums_G3D, 0))
                    return grad_x, grad_total, *grads

            return normed_XD, gradient

        weights = map(_float32, (bias, norm.gamma, norm.beta))
        flat = (tf.reshape(t, [-1, width]) for t in (x, residual))
        return tf.reshape(fused(*flat, *weights), x.shape)

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
        batch, length, width = x_BLD.shape
        size = width // heads
        is_supported = length % _SHORTEST == 0 and size & -size == size >= _SHORTEST
        if cls_only or bias_B11K.shape[2] != 1 or not is_supported:
            return super().self_attention(
                x_BLD, weights, bias_B11K, heads, dropout, cls_only
            )
        mask_BL = tf.reshape(tf.cast(bias_B11K, tf.float32), [batch, length])
        operands = mask_BL, self._kernel_seeds(x_BLD, dropout)
        shape_BLNH, scope = [batch, length, heads, size], _scope()

        @custom_gradient
        def fused(x_XD, *kernels_and_biases):
            kernel_DE = tf.concat(kernels_and_biases[:3], 1)
            low_DE = tf.cast(kernel_DE, x_XD.dtype)
            bias_E = tf.concat(kernels_and_biases[3:], 0)
            context_XD, attend_backward = _attention(
                tf.matmul(x_XD, low_DE), bias_E, operands, shape_BLNH, dropout.rate
            )

            def gradient(upstream_XD):
                with tf.name_scope(f"{scope}/attention_backward/"):
                    grad_XE, sums_GE = attend_backward(upstream_XD)
                    biases = tf.split(tf.reduce_sum(sums_GE, 0), 3)
                with tf.name_scope(f"{scope}/query/"):
                    grad_x = tf.matmul(grad_XE, low_DE, transpose_b=True)
                    kernels = tf.split(_transposed_matmul(x_XD, grad_XE), 3, 1)
                    return grad_x, *kernels, *biases

            return context_XD, gradient

        kernels, biases = zip(*weights.values(), strict=True)
        x_XD = tf.reshape(x_BLD, [-1, width])
        context_XD = fused(x_XD, *map(_float32, (*kernels, *biases)))
        return tf.reshape(context_XD, x_BLD.shape)

    def _kernel_seeds(self, x: tf.Tensor, dropout: keras.layers.Dropout) -> tf.Tensor:
        """Return the seeds of a dropout call, uint32 [B, 2], or zeros without one."""
        seeds = self._seeds(x, dropout)
        return tf.zeros([x.shape[0], 2], tf.uint32) if seeds is None else seeds


def _float32(weight: keras.Variable | tf.Tensor) -> tf.Tensor:
    """Return a weight without the cast of a layer's dtype policy."""
    if isinstance(weight, keras.Variable):
        weight = compat.without_autocast(weight)
    return tf.convert_to_tensor(weight, tf.float32)


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
    qkv_XE: tf.Tensor,
    bias_E: tf.Tensor,
    mask_and_seeds: Sequence[tf.Tensor],
    shape_BLNH: list[int],
    rate: float,
) -> tuple[tf.Tensor, Callable]:
    """Return the context [X, N * H], and a function of its gradient.

    The function returns the gradient of queries, keys and values, which are without
    their bias, and partial sums of that of the bias.
    """
    batch, length, heads, size = shape_BLNH
    shape_BL3NH, dtype = [batch, length, 3, heads, size], qkv_XE.dtype
    settings = {"rate": float(rate), "block": _divisor(length, _ATTENTION_BLOCK)}
    inputs = [tf.reshape(qkv_XE, shape_BL3NH), bias_E, *mask_and_seeds]
    results = [(dtype, shape_BLNH), (tf.float32, [batch, heads, length])]
    outputs = _call("attention", inputs, results, **settings)

    def backward(upstream_XD: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        programs = batch * (length // settings["block"])
        grad_qkv, sums_GE = _call(
            "attention_backward",
            [*inputs, *outputs, tf.reshape(upstream_XD, shape_BLNH)],
            [(dtype, shape_BL3NH), (tf.float32, [programs, 3 * heads * size])],
            **settings,
        )
        return tf.reshape(grad_qkv, qkv_XE.shape), sums_GE

    return tf.reshape(outputs[0], [-1, heads * size]), backward


def _transposed_matmul(x_XD: tf.Tensor, y_XF: tf.Tensor) -> tf.Tensor:
    """Return x^T y in float32."""
    shape = [x_XD.shape[1], y_XF.shape[1]]
    return _call("transposed_matmul", [x_XD, y_XF], [(tf.float32, shape)])[0]


def _matmul(x_XD: tf.Tensor, kernel_DF: tf.Tensor, scope: str) -> tf.Tensor:
    @custom_gradient
    def fused(x_XD: tf.Tensor, kernel_DF: tf.Tensor):
        low_DF = tf.cast(kernel_DF, x_XD.dtype)

        def gradient(upstream_XF: tf.Tensor):
            with tf.name_scope(f"{scope}/"):
                grad_x = tf.matmul(upstream_XF, low_DF, transpose_b=True)
                return grad_x, _transposed_matmul(x_XD, upstream_XF)

        return tf.matmul(x_XD, low_DF), gradient

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
