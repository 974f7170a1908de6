"""Real commands on 2 and 4 workers: lost workers, and what the others do."""

import functools
import random
import signal
import time

import numpy as np
import pytest

from electra_tf.training.checkpoint import Checkpoint, open_checkpoint, saved_steps
from tests.training.worker_commands import pretrain_arguments, start_workers

COUNTS = [2, 4]
SECONDS = 60  # from the loss of a worker to the messages of the others
STEPS = 600
SETS = (
    f"training.steps={STEPS}",
    "training.log_every=50",
    "training.save_every=10",
    f"training.keep_at=[{50 / STEPS}]",
    "training.evaluate_every=300",
    "training.evaluation_batches=2",
)


def wait(processes, logs, seconds):
    """Return the exit statuses; fail with the logs if a process takes too long."""
    end = time.monotonic() + seconds
    while any(process.poll() is None for process in processes):
        assert time.monotonic() < end, read_logs(logs)
        time.sleep(0.05)
    return [process.returncode for process in processes]


def read_logs(logs):
    return {path.name: path.read_text()[-3000:] for path in sorted(logs.glob("*.log"))}


def kill(processes):
    for process in processes:
        process.kill()
        process.wait()


def checkpoints(run):
    return saved_steps(str(run / "checkpoints"))


def arrays(path, step):
    checkpoint = Checkpoint(path, step, {})
    return {**checkpoint.weights(), **checkpoint.slots()}


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    """Return a function of the number of workers that trains without interruption."""

    @functools.cache
    def train(count):
        parent = tmp_path_factory.mktemp(f"whole{count}")
        arguments = pretrain_arguments(folder, parent / "run", *SETS)
        processes = start_workers(count, arguments, parent)
        try:
            assert set(wait(processes, parent, 400)) == {0}, read_logs(parent)
        finally:
            kill(processes)
        return parent / "run"

    return train


# When a worker is lost (before all have started, or in training), how, and whether it
# is the chief, which also leads TensorFlow's coordination of the workers.
LOSSES = [
    ("start", signal.SIGKILL, False),
    ("training", signal.SIGKILL, True),
    ("training", signal.SIGKILL, False),
    ("training", signal.SIGSTOP, True),
    ("training", signal.SIGSTOP, False),
    ("training", signal.SIGTERM, False),
]


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_lost_workers_end_the_others_with_a_message_and_all_resume(
    folder, whole, tmp_path, count
):
    run, logs, seed = tmp_path / "run", tmp_path / "logs", random.randrange(10**6)
    rng = random.Random(seed)
    print(f"seed {seed}")
    arguments = pretrain_arguments(folder, run, *SETS)
    for moment, number, is_chief in LOSSES:
        lost = 0 if is_chief else rng.randrange(1, count)
        processes = start_workers(count, arguments, logs)
        try:
            if moment == "start":
                time.sleep(rng.uniform(0, 5))
                processes[lost].send_signal(number)
                missing_worker_is_reported(processes, lost, logs)
            else:
                wait_for_a_checkpoint(run, processes, logs)
                time.sleep(rng.uniform(0, 1))
                processes[lost].send_signal(number)
                others_end(processes, lost, number, logs)
        finally:
            kill(processes)
    processes = start_workers(count, arguments, logs)
    try:
        assert set(wait(processes, logs, 400)) == {0}, read_logs(logs)
    finally:
        kill(processes)
    assert "resuming after step" in (logs / "0.log").read_text()
    ours, theirs = (
        arrays(open_checkpoint(str(r)).path, STEPS) for r in (run, whole(count))
    )
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, name)


def wait_for_a_checkpoint(run, processes, logs):
    first, end = max(checkpoints(run), default=0), time.monotonic() + 300
    while max(checkpoints(run), default=0) <= first:
        assert time.monotonic() < end, read_logs(logs)
        assert all(process.poll() is None for process in processes), read_logs(logs)
        time.sleep(0.02)


def missing_worker_is_reported(processes, lost, logs):
    """Check for a message of each other worker, and that SIGTERM ends it."""
    others = [n for n in range(len(processes)) if n != lost]
    end = time.monotonic() + SECONDS
    while not all(
        "no connection to" in (logs / f"{n}.log").read_text() for n in others
    ):
        assert time.monotonic() < end, read_logs(logs)
        time.sleep(0.1)
    for n in others:
        processes[n].terminate()
    assert set(wait([processes[n] for n in others], logs, 10)) == {143}
    assert all("stopped by SIGTERM" in (logs / f"{n}.log").read_text() for n in others)


def others_end(processes, lost, number, logs):
    others = [n for n in range(len(processes)) if n != lost]
    statuses = wait([processes[n] for n in others], logs, SECONDS)
    texts = [(logs / f"{n}.log").read_text() for n in others]
    if number == signal.SIGTERM:
        assert processes[lost].wait(10) == 143
        assert set(statuses) == {143}, texts
        assert all("stopped by SIGTERM" in text for text in texts)
    else:
        assert set(statuses) == {1}, texts
        assert all(text.count("error: All workers must") == 1 for text in texts), texts
