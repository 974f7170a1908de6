"""The same batches on one device, on two replicas and on two workers: the same run.

Replicas and workers need processes that start as such; run as a program, this file is
one of them.
"""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT

from electra_tf import config, runs
from electra_tf.errors import InputError
from electra_tf.experiment import Experiment
from electra_tf.text.pipeline import training_batches
from electra_tf.training import strategy
from electra_tf.training.checkpoint import open_checkpoint, saved_steps
from electra_tf.training.device_loop import distribute
from electra_tf.training.reports import read_metrics
from training.toy import one_device

SETS = [
    "records.max_length=32",
    "input.batch_size=8",
    "model.depth=1",
    "model.width=32",
    "model.embedding=16",
    "model.heads=2",
    "model.generator_width=0.5",
    "model.max_positions=32",
    "optimizer.learning_rate=1e-3",
    "optimizer.warmup_steps=5",
    "optimizer.clip_norm=0.5",
    "training.steps=20",
    "training.log_every=5",
    "training.save_every=5",
    "training.evaluate_every=10",
    "training.evaluation_batches=3",
]
RUNS = {
    "paper": ["masking.scheme=paper", "training.accumulation=2"],
    "original": ["masking.scheme=original"],
    "xla": ["masking.scheme=original", "training.xla='on'"],
}
LOSSES = ("loss", "masked_lm_loss", "disc_loss", "gradient_norm", "learning_rate")


def resolve(data, *sets):
    return Experiment.resolve(
        str(data), None, lambda stored: config.load(sets=[*SETS, *sets], base=stored)
    )


def train(devices, data, folder, name):
    """One of the runs; the first one is also measured."""
    experiment = resolve(data, *RUNS[name])
    found = experiment.open(str(data))
    held_out = found if name == "paper" else None
    return runs.train(experiment, devices, str(folder), found, held_out)[0]


def distance(folder, other):
    """The largest difference of a weight or a slot."""
    one, two = open_checkpoint(str(folder)), open_checkpoint(str(other))
    assert one.step == two.step
    found = 0.0
    for mine, its in ((one.weights(), two.weights()), (one.slots(), two.slots())):
        assert mine.keys() == its.keys()
        found = max(found, *(np.abs(mine[name] - its[name]).max() for name in mine))
    return found


def assert_same_lines(folder, other, tolerance):
    pairs = zip(read_metrics(str(folder)), read_metrics(str(other)), strict=True)
    for mine, its in pairs:
        assert (mine["kind"], mine["step"]) == (its["kind"], its["step"])
        losses = [name for name in LOSSES if name in mine]
        assert len(losses) == (5 if mine["kind"] == "train" else 2)
        for name in losses:
            assert mine[name] == pytest.approx(its[name], rel=tolerance), name
        assert mine["disc_auc"] == pytest.approx(its["disc_auc"], abs=1e-3)


@pytest.fixture(scope="module")
def processes(folder, tmp_path_factory):
    """What two replicas and two workers leave and say, all started at once."""
    output = tmp_path_factory.mktemp("replicas")
    path = f"{ROOT}{os.pathsep}{ROOT / 'tests'}"
    environment = {**os.environ, "PYTHONPATH": path}
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(socket.socket()) for _ in range(2)]
        for port in ports:
            port.bind(("localhost", 0))
        workers = [f"localhost:{port.getsockname()[1]}" for port in ports]
    cluster = {"cluster": {"worker": workers}}
    tasks = [{**cluster, "task": {"type": "worker", "index": i}} for i in range(2)]
    running = {}
    for name, task in (
        ("mirrored", {}),
        ("worker-0", tasks[0]),
        ("worker-1", tasks[1]),
    ):
        running[name] = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "training.test_replicas",
                name,
                str(folder),
                str(output),
            ],
            env={**environment, "TF_CONFIG": json.dumps(task)},
            stdout=subprocess.PIPE,
            stderr=(output / f"{name}.log").open("w"),
            text=True,
            cwd=ROOT,
        )
    yield output, running
    for process in running.values():
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def one(processes, folder):
    """The same runs on one device, trained while the others train."""
    output = processes[0] / "one"
    for name in RUNS:
        assert train(one_device(), folder, output / name, name) == 0
    return output


def ended(processes, name):
    """What a process has said, as JSON, once it is done."""
    output, running = processes
    process = running[name]
    said = process.communicate()[0] if process.stdout else ""
    assert process.returncode == 0, (output / f"{name}.log").read_text()[-5000:]
    return json.loads(said.splitlines()[-1])


@pytest.fixture(scope="module")
def mirrored(processes):
    return ended(processes, "mirrored")


@pytest.fixture(scope="module")
def workers(processes):
    return [ended(processes, f"worker-{index}") for index in range(2)]


def test_the_batches_put_it_to_the_test(folder, one):
    """Halves of unlike weight, gradients that are clipped, dropout."""
    experiment = resolve(folder)
    found = experiment.open(str(folder))
    batches = itertools.islice(training_batches(found, experiment.config.input), 20)
    halves = [batch.input_mask_BL.numpy().reshape(2, -1).sum(1) for batch in batches]
    assert sum(abs(a - b) > 0.1 * a for a, b in halves) > 5
    norms = [
        m["gradient_norm"] for m in read_metrics(str(one / "paper")) if "loss" in m
    ]
    assert min(norms) > experiment.config.optimizer.clip_norm
    assert experiment.config.model.dropout == 0.1


@pytest.mark.parametrize("name", ["paper", "original"])
def test_two_replicas_train_as_one(one, processes, mirrored, name):
    other = processes[0] / "mirrored" / name
    assert distance(one / name, other) < 1e-5
    assert_same_lines(one / name, other, 1e-5)


@pytest.mark.parametrize("name", ["paper", "original"])
def test_two_workers_train_as_one(one, processes, workers, name):
    other = processes[0] / "workers" / name
    assert distance(one / name, other) < 1e-5
    assert_same_lines(one / name, other, 1e-5)


def test_xla_trains_as_the_graph(one):
    assert distance(one / "original", one / "xla") < 1e-4
    assert_same_lines(one / "original", one / "xla", 1e-4)


def test_xla_on_two_replicas_trains_as_the_graph_on_one(one, processes, mirrored):
    other = processes[0] / "mirrored" / "xla"
    assert distance(one / "original", other) < 1e-4
    assert_same_lines(one / "original", other, 1e-4)


def test_replicas_have_parts_of_each_batch_in_their_order(mirrored):
    assert mirrored["replicas"] == 2
    assert mirrored["rows"] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_a_batch_that_replicas_cannot_share_is_told(mirrored):
    assert "by 2 replicas. Arrived: input.batch_size 9." in mirrored["odd"]
    assert "Set input.batch_size=8 or 10" in mirrored["odd"]


def test_a_signal_to_one_worker_stops_all_and_they_go_on(workers, one):
    # That they then train as one is told above.
    assert [worker["chief"] for worker in workers] == [True, False]
    assert [worker["stopped"] for worker in workers] == [signal.SIGTERM] * 2
    assert workers[0]["step"] == workers[1]["step"]
    assert 0 < workers[0]["step"] < 20


def test_workers_that_share_no_folder_are_told(workers):
    for worker in workers:
        assert "Arrived: worker 0 at 20, worker 1 at 0." in worker["apart"]
        assert "one --model_dir" in worker["apart"]


def as_mirrored(data, output):
    devices = strategy.choose("mirrored", cpu_replicas=2)
    for name in RUNS:
        train(devices, data, output / "mirrored" / name, name)
    numbers = tf.data.Dataset.range(8).batch(4, drop_remainder=True)
    parts = iter(distribute(devices, lambda *_: tf.data.Dataset.zip((numbers,))))
    rows = [[p.numpy().tolist() for p in next(parts)[0].values] for _ in range(2)]
    try:
        resolve(data, "input.batch_size=9").pretrainer(devices)
        odd = None
    except InputError as error:
        odd = str(error)
    return {"replicas": devices.num_replicas_in_sync, "rows": rows, "odd": odd}


def as_worker(index, data, output):
    devices = strategy.choose("auto")
    folder = output / "workers" / "original"
    if index == 1:  # it gets the signal, the other one hears of it
        threading.Thread(target=interrupt_after, args=(folder,), daemon=True).start()
    stopped = train(devices, data, folder, "original")
    step = open_checkpoint(str(folder)).step
    train(devices, data, folder, "original")
    paper = output / "workers" / "paper"
    train(devices, data, paper, "paper")
    apart = output / "workers" / f"apart-{index}"
    if index == 0:
        shutil.copytree(paper, apart)
    try:
        told = train(devices, data, apart, "paper")
    except InputError as error:
        told = str(error)
    chief = strategy.is_chief(devices)
    return {"chief": chief, "stopped": stopped, "step": step, "apart": told}


def interrupt_after(folder):
    while not saved_steps(str(folder / "checkpoints")):
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    role, data, output = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
    if role == "mirrored":
        said = as_mirrored(data, output)
    else:
        said = as_worker(int(role[-1]), data, output)
    print(json.dumps(said))
