"""Small runs of pretrain, in this process and in others, and what they leave."""

import copy
import pathlib
import signal
import subprocess
import sys

from conftest import ROOT

from electra_tf import cli, evaluate, pretrain
from electra_tf.training.reports import read_metrics

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


def run_here(capsys, monkeypatch, module, *given):
    """Runs a command line within this process: exit code, output and errors."""
    values = copy.deepcopy(_PRISTINE[module])
    monkeypatch.setattr(module, "FLAGS", values)
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, given)])
    handler, code = signal.getsignal(signal.SIGTERM), 0
    try:
        cli.run(module.main, values, module.__doc__)
    except SystemExit as ended:
        code = ended.code
    finally:
        signal.signal(signal.SIGTERM, handler)
    out, err = capsys.readouterr()
    if isinstance(code, str):  # printed by Python at the end of a process
        code, err = 1, f"{err}{code}\n"
    return code, out, err


_PRISTINE = {module: module.FLAGS for module in (pretrain, evaluate)}


def one_paragraph(code, out, err):
    """The error of a command that failed as it should."""
    assert code == 1
    assert "Traceback" not in err
    message = err.strip().splitlines()[-1]
    assert message.startswith("error: ")
    assert "Arrived: " in message
    return message
