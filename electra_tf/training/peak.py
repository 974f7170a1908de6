"""How fast large matrix products are here: the limit a step is measured against."""

import time
from collections.abc import Callable

import tensorflow as tf


def measure_peak(strategy: tf.distribute.Strategy, precision: str) -> float:
    """Times products of two large matrices on every replica at once.

    Args:
        strategy: The replicas.
        precision: `float32` or `mixed_bfloat16`.

    Returns:
        FLOP/s of all replicas together, the best of a few tries.
    """
    size, times = (1024, 8) if on_host(strategy) else (8192, 10)
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32

    def matrices() -> tf.Tensor:
        """Made before the time is taken: on a CPU it takes as long as a product."""
        return tf.cast(tf.random.stateless_normal([size, size], [0, 1]), dtype)

    def products(left: tf.Tensor) -> tf.Tensor:
        right = left
        for _ in tf.range(times):
            right = tf.matmul(left, right) / size
        return tf.reduce_sum(tf.cast(right, tf.float32))

    best = best_seconds(strategy, matrices, products)
    return 2 * size**3 * times * strategy.num_replicas_in_sync / best


def on_host(strategy: tf.distribute.Strategy) -> bool:
    """Tells whether CPUs do the work.

    Args:
        strategy: The replicas.

    Returns:
        False with a GPU or a TPU.
    """
    return not tf.config.list_logical_devices("GPU") and not isinstance(
        strategy, tf.distribute.TPUStrategy
    )


def best_seconds(
    strategy: tf.distribute.Strategy, make: Callable, work: Callable
) -> float:
    """Times some work that all replicas do at once.

    Args:
        strategy: The replicas.
        make: Makes what is worked on, which is not timed.
        work: From that to a number.

    Returns:
        The least time of three.
    """
    made = tf.function(lambda: strategy.run(make))()

    @tf.function
    def on_all(made):
        found = strategy.run(work, args=(made,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, found, axis=None)

    on_all(made)
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        on_all(made).numpy()
        best = min(best, time.perf_counter() - begin)
    return best
