"""Estimate the time and memory of a training step from its FLOPs and bytes.

The rates of the machine are measured: FLOP/s of a layer's matmuls, and bytes per second
of its element-wise operations.
"""

import dataclasses
import functools
import resource
from typing import NamedTuple

import tensorflow as tf

from electra_tf.config.pretraining import EncoderConfig, PretrainingConfig
from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.model import cost
from electra_tf.pretraining.objectives.common import make_layer_ops
from electra_tf.training.peak_flops import quantile, runs_on_cpu, time_on_replicas

# Host memory of a traced and compiled step on CPUs: fixed, and for each layer.
_STEP_BYTES, _BLOCK_BYTES = 100 * 2**20, 8 * 2**20
# Measuring time of each rate: other work may hold the cores for most of a second.
_SECONDS = 2.0


class Rate(NamedTuple):
    """Measured rate per second."""

    best: float
    """Rate of the fastest measurement."""
    slow: float
    """Rate that nine of ten measurements reach."""


@dataclasses.dataclass(frozen=True)
class CostEstimate:
    """Estimated cost of a training step."""

    flops: int
    """FLOPs of the matmuls."""
    traffic: int
    """Bytes that all other operations read and write."""
    matmul_rate: Rate
    """FLOP/s of a layer's matmuls."""
    bandwidth: Rate
    """Bytes per second of a layer's element-wise operations."""
    memory: int
    """Peak memory in bytes: of the process on CPUs, of each device elsewhere."""

    @property
    def seconds(self) -> float:
        """Return the seconds of a step; matmuls and other operations do not overlap."""
        return self.flops / self.matmul_rate.best + self.traffic / self.bandwidth.best

    @property
    def slow_seconds(self) -> float:
        """Return the seconds of a step at the slow rates."""
        return self.flops / self.matmul_rate.slow + self.traffic / self.bandwidth.slow


def estimate_cost(
    config: PretrainingConfig,
    strategy: tf.distribute.Strategy,
    num_parameters: int,
    batch: cost.BatchShape,
) -> CostEstimate:
    """Measure the rates of the machine and estimate the cost of a step."""
    objective = config.objective
    kind = config.model, objective.name, objective.has_generator
    replicas = strategy.num_replicas_in_sync
    rows = batch.batch_size // replicas // config.training.accumulation
    local_batch = dataclasses.replace(batch, batch_size=rows)
    memory = cost.step_memory(*kind, num_parameters, local_batch)
    if runs_on_cpu(strategy):
        blocks = sum(shape.depth for shape in cost.encoder_configs(*kind))
        allocated = 12 * num_parameters  # weights and slots, part of `peak_rss`
        memory = (
            peak_rss()
            + _STEP_BYTES
            + blocks * _BLOCK_BYTES
            + replicas * (memory - allocated)
        )
    return CostEstimate(
        flops=cost.step_flops(*kind, batch),
        traffic=cost.step_traffic(*kind, num_parameters, batch),
        matmul_rate=measure_matmuls(
            strategy,
            config.training.precision,
            config.model.encoder,
            rows * batch.length,
        ),
        bandwidth=measure_layer_ops(
            strategy, config.training.precision, config.training.xla
        ),
        memory=memory,
    )


def measure_matmuls(
    strategy: tf.distribute.Strategy,
    precision: str,
    shape: EncoderConfig,
    positions: int,
) -> Rate:
    """Measure a layer's matmuls, forward and backward, on all replicas at once.

    The matmuls have the layer's shapes because narrow ones are slower than square ones.

    Args:
        strategy: Strategy with the replicas.
        precision: `float32` or `mixed_bfloat16`.
        shape: Shape of the encoder.
        positions: Positions in a replica's batch. More than 2,048 on a CPU, or 16,384
            elsewhere, are cut.
    """
    # Many short measurements on a host: other work may run between two of them.
    limit, times = (2048, 1) if runs_on_cpu(strategy) else (16384, 20)
    width, inner, positions = shape.width, shape.feed_forward, min(positions, limit)
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32
    sizes = [(width, width)] * 4 + [(width, inner), (inner, width)]

    def make_operands() -> tuple[tf.Tensor, list[tf.Tensor]]:
        kernels = [
            tf.random.stateless_normal(size, [0, 1], stddev=size[0] ** -0.5)
            for size in sizes
        ]
        x_XD = tf.random.stateless_normal([positions, width], [0, 2])
        return tf.cast(x_XD, dtype), [tf.cast(kernel, dtype) for kernel in kernels]

    def run_layers(operands: tuple[tf.Tensor, list[tf.Tensor]]) -> tf.Tensor:
        x_XD, kernels = operands
        total = tf.zeros([], dtype)
        for _ in tf.range(times):
            with tf.GradientTape() as tape:
                tape.watch([x_XD, *kernels])
                y_XD = functools.reduce(tf.matmul, kernels, x_XD)
            gradients = tape.gradient(y_XD, [x_XD, *kernels], y_XD)
            # Each pass depends on the one before, so TensorFlow cannot skip any.
            total += tf.add_n([tf.reduce_sum(gradient) for gradient in gradients])
            x_XD += 1e-6 * gradients[0]
        return tf.cast(total, tf.float32)

    flops = 3 * 2 * positions * sum(rows * columns for rows, columns in sizes) * times
    return _measure_rate(strategy, make_operands, run_layers, flops)


def measure_layer_ops(
    strategy: tf.distribute.Strategy, precision: str, xla: str
) -> Rate:
    """Measure a layer's fused ops, forward and backward, on all replicas at once.

    Args:
        strategy: Strategy with the replicas.
        precision: `float32` or `mixed_bfloat16`.
        xla: The setting `training.xla`.

    Returns:
        Bytes of float32 per second of all replicas together.
    """
    (rows, width), times = (
        ((16, 256), 4) if runs_on_cpu(strategy) else ((512, 1024), 20)
    )
    length, inner = 128, 4 * width
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32
    import keras  # once the backend is checked

    dropout = keras.layers.Dropout(0.1)
    with strategy.scope():
        norm = keras.layers.LayerNormalization()
        norm.build((None, width))

    def make_operands() -> list[tf.Tensor]:
        return [
            tf.cast(tf.random.stateless_normal([rows, length, size], [0, 1]), dtype)
            for size in (width, inner)
        ]

    def run_layer(x_BLD: tf.Tensor, y_BLF: tf.Tensor) -> list[tf.Tensor]:
        layer_ops = make_layer_ops(make_rng(0, TRAINING, 0), training=True, xla=xla)
        biases = [tf.zeros(size, dtype) for size in (width, inner)]
        with tf.GradientTape() as tape:
            tape.watch([x_BLD, y_BLF, *biases])
            first_BLD = layer_ops.bias_dropout_add_norm(
                x_BLD, biases[0], x_BLD, dropout, norm
            )
            outputs = [
                layer_ops.bias_dropout_add_norm(
                    first_BLD, biases[0], first_BLD, dropout, norm
                ),
                layer_ops.bias_gelu(y_BLF, biases[1]),
            ]
        return tape.gradient(outputs, [x_BLD, y_BLF, *biases])

    def run_layers(operands: list[tf.Tensor]) -> tf.Tensor:
        for _ in tf.range(times):
            operands = [*run_layer(*operands)[:2]]
        return tf.add_n([tf.reduce_sum(tf.cast(x, tf.float32)) for x in operands])

    num_bytes = cost.layer_ops_bytes(rows * length, width, inner) * times
    return _measure_rate(strategy, make_operands, run_layers, num_bytes)


def _measure_rate(strategy: tf.distribute.Strategy, make, work, amount: int) -> Rate:
    """Measure the amount of work per second of all replicas."""
    seconds = time_on_replicas(strategy, make, work, _SECONDS)
    amount *= strategy.num_replicas_in_sync
    return Rate(amount / seconds[0], amount / quantile(seconds))


def peak_rss() -> int:
    """Return the peak resident memory of this process in bytes (Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
