"""Random numbers as a function of (seed, step, purpose, row of the global batch).

All numbers are computed from Philox bits, which are equal in graph, XLA and eager mode.
Philox is counter-based, and each row of the global batch has its own range of counters,
so a row's numbers do not depend on the number of replicas. Dropout needs a number for
each hidden value. It draws two seeds for each row and dropout call, and hashes the
indices of the values with them.
"""

import math
from typing import NamedTuple

import tensorflow as tf

Size = int | tf.Tensor

TRAINING, EVALUATION = 0, 1
# Purposes. The blocks of dropout seeds have the purposes DROPOUT, DROPOUT + 1, ...
POSITIONS, REPLACEMENTS, TOKENS, SAMPLES, DROPOUT = 0, 1, 2, 3, 16
_CALLS_PER_BLOCK = 64  # dropout calls whose seeds are drawn at once


class RngStream(NamedTuple):
    """Random numbers for the rows of one replica's batch."""

    seed: tf.Tensor  # int64 [2]: seed and kind, combined with the step
    first_row: tf.Tensor  # int32: index of this replica's first row in the global batch

    def bits(self, purpose: int, rows: Size, shape: tuple[Size, ...]) -> tf.Tensor:
        """Draw random bits, uint32 [rows, *shape].

        The bits of a row depend on its index in the global batch, not on the replica.
        """
        size = math.prod(shape)
        groups = -(-size // 4)  # Philox returns four numbers for each counter
        # `StatelessRandomGetKeyCounter` is unsuitable: XLA ignores the upper half of
        # its seed.
        key = tf.random.stateless_uniform(
            [1], self.seed, minval=None, maxval=None, dtype=tf.uint64, alg="philox"
        )
        start = tf.cast(self.first_row, tf.uint64) * tf.cast(groups, tf.uint64)
        counter = tf.stack([start, tf.constant(purpose, tf.uint64)])
        numbers = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[rows, groups * 4], key=key, counter=counter, alg=1, dtype=tf.uint32
        )
        return tf.reshape(numbers[:, :size], [rows, *shape])

    def uniform(self, purpose: int, rows: int, shape: tuple[int, ...]) -> tf.Tensor:
        """Draw uniform numbers in the open interval (0, 1), float32 [rows, *shape]."""
        bits = tf.bitwise.right_shift(self.bits(purpose, rows, shape), 9)
        return (tf.cast(bits, tf.float32) + 0.5) * 2.0**-23

    def dropout(self) -> "DropoutSeeds":
        """Return the dropout seeds of this step."""
        return DropoutSeeds(self, {})


class DropoutSeeds:
    """Dropout seeds of one step, as a function of the number of the dropout call.

    `drawn` holds the seeds that are drawn already, by block of calls.
    """

    def __init__(self, rng: RngStream, drawn: dict[int, tf.Tensor], number: int = 0):
        self._rng, self._drawn = rng, drawn
        self.number = number
        """Number of the next call."""

    def starting_at(self, number: int) -> "DropoutSeeds":
        """Return the seeds of the calls from a number on."""
        return DropoutSeeds(self._rng, self._drawn, number)

    def seeds(self, x: tf.Tensor) -> tf.Tensor:
        """Return the next seeds, uint32 [rows, 2].

        The first axis of `x` is the rows; their number must be the same in every call.
        """
        block, index = divmod(self.number, _CALLS_PER_BLOCK)
        if block not in self._drawn:
            rows = tf.shape(x)[0] if x.shape[0] is None else x.shape[0]
            self._drawn[block] = self._rng.bits(
                DROPOUT + block, rows, (_CALLS_PER_BLOCK, 2)
            )
        self.number += 1
        return self._drawn[block][:, index]


def apply_dropout(x: tf.Tensor, seeds: tf.Tensor | None, rate: float) -> tf.Tensor:
    """Set values to 0 with probability `rate` and scale the others by 1 / (1 - rate).

    XLA fuses the hash into the surrounding loop, so no tensor of random bits is written
    to memory. The first axis of `x` is the rows; without seeds, `x` is unchanged.
    """
    if seeds is None:
        return x
    threshold = min(round(rate * 2**32), 2**32 - 1)
    scaled = tf.cast(x, tf.float32) * (1 / (1 - threshold / 2**32))
    is_kept = _hash(seeds, x) >= tf.constant(threshold, tf.uint32)
    return tf.cast(tf.where(is_kept, scaled, 0.0), x.dtype)


def _hash(seeds: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Hash the index of each value within its row with the row's seeds, to 32 bits.

    Each step is invertible, so two values of a row never have the same hash. Shifts and
    factors are those of triple32 (C. Wellons, hash prospector), a hash of low bias.
    """
    rank, stride = x.shape.rank, 1
    seed_0, seed_1 = (tf.reshape(seeds[:, i], [-1] + [1] * (rank - 1)) for i in (0, 1))
    # Indices are added to a seed axis by axis, because XLA would store the sum of all
    # index tensors as a constant of the size of `x`.
    bits = seed_0
    for axis in range(rank - 1, 0, -1):
        size = x.shape[axis] or tf.shape(x)[axis]
        index = tf.reshape(stride * tf.range(size), [-1] + [1] * (rank - 1 - axis))
        bits, stride = bits + tf.cast(index, tf.uint32), stride * size
    bits = _mix(bits, 17, 0xED5AD4BB)
    bits = _mix(bits, 11, 0xAC4C1B51)
    bits = _mix(tf.bitwise.bitwise_xor(bits, seed_1), 15, 0x31848BAB)
    return _mix(bits, 14)


def _mix(bits: tf.Tensor, shift: int, factor: int = 1) -> tf.Tensor:
    """XOR the upper bits into the lower ones, then spread changes upwards."""
    shifted = tf.bitwise.right_shift(bits, tf.constant(shift, tf.uint32))
    bits = tf.bitwise.bitwise_xor(bits, shifted)
    return bits * tf.constant(factor, tf.uint32) if factor != 1 else bits


def make_rng(seed: Size, kind: int, step: Size, first_row: Size = 0) -> RngStream:
    """Create the random stream of one step.

    Equal arguments give equal numbers, also in other modes and after a restart.
    `first_row` is the index of this replica's first row in the global batch.
    """
    step = tf.cast(step, tf.int64)  # the dtype changes the numbers
    pair = tf.stack([tf.convert_to_tensor(seed, tf.int64), tf.constant(kind, tf.int64)])
    step_seed = tf.random.fold_in(pair, step, alg="philox")
    return RngStream(step_seed, tf.cast(first_row, tf.int32))
