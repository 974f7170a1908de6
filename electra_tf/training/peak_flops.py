"""Measure the peak FLOP/s of large matmuls."""

import math
import time
from collections.abc import Callable, Sequence

import tensorflow as tf


def measure_peak_flops(strategy: tf.distribute.Strategy, precision: str) -> float:
    """Measure the FLOP/s of large matmuls on all replicas at once.

    Args:
        strategy: Strategy with the replicas.
        precision: `float32` or `mixed_bfloat16`.

    Returns:
        FLOP/s of all replicas together, the best of three measurements.
    """
    size, count = (1024, 8) if runs_on_cpu(strategy) else (8192, 10)
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32

    def make_operand() -> tf.Tensor:
        return tf.cast(tf.random.stateless_normal([size, size], [0, 1]), dtype)

    def multiply(left: tf.Tensor) -> tf.Tensor:
        right = left
        for _ in tf.range(count):
            right = tf.matmul(left, right) / size
        return tf.reduce_sum(tf.cast(right, tf.float32))

    seconds = time_on_replicas(strategy, make_operand, multiply)[0]
    return 2 * size**3 * count * strategy.num_replicas_in_sync / seconds


def runs_on_cpu(strategy: tf.distribute.Strategy) -> bool:
    """Return whether the replicas run on CPUs."""
    return not tf.config.list_logical_devices("GPU") and not isinstance(
        strategy, tf.distribute.TPUStrategy
    )


def time_on_replicas(
    strategy: tf.distribute.Strategy,
    make_operands: Callable,
    compute: Callable,
    min_seconds: float = 0.0,
) -> list[float]:
    """Measure repeatedly how long all replicas take to run a function at once.

    Args:
        strategy: Strategy with the replicas.
        make_operands: Function that creates the operands; it is not timed.
        compute: Function of the operands that returns a scalar.
        min_seconds: Total time after which the repetitions end, three or more.

    Returns:
        Seconds of each repetition, sorted from shortest to longest.
    """
    operands = tf.function(lambda: strategy.run(make_operands))()

    @tf.function
    def run(operands):
        result = strategy.run(compute, args=(operands,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, result, axis=None)

    run(operands)
    seconds = []
    while len(seconds) < 3 or sum(seconds) < min_seconds:
        begin = time.perf_counter()
        run(operands).numpy()
        seconds.append(time.perf_counter() - begin)
    return sorted(seconds)


def quantile(sorted_values: Sequence[float], q: float = 0.9) -> float:
    """Return a quantile, rounded up to one of the values."""
    return sorted_values[math.ceil(q * (len(sorted_values) - 1))]
