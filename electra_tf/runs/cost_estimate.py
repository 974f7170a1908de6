"""What a step will take, from its FLOPs and bytes and the machine's measured rates."""

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

# What tracing and compiling leave in the host's memory, measured on CPUs.
_STEP, _BLOCK = 100 * 2**20, 8 * 2**20
# So long each rate is measured: other work may hold the cores for most of a second.
_SECONDS = 2.0


class Rate(NamedTuple):
    """How fast the machine is while nothing else uses it, and while it is disturbed."""

    best: float
    """Of the fastest of many short measurements."""
    disturbed: float
    """Nine of ten of them reach it."""


@dataclasses.dataclass(frozen=True)
class CostEstimate:
    """A step before it is run."""

    flops: int
    """Of its products."""
    traffic: int
    """Bytes that all its other operations read and write."""
    peak: Rate
    """FLOP/s of a layer's products here."""
    bandwidth: Rate
    """Bytes a second of chains here."""
    memory: int
    """Bytes at the worst moment: of the process on CPUs, of each device elsewhere."""

    @property
    def seconds(self) -> float:
        """Of one step: products and what stands between them do not overlap."""
        return self.flops / self.peak.best + self.traffic / self.bandwidth.best

    @property
    def disturbed(self) -> float:
        """Seconds of one step that other work disturbs as it did the measurement."""
        return (
            self.flops / self.peak.disturbed + self.traffic / self.bandwidth.disturbed
        )


def estimate_cost(
    config: PretrainingConfig,
    strategy: tf.distribute.Strategy,
    parameters: int,
    work: cost.BatchShape,
) -> CostEstimate:
    """Measures the machine and counts the work.

    Args:
        config: The experiment, with a vocabulary size. Its model is built already.
        strategy: The replicas.
        parameters: Number of trained weights.
        work: Rows of a global batch, and lengths.

    Returns:
        What to expect.
    """
    objective = config.objective
    kind = config.model, objective.name, not objective.uniform_generator
    replicas = strategy.num_replicas_in_sync
    rows = work.rows // replicas // config.training.accumulation
    part = dataclasses.replace(work, rows=rows)
    memory = cost.step_memory(*kind, parameters, part)
    if runs_on_cpu(strategy):
        towers = cost.encoder_configs(*kind)
        blocks = sum(shape.depth for shape in towers)
        built = 12 * parameters  # weights and slots, which are there already
        memory = peak_rss() + _STEP + blocks * _BLOCK + replicas * (memory - built)
    return CostEstimate(
        flops=cost.step_flops(*kind, work),
        traffic=cost.step_traffic(*kind, parameters, work),
        peak=measure_matmuls(
            strategy,
            config.training.precision,
            config.model.encoder,
            rows * work.length,
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
    """Time the products of a layer, forward and backward, on every replica at once.

    Those of a narrow model may be slower than large ones.

    Args:
        strategy: The replicas.
        precision: `float32` or `mixed_bfloat16`.
        shape: The layer's.
        positions: Of a replica's batch; of many only some are taken.

    Returns:
        FLOP/s of all replicas together.
    """
    # On a host many short tries: between two of them other work may be done.
    most, times = (2048, 1) if runs_on_cpu(strategy) else (16384, 20)
    width, inner, positions = shape.width, shape.feed_forward, min(positions, most)
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32
    sizes = [(width, width)] * 4 + [(width, inner), (inner, width)]

    def values() -> tuple[tf.Tensor, list[tf.Tensor]]:
        kernels = [
            tf.random.stateless_normal(size, [0, 1], stddev=size[0] ** -0.5)
            for size in sizes
        ]
        x_XD = tf.random.stateless_normal([positions, width], [0, 2])
        return tf.cast(x_XD, dtype), [tf.cast(kernel, dtype) for kernel in kernels]

    def layers(given: tuple[tf.Tensor, list[tf.Tensor]]) -> tf.Tensor:
        x_XD, kernels = given
        total = tf.zeros([], dtype)
        for _ in tf.range(times):
            with tf.GradientTape() as tape:
                tape.watch([x_XD, *kernels])
                found_XD = functools.reduce(tf.matmul, kernels, x_XD)
            gradients = tape.gradient(found_XD, [x_XD, *kernels], found_XD)
            # Each pass needs the one before, and none is left out.
            total += tf.add_n([tf.reduce_sum(gradient) for gradient in gradients])
            x_XD += 1e-6 * gradients[0]
        return tf.cast(total, tf.float32)

    flops = 3 * 2 * positions * sum(depth * out for depth, out in sizes) * times
    return _rate(strategy, values, layers, flops)


def measure_layer_ops(
    strategy: tf.distribute.Strategy, precision: str, xla: str
) -> Rate:
    """Time the chains of a layer, forward and backward, on every replica at once.

    Args:
        strategy: The replicas.
        precision: `float32` or `mixed_bfloat16`.
        xla: The setting `training.xla`.

    Returns:
        Bytes of float32 a second of all replicas together.
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

    def values() -> list[tf.Tensor]:
        return [
            tf.cast(tf.random.stateless_normal([rows, length, size], [0, 1]), dtype)
            for size in (width, inner)
        ]

    def layer(x_BLD: tf.Tensor, y_BLF: tf.Tensor) -> list[tf.Tensor]:
        layer_ops = make_layer_ops(make_rng(0, TRAINING, 0), training=True, xla=xla)
        biases = [tf.zeros(size, dtype) for size in (width, inner)]
        with tf.GradientTape() as tape:
            tape.watch([x_BLD, y_BLF, *biases])
            first_BLD = layer_ops.bias_dropout_add_norm(
                x_BLD, biases[0], x_BLD, dropout, norm
            )
            found = [
                layer_ops.bias_dropout_add_norm(
                    first_BLD, biases[0], first_BLD, dropout, norm
                ),
                layer_ops.bias_gelu(y_BLF, biases[1]),
            ]
        return tape.gradient(found, [x_BLD, y_BLF, *biases])

    def layers(given: list[tf.Tensor]) -> tf.Tensor:
        for _ in tf.range(times):
            given = [*layer(*given)[:2]]
        return tf.add_n([tf.reduce_sum(tf.cast(x, tf.float32)) for x in given])

    done = cost.layer_ops_bytes(rows * length, width, inner) * times
    return _rate(strategy, values, layers, done)


def _rate(strategy: tf.distribute.Strategy, make, work, done: int) -> Rate:
    """From what one replica does at a time to what all do in a second."""
    taken = time_on_replicas(strategy, make, work, _SECONDS)
    done *= strategy.num_replicas_in_sync
    return Rate(done / taken[0], done / quantile(taken))


def peak_rss() -> int:
    """Bytes of memory this process has held at most so far (on Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
