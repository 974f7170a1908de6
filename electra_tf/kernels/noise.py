"""Random numbers as a function of (seed, step, purpose, row of the global batch).

Everything is made from Philox bits, which graph, XLA and eager mode draw alike. A
replica's rows draw what they would draw on one device: the generator is a counter, and
each row of the global batch has its own stretch of it.
"""

import math
from typing import NamedTuple

import tensorflow as tf

Size = int | tf.Tensor

TRAINING, EVALUATION = 0, 1
# Purposes; dropout sites count on from DROPOUT.
POSITIONS, WRITING, TOKENS, SAMPLES, DROPOUT = 0, 1, 2, 3, 16


class Noise(NamedTuple):
    """A source of random numbers for the rows of one replica's batch."""

    seed: tf.Tensor
    """int64 [2], already folded with the step."""
    first_row: tf.Tensor
    """int32: which row of the global batch is this replica's first."""

    def bits(
        self,
        purpose: int,
        rows: Size,
        shape: tuple[Size, ...],
        dtype: tf.DType = tf.uint32,
    ) -> tf.Tensor:
        """Random bits, [rows, *shape], the same for a row wherever it is."""
        size = math.prod(shape)
        # Philox makes four 32-bit numbers a count.
        groups = -(-size * dtype.size // 16)
        # Not `StatelessRandomGetKeyCounter`: XLA drops the upper half of a seed there.
        key = tf.random.stateless_uniform(
            [1], self.seed, minval=None, maxval=None, dtype=tf.uint64, alg="philox"
        )
        skipped = tf.cast(self.first_row, tf.uint64) * tf.cast(groups, tf.uint64)
        counter = tf.stack([skipped, tf.constant(purpose, tf.uint64)])
        numbers = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[rows, groups * 4], key=key, counter=counter, alg=1, dtype=tf.uint32
        )
        if dtype != tf.uint32:
            numbers = tf.reshape(tf.bitcast(numbers, dtype), [rows, -1])
        return tf.reshape(numbers[:, :size], [rows, *shape])

    def uniform(self, purpose: int, rows: int, shape: tuple[int, ...]) -> tf.Tensor:
        """Uniform numbers, float32 [rows, *shape], within and never at 0 and 1."""
        bits = tf.bitwise.right_shift(self.bits(purpose, rows, shape), 9)
        return (tf.cast(bits, tf.float32) + 0.5) * 2.0**-23

    def dropout(self) -> "Dropout":
        """Random bits for the towers' dropout."""
        return Dropout(self)


class Dropout:
    """Random bits for one site after the other, in the order the model calls it.

    Args:
        noise: Where the random bits come from.
    """

    def __init__(self, noise: Noise):
        self._noise, self._site = noise, DROPOUT

    def bits(self, x: tf.Tensor) -> tf.Tensor:
        """uint16 of the shape of `x`, whose first axis is the rows."""
        self._site += 1
        whole = tf.shape(x)
        rows, *others = (
            whole[axis] if size is None else size for axis, size in enumerate(x.shape)
        )
        bits = self._noise.bits(self._site, rows, tuple(others), tf.uint16)
        return tf.ensure_shape(bits, x.shape)


def kept(x: tf.Tensor, bits: tf.Tensor | None, rate: float) -> tf.Tensor:
    """Drops values: zeroes a share of `rate` and scales the rest up.

    Args:
        x: Any.
        bits: uint16 of its shape; None keeps all.
        rate: Below 1; 65,536 shares are told apart.

    Returns:
        As `x`.
    """
    if bits is None:
        return x
    limit = min(round(rate * 2**16), 2**16 - 1)
    scaled = tf.cast(x, tf.float32) * (1 / (1 - limit / 2**16))
    return tf.cast(
        tf.where(bits >= tf.constant(limit, tf.uint16), scaled, 0.0), x.dtype
    )


def noise_of(seed: Size, kind: int, step: Size, first_row: Size = 0) -> Noise:
    """The source for one step.

    Args:
        seed: The run's seed, below 2^63.
        kind: TRAINING or EVALUATION, which never draw the same.
        step: Number of the update, or of the batch of an evaluation.
        first_row: Which row of the global batch is this replica's first.

    Returns:
        The same source for the same arguments, in every mode and on every restart.
    """
    step = tf.cast(step, tf.int64)  # the type decides what is drawn
    pair = tf.stack([tf.convert_to_tensor(seed, tf.int64), tf.constant(kind, tf.int64)])
    folded = tf.random.fold_in(pair, step, alg="philox")
    return Noise(folded, tf.cast(first_row, tf.int32))
