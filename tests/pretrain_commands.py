"""Small runs of pretrain, in this process and in others, and what they leave."""

import pathlib
import subprocess
import sys

from conftest import ROOT

from electra_tf.training.metric_logger import read_metrics

SETS = (
    "records.max_length=32",
    "input.batch_size=8",
    "input.shuffle_window=50",
    "model.depth=1",
    "model.width=32",
    "model.embedding=16",
    "model.heads=2",
    "model.generator_width=0.5",
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
CLOCK = {
    "time",
    "tokens_per_second",
    "flops_per_second",
    "share_of_peak",
    "input_share",
    "seconds_left",
}


def arguments(data, model_dir, *sets, **flags):
    flags = {"data": data, "model_dir": model_dir, **flags}
    given = [f"--{name}={value}" for name, value in flags.items() if value is not None]
    return [*given, *(f"--set={item}" for item in (*SETS, *sets))]


def tree(folder):
    """Every file's content, but those that tell of the clock."""
    files = pathlib.Path(folder).rglob("*")
    told = {"metrics.jsonl", ".lock"}
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in files
        if path.is_file() and path.name not in told and "tfevents" not in path.name
    }


def lines(folder):
    """(kind, step) -> numbers but those of the clock; each must be told once."""
    found = {}
    for line in read_metrics(str(folder)):
        assert (line["kind"], line["step"]) not in found
        numbers = {name: n for name, n in line.items() if name not in CLOCK}
        found[line["kind"], line["step"]] = repr(numbers)  # NaN is NaN there
    return found


def start(*given):
    """The real command in a process of its own, which lets this one go first."""
    return subprocess.Popen(
        ["nice", sys.executable, "-m", "electra_tf.pretrain", *map(str, given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
