"""Compare updates on one and two replicas.

The comparison runs this file as a program, because the number of logical CPUs is fixed
when TensorFlow starts.
"""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT

from electra_tf.config.pretraining import OptimizerConfig as Settings
from electra_tf.errors import InputError
from electra_tf.training.optimizer import Optimizer
from electra_tf.training.schedule import WarmupPolynomialDecay


@pytest.fixture(scope="module")
def replicas():
    """Run `compare_replicas` in a new process and return its results."""
    result = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["mirrored", "workers", "one"])
def test_replicas_clip_the_summed_gradient(replicas, name):
    assert replicas[name]["replicas"] == (2 if name == "mirrored" else 1)
    assert replicas[name]["difference"] < 1e-6
    assert replicas[name]["updates"] == 6
    # Some updates are clipped and some are not; each replica's norm alone is above 2.
    assert min(replicas[name]["norms"]) < 2 < max(replicas[name]["norms"])


def test_keras_fit_on_two_replicas_gives_equal_weights(replicas):
    assert replicas["fit"] < 1e-6


def test_an_optimizer_created_outside_the_scope_is_an_error(replicas):
    assert "strategy.scope()" in replicas["outside"]


def make_optimizer(**changes):
    return Optimizer(WarmupPolynomialDecay(0.05, 10, 2), Settings(**changes))


def max_difference(arrays, others):
    pairs = zip(arrays, others, strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def fit_model(strategy):
    """Fit a Keras model with clipping and return its weights."""
    x = np.random.default_rng(3).normal(size=(32, 4)).astype("f")
    with strategy.scope():
        keras.utils.set_random_seed(5)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        model.compile(make_optimizer(clip_norm=0.3), "mse")
    model.fit(x, x[:, :2], batch_size=16, epochs=3, verbose=0, shuffle=False)
    return [weight.numpy() for weight in model.weights]


def run_updates(strategy):
    """Run six updates in one graph, with different gradients on each replica."""
    count = strategy.num_replicas_in_sync
    random = np.random.default_rng(0)
    table_T = tf.constant(random.normal(size=(6, 3, 2)), tf.float32)
    bias_T = tf.constant([0.1, 3.0, 0.2, 0.1, 5.0, 0.1])[:, None] * [[1.0, 2.0]]
    with strategy.scope():
        variables = [tf.Variable(tf.ones(s), name="v") for s in ([5, 2], [2], [3])]
        optimizer = make_optimizer(clip_norm=2.0)
        optimizer.build(variables)

    def step(t):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        sign = tf.cast(1 - 2 * replica, tf.float32) if count > 1 else 0.0
        slices = tf.IndexedSlices(0.1 * table_T[t] / count, tf.constant([1, 4, 1]))
        bias = bias_T[t] / count + 2.0 * sign
        return optimizer.update([slices, bias, None], variables)

    @tf.function
    def run(updates):
        norms = tf.TensorArray(tf.float32, updates)
        for t in tf.range(updates):
            norm = strategy.run(step, args=(t,))
            norms = norms.write(t, strategy.reduce("MEAN", norm, axis=None))
        return norms.stack()

    norms = run(tf.constant(6))
    slots = optimizer.slots()
    tensors = [norms, *variables, *slots["m"], *slots["v"]]
    return int(optimizer.iterations.numpy()), [tensor.numpy() for tensor in tensors]


def compare_replicas():
    """Print the differences between strategies and one device, as JSON."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 2
    )
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    workers = tf.distribute.MultiWorkerMirroredStrategy()
    expected = run_updates(tf.distribute.get_strategy())[1]
    results = {}
    for name, strategy in (
        ("mirrored", two),
        ("workers", workers),
        ("one", tf.distribute.OneDeviceStrategy("CPU:0")),
    ):
        updates, arrays = run_updates(strategy)
        results[name] = {
            "replicas": strategy.num_replicas_in_sync,
            "difference": max_difference(arrays, expected),
            "updates": updates,
            "norms": arrays[0].tolist(),
        }
    results["fit"] = max_difference(
        fit_model(two), fit_model(tf.distribute.get_strategy())
    )
    optimizer = make_optimizer()
    with two.scope():
        try:
            optimizer.build([tf.Variable([1.0])])
        except InputError as error:
            results["outside"] = str(error)
    print(json.dumps(results))


if __name__ == "__main__":
    compare_replicas()
