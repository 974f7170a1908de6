"""Muon: momentum whose updates are made orthogonal (K. Jordan et al., 2024).

The rule is that of `keras.optimizers.Muon`: Nesterov momentum, five Newton-Schulz
iterations, and updates scaled as in Moonlight (arXiv 2502.16982, section 2.2), which
lets weight decay and learning rate of AdamW be kept.
"""

import math

import tensorflow as tf

_ITERATIONS = 5
_COEFFICIENTS = 3.4445, -4.7750, 2.0315
_RMS = 0.2  # root mean square of an update, about that of AdamW


def uses_muon(path: str, shape: tf.TensorShape) -> bool:
    """Return whether Muon updates a weight: a matrix of a hidden layer.

    Embedding tables and output layers are AdamW's. Of a vector in the shape [D, 1],
    an orthogonal update would have a fixed norm, however small the gradient.
    """
    return len(shape) == 2 and min(shape) > 1 and "embedding" not in path.lower()


def muon_update(
    gradient: tf.Tensor, mean: tf.Tensor, momentum: float, precision: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return an update, to be multiplied by the learning rate, and the new momentum.

    `momentum` is the decay rate of `mean`; gradient and mean are float32 [A, B].
    `precision` is that of the matmuls.
    """
    mean = momentum * mean + gradient
    direction = orthogonalize(gradient + momentum * mean, precision)
    return direction * (_RMS * math.sqrt(max(gradient.shape))), mean


def orthogonalize(matrix: tf.Tensor, precision: str) -> tf.Tensor:
    """Bring all singular values of a float32 matrix near 1 (Newton-Schulz)."""
    a, b, c = _COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = tf.transpose(matrix) if is_tall else matrix
    x = tf.cast(x / (tf.norm(x) + 1e-7), precision)
    for _ in range(_ITERATIONS):
        gram = tf.matmul(x, x, transpose_b=True)
        x = a * x + tf.matmul(b * gram + c * tf.matmul(gram, gram), x)
    x = tf.cast(x, tf.float32)
    return tf.transpose(x) if is_tall else x
