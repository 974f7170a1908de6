"""Train every objective on one device and on two replicas: the same weights.

The replicas need a new process, because the devices are fixed when TensorFlow starts.
It runs this file as a program.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT

from electra_tf.config.objectives import FACTS

STEPS = 2
LARGEST_DIFFERENCE = 2e-6


def train(name, strategy):
    """Return the weights after two steps, and for two stages after one of each."""
    import tensorflow as tf
    from tiny import TOKENS, batch, config, model_of

    from electra_tf.batch import Batch
    from electra_tf.config.pretraining import OptimizerConfig, TrainingConfig
    from electra_tf.pretraining.pretrainer import Pretrainer
    from electra_tf.training.optimizer import create_optimizer

    # Rows of different lengths: the replicas have different numbers of tokens.
    whole = batch([16, 5, 9, 16])
    settings = dataclasses.replace(
        config(objective={"name": name}, dropout=0.1, **model_of(name)),
        training=TrainingConfig(steps=STEPS),
        optimizer=OptimizerConfig(warmup_steps=0, learning_rate=1e-3, epsilon=1e-3),
    )
    with strategy.scope():
        pretrainer = Pretrainer(settings, TOKENS)
        optimizer = create_optimizer(
            settings.optimizer, STEPS, restart=settings.restart
        )
        pretrainer.compile(optimizer)

    def rows(context):
        part = context.replica_id_in_sync_group
        size = 4 // strategy.num_replicas_in_sync
        return Batch(*(x[part * size : (part + 1) * size] for x in whole))

    for step in range(STEPS):
        pretrainer.begin(step)
        batches = strategy.experimental_distribute_values_from_function(rows)
        tf.function(strategy.run)(pretrainer.train_step, args=(batches,))
    return {v.path: np.asarray(v) for v in pretrainer.trainable_variables}


def main():
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, devices)
    # Each strategy numbers its collective operations from the same number on, so a
    # process can have one with two replicas.
    strategies = (
        tf.distribute.OneDeviceStrategy("/cpu:0"),
        tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]),
    )
    differences = {}
    for name in FACTS:
        one, two = (train(name, strategy) for strategy in strategies)
        assert one.keys() == two.keys()
        differences[name] = max(float(np.abs(one[n] - two[n]).max()) for n in one)
    print(json.dumps(differences))


@pytest.fixture(scope="module")
def differences():
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    result = subprocess.run(
        [sys.executable, __file__],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", FACTS)
def test_two_replicas_give_the_weights_of_one(differences, name):
    assert differences[name] < LARGEST_DIFFERENCE


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
    main()
