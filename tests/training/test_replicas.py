"""Train on the same batches with one device, two replicas and two workers.

Replicas and workers need new processes, because the devices are fixed when TensorFlow
starts. Those processes run this file as a program.
"""

import dataclasses
import functools
import itertools
import json
import os
import pathlib
import shutil
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.batch import Batch
from electra_tf.config.objectives import OBJECTIVE_SETTINGS
from electra_tf.config.pretraining import OptimizerConfig, TrainingConfig
from electra_tf.errors import InputError
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.runs.pretraining import Run
from electra_tf.text.pipeline import training_batches
from electra_tf.training import strategy
from electra_tf.training.checkpoint import open_checkpoint
from electra_tf.training.loop import StepRunner
from electra_tf.training.metric_logger import read_metrics
from electra_tf.training.optimizer import Optimizer, create_optimizer
from electra_tf.training.schedule import WarmupPolynomialDecay
from electra_tf.training.workers import is_chief
from tests import tiny
from tests.training.toy import one_device
from tests.training.worker_commands import SETS as SMALL
from tests.training.worker_commands import start_workers

pytestmark = pytest.mark.runs

SETS = [
    *SMALL,
    "training.steps=20",
    "training.log_every=5",
    "training.save_every=5",
    "training.evaluate_every=10",
    "training.evaluation_batches=3",
]
RUNS = {
    "paper": ["masking.scheme=paper", "training.accumulation=2"],
    "original": ["masking.scheme=original"],
    "xla": ["masking.scheme=original", "training.xla=on"],
}
LOSSES = ("loss", "masked_lm_loss", "disc_loss", "gradient_norm", "learning_rate")


def train(devices, data, folder, name):
    """Train the run `name`; the first one is also evaluated."""
    experiment = tiny.resolve(data, *SETS, *RUNS[name])
    record_set = experiment.open(str(data))
    held_out = record_set if name == "paper" else None
    run = Run(experiment, devices, record_set, str(folder), held_out)
    return run.train()[0]


def max_difference(folder, other):
    """Return the largest difference of a weight or an optimizer slot."""
    a, b = open_checkpoint(str(folder)), open_checkpoint(str(other))
    assert a.step == b.step
    differences = []
    for ours, theirs in ((a.weights(), b.weights()), (a.slots(), b.slots())):
        assert ours.keys() == theirs.keys()
        differences += [np.abs(ours[name] - theirs[name]).max() for name in ours]
    return max(differences)


def assert_same_lines(folder, other, tolerance):
    pairs = zip(read_metrics(str(folder)), read_metrics(str(other)), strict=True)
    for ours, theirs in pairs:
        assert (ours["kind"], ours["step"]) == (theirs["kind"], theirs["step"])
        losses = [name for name in LOSSES if name in ours]
        assert len(losses) == (5 if ours["kind"] == "train" else 2)
        for name in losses:
            assert ours[name] == pytest.approx(theirs[name], rel=tolerance), name
        assert ours["disc_auc"] == pytest.approx(theirs["disc_auc"], abs=1e-3)


def start(name, data, output, count=1):
    """Start the task `name` in a process, or in workers; return a function of it.

    The function waits and returns the results; it shows the logs of a failure.
    """
    logs = output / f"logs_{name}"
    program = "-m", "tests.training.test_replicas", name, str(data), str(output)
    processes = start_workers(count, program, logs)

    def results():
        try:
            statuses = [process.wait() for process in processes]
        finally:
            for process in processes:
                process.kill()
        texts = {log.name: log.read_text()[-3000:] for log in logs.glob("*.log")}
        assert not any(statuses), json.dumps(texts, indent=1)
        results = [output / f"{name}_{index}.json" for index in range(count)]
        return [json.loads(path.read_text()) for path in results]

    return results


def index_of_worker():
    """Return the index in TF_CONFIG, 0 without one."""
    return json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("index", 0)


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("replicas")


@pytest.fixture(scope="module")
def processes(folder, output):
    """Start the processes of the quick tests and return a function of their results."""
    replicas = start("mirrored", folder, output)
    workers = start("workers", folder, output, 2)
    return functools.cache(lambda: [*replicas(), *workers()])


@pytest.fixture(scope="module")
def on_one_device(processes, folder, output):
    """Return a function that trains a run on one device.

    The first run is trained while the other processes train.
    """

    @functools.cache
    def trained(name):
        assert train(one_device(), folder, output / "one" / name, name) == 0
        return output / "one" / name

    trained("paper")
    return trained


@pytest.fixture(scope="module")
def mirrored(processes):
    return processes()[0]


@pytest.fixture(scope="module")
def workers(processes):
    return processes()[1:]


def test_the_batches_are_a_hard_case(folder, on_one_device):
    """Check for halves of unequal weight, clipped gradients and dropout."""
    experiment = tiny.resolve(folder, *SETS)
    record_set = experiment.open(str(folder))
    batches = itertools.islice(
        training_batches(record_set, experiment.config.input), 20
    )
    halves = [batch.input_mask_BL.numpy().reshape(2, -1).sum(1) for batch in batches]
    assert sum(abs(a - b) > 0.1 * a for a, b in halves) > 5
    norms = [
        m["gradient_norm"]
        for m in read_metrics(str(on_one_device("paper")))
        if "loss" in m
    ]
    assert min(norms) > experiment.config.optimizer.clip_norm
    assert experiment.config.model.dropout == 0.1


def test_two_replicas_train_like_one_device(on_one_device, output, mirrored):
    other = output / "mirrored" / "paper"
    assert max_difference(on_one_device("paper"), other) < 1e-5
    assert_same_lines(on_one_device("paper"), other, 1e-5)


def test_two_workers_train_like_one_device(on_one_device, output, workers):
    assert [worker["chief"] for worker in workers] == [True, False]
    other = output / "workers" / "paper"
    assert max_difference(on_one_device("paper"), other) < 1e-5
    assert_same_lines(on_one_device("paper"), other, 1e-5)


def test_replicas_receive_consecutive_rows_of_each_batch(mirrored):
    assert mirrored["replicas"] == 2
    assert mirrored["rows"] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_an_indivisible_batch_is_an_error(mirrored):
    assert "input.batch_size 9 must be divisible by the 2 replicas" in mirrored["odd"]
    assert "set input.batch_size=8 or 10" in mirrored["odd"]


def test_workers_without_a_shared_folder_raise_errors(workers, output):
    for worker in workers:
        assert "worker 0 at 20, worker 1 at 0" in worker["apart"]
        assert "--model_dir" in worker["apart"]
        assert "worker 1 has another folder" in worker["elsewhere"]
    assert not list(output.glob("workers/elsewhere-*/checkpoints"))


@pytest.mark.parametrize(
    "name", ["mirrored adam", "mirrored muon", "one adam", "one muon"]
)
def test_replicas_clip_the_summed_gradient(mirrored, name):
    updates = mirrored["updates"][name]
    assert updates["difference"] < 1e-6
    # Some updates are clipped and some are not; each replica's norm alone is above 2.
    assert len(updates["norms"]) == 6
    assert min(updates["norms"]) < 2 < max(updates["norms"])


def test_keras_fit_on_two_replicas_gives_equal_weights(mirrored):
    assert mirrored["fit"] < 1e-6


def test_an_optimizer_created_outside_the_scope_is_an_error(mirrored):
    assert "strategy.scope()" in mirrored["outside"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tolerance"), [("original", 1e-5), ("xla", 1e-4)])
def test_other_runs_train_like_the_original_graph_on_one_device(
    folder, on_one_device, output, name, tolerance
):
    start(f"mirrored_{name}", folder, output)()
    others = {on_one_device(name), output / "mirrored" / name} - {
        on_one_device("original")
    }
    for other in others:
        assert max_difference(on_one_device("original"), other) < tolerance
        assert_same_lines(on_one_device("original"), other, tolerance)


@pytest.mark.slow
def test_every_objective_gives_equal_weights_on_two_replicas(folder, output):
    (differences,) = start("objectives", folder, output)()
    assert differences.keys() == OBJECTIVE_SETTINGS.keys()
    assert max(differences.values()) < 2e-6, differences


def as_objectives(*_):
    """Return the largest difference of a weight on two replicas, by objective."""
    mirrored, differences = strategy.choose("mirrored", cpu_replicas=2), {}
    for name in OBJECTIVE_SETTINGS:
        one, two = (train_objective(name, d) for d in (one_device(), mirrored))
        differences[name] = max(float(np.abs(one[n] - two[n]).max()) for n in one)
    return differences


def train_objective(name, devices):
    """Return the weights after two steps, and for two stages after one of each."""
    # Rows of different lengths: the replicas have different numbers of tokens.
    whole, steps = tiny.batch([16, 5, 9, 16]), 2
    settings = dataclasses.replace(
        tiny.config(objective={"name": name}, dropout=0.1, **tiny.model_of(name)),
        training=TrainingConfig(steps=steps),
        optimizer=OptimizerConfig(warmup_steps=0, learning_rate=1e-3, epsilon=1e-3),
    )
    with devices.scope():
        pretrainer = Pretrainer(settings, tiny.TOKENS)
        pretrainer.compile(
            create_optimizer(settings.optimizer, steps, restart=settings.restart)
        )

    def rows(context):
        part = context.replica_id_in_sync_group
        size = 4 // devices.num_replicas_in_sync
        return Batch(*(x[part * size : (part + 1) * size] for x in whole))

    for step in range(steps):
        pretrainer.begin(step)
        batches = devices.experimental_distribute_values_from_function(rows)
        tf.function(devices.run)(pretrainer.train_step, args=(batches,))
    return {v.path: np.asarray(v) for v in pretrainer.trainable_variables}


def as_mirrored_run(name, data, output):
    devices = strategy.choose("mirrored", cpu_replicas=2)
    train(devices, data, output / "mirrored" / name, name)
    return devices


def as_mirrored(data, output):
    devices = as_mirrored_run("paper", data, output)
    numbers = tf.data.Dataset.range(8).batch(4, drop_remainder=True)
    runner = StepRunner(devices, rows_of_each_replica)
    iterator = strategy.iterate(devices, lambda *_: numbers)
    calls = [runner(iterator, 1)[0]["rows"][0] for _ in range(2)]
    rows = [call.astype(int).tolist() for call in calls]
    return {
        "replicas": devices.num_replicas_in_sync,
        "rows": rows,
        "odd": error_of(
            lambda: tiny.resolve(data, *SETS, "input.batch_size=9").pretrainer(devices)
        ),
        **compare_optimizers(devices),
    }


def rows_of_each_replica(batch_B, _):
    """Return the sum over replicas of their rows, each in a place of its own."""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return {"rows": (tf.one_hot(replica, 2)[:, None] * tf.cast(batch_B, "float32"), 1)}


def make_optimizer(**changes):
    return Optimizer(WarmupPolynomialDecay(0.05, 10, 2), OptimizerConfig(**changes))


def max_difference_of(arrays, others):
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


def run_updates(strategy, rule):
    """Run six updates in one graph, with different gradients on each replica."""
    count = strategy.num_replicas_in_sync
    random = np.random.default_rng(0)
    table_T = tf.constant(random.normal(size=(6, 3, 2)), tf.float32)
    bias_T = tf.constant([0.1, 3.0, 0.2, 0.1, 5.0, 0.1])[:, None] * [[1.0, 2.0]]
    with strategy.scope():
        variables = [
            tf.Variable(tf.ones(s), name="v") for s in ([5, 2], [2], [3], [2, 5])
        ]
        optimizer = make_optimizer(name=rule, clip_norm=2.0)
        optimizer.build(variables)

    def step(t):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        sign = tf.cast(1 - 2 * replica, tf.float32) if count > 1 else 0.0
        slices = tf.IndexedSlices(0.1 * table_T[t] / count, tf.constant([1, 4, 1]))
        bias = bias_T[t] / count + 2.0 * sign
        matrix = tf.pad(0.1 * tf.transpose(table_T[t]) / count, [[0, 0], [1, 1]])
        return optimizer.update([slices, bias, None, matrix], variables)

    @tf.function
    def run(updates):
        norms = tf.TensorArray(tf.float32, updates)
        for t in tf.range(updates):
            norm = strategy.run(step, args=(t,))
            norms = norms.write(t, strategy.reduce("MEAN", norm, axis=None))
        return norms.stack()

    norms = run(tf.constant(6))
    slots = optimizer.slots()
    squares = [slot for slot in slots["v"] if slot is not None]
    tensors = [norms, *variables, *slots["m"], *squares]
    return [tensor.numpy() for tensor in tensors]


def compare_optimizers(mirrored):
    """Return the differences of updates on several strategies to one device."""
    plain = tf.distribute.get_strategy()
    updates = {}
    for rule in ("adam", "muon"):
        expected = run_updates(plain, rule)
        for name, devices in (("mirrored", mirrored), ("one", one_device())):
            arrays = run_updates(devices, rule)
            difference = max_difference_of(arrays, expected)
            norms = arrays[0].tolist()
            updates[f"{name} {rule}"] = {"difference": difference, "norms": norms}
    optimizer = make_optimizer()

    def build_elsewhere():
        with mirrored.scope():
            optimizer.build([tf.Variable([1.0])])

    return {
        "updates": updates,
        "fit": max_difference_of(fit_model(mirrored), fit_model(plain)),
        "outside": error_of(build_elsewhere),
    }


def as_workers(data, output):
    devices = strategy.choose("auto")
    train(devices, data, output / "workers" / "paper", "paper")
    chief = is_chief(devices)
    index = index_of_worker()
    apart = output / "workers" / f"apart-{index}"
    if chief:
        shutil.copytree(output / "workers" / "paper", apart)
    elsewhere = output / "workers" / f"elsewhere-{index}"
    return {
        "chief": chief,
        "apart": error_of(lambda: train(devices, data, apart, "paper")),
        "elsewhere": error_of(lambda: train(devices, data, elsewhere, "paper")),
    }


def error_of(action):
    """Call `action` and return the text of its InputError, or None."""
    try:
        action()
    except InputError as error:
        return str(error)


TASKS = {
    "mirrored": as_mirrored,
    "mirrored_original": lambda *places: bool(as_mirrored_run("original", *places)),
    "mirrored_xla": lambda *places: bool(as_mirrored_run("xla", *places)),
    "objectives": as_objectives,
    "workers": as_workers,
}

if __name__ == "__main__":
    task, data, output = sys.argv[1:]
    result = TASKS[task](pathlib.Path(data), pathlib.Path(output))
    path = pathlib.Path(output, f"{task}_{index_of_worker()}.json")
    path.write_text(json.dumps(result))
