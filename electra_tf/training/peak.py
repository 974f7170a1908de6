"""How fast large matrix products are here: the limit a step is measured against."""

import time

import tensorflow as tf


def measure_peak(strategy: tf.distribute.Strategy, precision: str) -> float:
    """Times products of two large matrices on every replica at once.

    Args:
        strategy: The replicas.
        precision: `float32` or `mixed_bfloat16`.

    Returns:
        FLOP/s of all replicas together, the best of a few tries.
    """
    on_host = not tf.config.list_logical_devices("GPU") and not isinstance(
        strategy, tf.distribute.TPUStrategy
    )
    size, times = (1024, 8) if on_host else (8192, 10)
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32

    @tf.function
    def matrices() -> tf.Tensor:
        """Made before the time is taken: on a CPU it takes as long as a product."""
        return strategy.run(
            lambda: tf.cast(tf.random.stateless_normal([size, size], [0, 1]), dtype)
        )

    def products(left: tf.Tensor) -> tf.Tensor:
        right = left
        for _ in tf.range(times):
            right = tf.matmul(left, right) / size
        return tf.reduce_sum(tf.cast(right, tf.float32))

    left = matrices()

    @tf.function
    def on_all(left: tf.Tensor) -> tf.Tensor:
        found = strategy.run(products, args=(left,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, found, axis=None)

    on_all(left)
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        on_all(left).numpy()
        best = min(best, time.perf_counter() - begin)
    return 2 * size**3 * times * strategy.num_replicas_in_sync / best
