"""Muon: momentum whose updates are made orthogonal (K. Jordan et al., 2024).

The rule is that of `keras.optimizers.Muon`: Nesterov momentum, five Newton-Schulz
iterations, and updates scaled as in Moonlight (arXiv 2502.16982, section 2.2), which
lets weight decay and learning rate of AdamW be kept.
"""

import math
from collections import Counter
from collections.abc import Sequence

import tensorflow as tf

_ITERATIONS = 5
_COEFFICIENTS = 3.4445, -4.7750, 2.0315
_GROUP_ELEMENTS = 2**24  # an update needs memory for several times as many floats
_RMS = 0.2  # root mean square of an update, about that of AdamW


def uses_muon(path: str, shape: tf.TensorShape) -> bool:
    """Return whether Muon updates a weight: a matrix of a hidden layer.

    Embedding tables and output layers are AdamW's. Of a vector in the shape [D, 1],
    an orthogonal update would have a fixed norm, however small the gradient.
    """
    return len(shape) == 2 and min(shape) > 1 and "embedding" not in path.lower()


def muon_group(shape: tf.TensorShape, counts: Counter) -> tuple[int, ...]:
    """Return the group of the next matrix of a shape, or of its transpose.

    `counts`: matrices by shape, to which this one is added.
    """
    size = tuple(sorted(shape))
    number, counts[size] = counts[size], counts[size] + 1
    return *size, number // max(1, _GROUP_ELEMENTS // math.prod(size))


def muon_updates(
    gradients: Sequence[tf.Tensor],
    means: Sequence[tf.Tensor],
    momentum: float,
    precision: str,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Return updates, to be multiplied by the learning rate, and the new momenta.

    `momentum` is the decay rate of `means`; gradients and means are float32, all [A, B]
    or [B, A]. `precision` is that of the matmuls.
    """
    means = [momentum * m + g for m, g in zip(means, gradients, strict=True)]
    sums = [momentum * m + g for m, g in zip(means, gradients, strict=True)]
    # Of wide matrices, because the products have the size of the rows.
    wide_NAB = tf.stack([_wide(matrix) for matrix in sums])
    wide_NAB = orthogonalize(wide_NAB, precision)
    wide_NAB *= _RMS * math.sqrt(wide_NAB.shape[2])
    updates = zip(tf.unstack(wide_NAB), sums, strict=True)
    return [tf.transpose(u) if _is_tall(s) else u for u, s in updates], means


def _is_tall(matrix: tf.Tensor) -> bool:
    return matrix.shape[0] > matrix.shape[1]


def _wide(matrix: tf.Tensor) -> tf.Tensor:
    return tf.transpose(matrix) if _is_tall(matrix) else matrix


def orthogonalize(x_NAB: tf.Tensor, precision: str) -> tf.Tensor:
    """Bring all singular values of float32 matrices near 1 (Newton-Schulz)."""
    a, b, c = _COEFFICIENTS
    x_NAB /= tf.norm(x_NAB, axis=(1, 2), keepdims=True) + 1e-7
    x_NAB = tf.cast(x_NAB, precision)
    for _ in range(_ITERATIONS):
        gram_NAA = tf.matmul(x_NAB, x_NAB, transpose_b=True)
        factor_NAA = b * gram_NAA + c * tf.matmul(gram_NAA, gram_NAA)
        x_NAB = a * x_NAB + tf.matmul(factor_NAA, x_NAB)
    return tf.cast(x_NAB, tf.float32)
