"""Measure the peak FLOP/s of large matmuls, the reference for a step's speed."""

import math
import time
from collections.abc import Callable, Sequence

import tensorflow as tf


def measure_peak_flops(strategy: tf.distribute.Strategy, precision: str) -> float:
    """Measure the FLOP/s of large matmuls on all replicas at once.

    Args:
        strategy: The replicas.
        precision: `float32` or `mixed_bfloat16`.

    Returns:
        FLOP/s of all replicas together, the best of three measurements.
    """
    size, times = (1024, 8) if runs_on_cpu(strategy) else (8192, 10)
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32

    def matrices() -> tf.Tensor:
        """Create the operands outside the timed part."""
        return tf.cast(tf.random.stateless_normal([size, size], [0, 1]), dtype)

    def products(left: tf.Tensor) -> tf.Tensor:
        right = left
        for _ in tf.range(times):
            right = tf.matmul(left, right) / size
        return tf.reduce_sum(tf.cast(right, tf.float32))

    times_taken = timings(strategy, matrices, products)
    return 2 * size**3 * times * strategy.num_replicas_in_sync / times_taken[0]


def runs_on_cpu(strategy: tf.distribute.Strategy) -> bool:
    """Return whether the replicas run on CPUs.

    Args:
        strategy: The replicas.

    Returns:
        False with a GPU or a TPU.
    """
    return not tf.config.list_logical_devices("GPU") and not isinstance(
        strategy, tf.distribute.TPUStrategy
    )


def timings(
    strategy: tf.distribute.Strategy,
    make: Callable,
    work: Callable,
    seconds: float = 0.0,
) -> list[float]:
    """Time some work that all replicas do at once, again and again.

    Args:
        strategy: The replicas.
        make: Makes what is worked on, which is not timed.
        work: From that to a number.
        seconds: The work is repeated until so many are over, and three times or more.

    Returns:
        The seconds of each time, the least first.
    """
    made = tf.function(lambda: strategy.run(make))()

    @tf.function
    def on_all(made):
        found = strategy.run(work, args=(made,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, found, axis=None)

    on_all(made)
    taken = []
    while len(taken) < 3 or sum(taken) < seconds:
        begin = time.perf_counter()
        on_all(made).numpy()
        taken.append(time.perf_counter() - begin)
    return sorted(taken)


def slow(taken: Sequence[float], share: float = 0.9) -> float:
    """Return the time that a share of all times do not exceed.

    Args:
        taken: The times, the least first.
        share: From 0 to 1.
    """
    return taken[math.ceil(share * (len(taken) - 1))]
