"""Trainer with six weights, and a training run of it."""

import contextlib
import functools

import keras
import numpy as np
import tensorflow as tf

from electra_tf.config.pretraining import (
    OptimizerConfig,
    PretrainingConfig,
    TrainingConfig,
)
from electra_tf.pretraining.health import HealthCheck
from electra_tf.pretraining.metrics import compute_metrics
from electra_tf.training.checkpoint import CheckpointManager, steps_at_shares
from electra_tf.training.loop import TrainingLoop
from electra_tf.training.metric_logger import MetricLogger
from electra_tf.training.optimizer import create_optimizer
from electra_tf.training.outputs import ChiefOutputs, Outputs
from electra_tf.training.watchdog import Watchdog
from electra_tf.training.workers import WorkerSync


class Toy:
    """Trainer that moves two weights towards the mean of each batch, its number."""

    def __init__(self, steps=20, rate=0.1, **settings):
        with keras.name_scope("toy"):
            self.trainable_variables = [
                keras.Variable(np.array([1.0, 2.0], "f"), name="pull"),
                keras.Variable(np.full([2, 2], 3.0, "f"), name="layer_norm"),
            ]
        settings = OptimizerConfig(learning_rate=rate, warmup_steps=0, **settings)
        self.optimizer = create_optimizer(settings, steps)
        self.optimizer.build(self.trainable_variables)
        self.traced = 0

    stage, stages, jit_compile = 1, (), False

    def begin(self, step):
        pass

    def train_step(self, batch_B, as_ratios=False):
        self.traced += 1
        pull, other = self.trainable_variables
        number = tf.reduce_mean(batch_B)
        distance = pull.value - number
        loss = 0.5 * tf.reduce_sum(distance**2)
        gradients = [distance, 0.1 * other.value]
        norm = self.optimizer.update(gradients, self.trainable_variables)
        weight = tf.ones([])
        return {
            "loss": (loss, weight),
            "gradient_norm": (norm, weight),
            "tokens": (tf.cast(tf.size(batch_B), tf.float32), weight),
            "numbers": (tf.stack([number, number**2]), tf.ones([2])),
        }


def batches(first_batch, host=0, hosts=1):
    """Return an infinite dataset whose batch n is [n - 1/2, n + 1/2]."""
    numbers = tf.data.Dataset.range(first_batch, 10**6)
    return numbers.map(lambda n: tf.cast(n, tf.float32) + tf.constant([-0.5, 0.5]))


def scalar_metrics(metrics):
    """Compute all metrics except the vector `numbers`."""
    return compute_metrics({k: v for k, v in metrics.items() if k != "numbers"})


@functools.cache
def one_device():
    return tf.distribute.OneDeviceStrategy("/device:CPU:0")


def train(toy, folder, evaluate, writes=True, **changes):
    """Train a toy in a folder, from its current step on."""
    defaults = {"log_every": 5, "save_every": 7, "evaluate_every": 2, "keep_at": ()}
    settings = TrainingConfig(**{"steps": 20, **defaults, **changes})
    step, chief = int(toy.optimizer.iterations.numpy()), None
    with contextlib.ExitStack() as stack:
        if writes:
            metric_logger = MetricLogger(
                str(folder), steps=settings.steps, resumed_at=step
            )
            checkpoints = CheckpointManager(
                str(folder / "checkpoints"),
                settings.keep,
                lambda step, _: step in steps_at_shares(settings.keep_at, 20),
            )
            chief = ChiefOutputs(
                checkpoints,
                stack.enter_context(metric_logger),
                HealthCheck(settings.steps, 0, 10).check,
                metadata={"data": "toy"},
                files={},
            )
        return TrainingLoop(
            toy,
            one_device(),
            PretrainingConfig(training=settings),
            batches,
            evaluate,
            Outputs(toy, scalar_metrics, 100, chief),
            WorkerSync(one_device()),
            stack.enter_context(Watchdog(None)),
        ).run()
