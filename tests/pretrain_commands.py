"""Arguments of small runs of pretrain, and the contents of their run directories."""

import subprocess
import sys
import time

import pytest

from electra_tf.training.metric_logger import read_metrics
from tests import conftest, tiny
from tests.conftest import ROOT, contents

SETS = (
    *tiny.SETS,
    "input.shuffle_window=50",
    "model.max_positions=64",
    "optimizer.learning_rate=1e-3",
    "optimizer.warmup_steps=5",
    "training.steps=60",
    "training.log_every=4",
    "training.save_every=3",
    "training.keep=2",
    "training.keep_at=[0.5]",
    "training.evaluate_every=12",
    "training.evaluation_batches=4",
)
TIME_DEPENDENT = {
    "time",
    "tokens_per_second",
    "flops_per_second",
    "input_share",
    "seconds_left",
}


def arguments(data, model_dir, *sets, **flags):
    given = conftest.flags(**{"data": data, "model_dir": model_dir, **flags})
    return [*given, *(f"--set={item}" for item in (*SETS, *sets))]


def file_contents(folder):
    """Return all files by path, except those that depend on the time."""
    excluded = "metrics.jsonl", ".lock", "tfevents"
    files = contents(folder).items()
    return {n: data for n, data in files if not any(part in n for part in excluded)}


def metric_lines(folder):
    """Return logged metrics by (kind, step), without those that depend on the time."""
    metrics = {}
    for line in read_metrics(str(folder)):
        assert (line["kind"], line["step"]) not in metrics
        numbers = {name: n for name, n in line.items() if name not in TIME_DEPENDENT}
        metrics[line["kind"], line["step"]] = numbers
    return metrics


def start(*given, command="pretrain", **options):
    """Start a command in its own process, with a low priority."""
    return subprocess.Popen(
        ["nice", sys.executable, "-m", f"electra_tf.{command}", *map(str, given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        **options,
    )


def wait_for(process, condition, period=0.02):
    """Wait for a condition while a process runs; kill the process on failure."""
    deadline = time.monotonic() + 600
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"ended too early, or hangs: {process.communicate()}")
        time.sleep(period)


def kill(process, condition, period=0.02):
    """Kill a process as soon as a condition holds."""
    wait_for(process, condition, period)
    process.kill()
    process.communicate()


def resume(here, folder, run, *given, **flags):
    """Run the command in this process and return what it prints."""
    done = here("pretrain", *arguments(folder, run, *given, **flags))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("training completed")
    return done


def assert_equal_lines(run, other, resumed_at=()):
    """Compare the metrics of a run with those of one that was not resumed.

    The first line after a resume has the means since then.
    """
    lines, others = metric_lines(run), metric_lines(other)
    assert list(lines) == list(others)
    logged = [step for kind, step in lines if kind == "train"]
    firsts = {min(n for n in logged if n > step) for step in resumed_at}
    for kind, step in lines:
        if kind != "train" or step not in firsts:
            # As text, so that NaN equals NaN.
            assert repr(lines[kind, step]) == repr(others[kind, step]), step


def assert_equal_runs(run, other, resumed_at=()):
    assert file_contents(run) == file_contents(other)
    assert_equal_lines(run, other, resumed_at)
