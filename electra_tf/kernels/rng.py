"""Random numbers as a function of (seed, step, purpose, row of the global batch).

Everything is made from Philox bits, which graph, XLA and eager mode draw alike. A
replica's rows draw what they would draw on one device: the generator is a counter, and
each row of the global batch has its own stretch of it. Dropout, which needs a number
for each value of the towers, draws two seeds for each row and site and hashes the
values' places with them.
"""

import math
from typing import NamedTuple

import tensorflow as tf

Size = int | tf.Tensor

TRAINING, EVALUATION = 0, 1
# Purposes; blocks of dropout's sites count on from DROPOUT.
POSITIONS, REPLACEMENTS, TOKENS, SAMPLES, DROPOUT = 0, 1, 2, 3, 16
_SITES = 64  # of dropout whose seeds are drawn at once


class RngStream(NamedTuple):
    """A source of random numbers for the rows of one replica's batch."""

    seed: tf.Tensor
    """int64 [2], already folded with the step."""
    first_row: tf.Tensor
    """int32: which row of the global batch is this replica's first."""

    def bits(self, purpose: int, rows: Size, shape: tuple[Size, ...]) -> tf.Tensor:
        """Random bits, uint32 [rows, *shape], the same for a row wherever it is."""
        size = math.prod(shape)
        groups = -(-size // 4)  # Philox makes four numbers a count
        # Not `StatelessRandomGetKeyCounter`: XLA drops the upper half of a seed there.
        key = tf.random.stateless_uniform(
            [1], self.seed, minval=None, maxval=None, dtype=tf.uint64, alg="philox"
        )
        skipped = tf.cast(self.first_row, tf.uint64) * tf.cast(groups, tf.uint64)
        counter = tf.stack([skipped, tf.constant(purpose, tf.uint64)])
        numbers = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[rows, groups * 4], key=key, counter=counter, alg=1, dtype=tf.uint32
        )
        return tf.reshape(numbers[:, :size], [rows, *shape])

    def uniform(self, purpose: int, rows: int, shape: tuple[int, ...]) -> tf.Tensor:
        """Uniform numbers, float32 [rows, *shape], within and never at 0 and 1."""
        bits = tf.bitwise.right_shift(self.bits(purpose, rows, shape), 9)
        return (tf.cast(bits, tf.float32) + 0.5) * 2.0**-23

    def dropout(self) -> "DropoutSeeds":
        """Seeds for the towers' dropout."""
        return DropoutSeeds(self)


class DropoutSeeds:
    """Seeds of the towers' dropout, for one site after the other as the model calls it.

    Args:
        rng: Where the random bits come from.
    """

    def __init__(self, rng: RngStream):
        self._rng, self._site, self._seeds = rng, 0, None

    def seeds(self, x: tf.Tensor) -> tf.Tensor:
        """uint32 [rows, 2] for `x`: rows first, and as many at every site."""
        block, site = divmod(self._site, _SITES)
        if not site:
            rows = tf.shape(x)[0] if x.shape[0] is None else x.shape[0]
            self._seeds = self._rng.bits(DROPOUT + block, rows, (_SITES, 2))
        self._site += 1
        return self._seeds[:, site]


def apply_dropout(x: tf.Tensor, seeds: tf.Tensor | None, rate: float) -> tf.Tensor:
    """Drops values: zeroes a share of `rate` and scales the rest up.

    Within one of XLA's loops this costs next to nothing, where 16 bits of Philox's for
    each value took 3% of a small model's step and stood in memory.

    Args:
        x: Any, rows first.
        seeds: uint32 [rows, 2]; None keeps all.
        rate: Below 1.

    Returns:
        As `x`.
    """
    if seeds is None:
        return x
    limit = min(round(rate * 2**32), 2**32 - 1)
    scaled = tf.cast(x, tf.float32) * (1 / (1 - limit / 2**32))
    return tf.cast(
        tf.where(_hashed(seeds, x) >= tf.constant(limit, tf.uint32), scaled, 0.0),
        x.dtype,
    )


def _hashed(seeds: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """32 bits for each value: a hash of its place within its row, and the row's seeds.

    Each step can be undone, so places of a row never share a number. Shifts and factors
    are those of a hash of little bias (C. Wellons, hash prospector: triple32); with one
    of two products, values 2^14 places apart were correlated by 0.003.
    """
    axes, stride = x.shape.rank, 1
    first, second = (tf.reshape(seeds[:, i], [-1] + [1] * (axes - 1)) for i in range(2))
    # Axis by axis onto a seed: places alone would stand in the program, one by one.
    number = first
    for axis in range(axes - 1, 0, -1):
        size = x.shape[axis] or tf.shape(x)[axis]
        along = tf.reshape(stride * tf.range(size), [-1] + [1] * (axes - 1 - axis))
        number, stride = number + tf.cast(along, tf.uint32), stride * size
    number = _mixed(number, 17, 0xED5AD4BB)
    number = _mixed(number, 11, 0xAC4C1B51)
    number = _mixed(tf.bitwise.bitwise_xor(number, second), 15, 0x31848BAB)
    return _mixed(number, 14)


def _mixed(number: tf.Tensor, shift: int, factor: int = 1) -> tf.Tensor:
    """Its upper bits changed into its lower ones, which a product carries up again."""
    shifted = tf.bitwise.right_shift(number, tf.constant(shift, tf.uint32))
    number = tf.bitwise.bitwise_xor(number, shifted)
    return number * tf.constant(factor, tf.uint32) if factor != 1 else number


def make_rng(seed: Size, kind: int, step: Size, first_row: Size = 0) -> RngStream:
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
    return RngStream(folded, tf.cast(first_row, tf.int32))
