"""The command: a checkpoint and a table in, scores out; killed and gone on with."""

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time

import keras
import numpy as np
import pytest
from conftest import ROOT, failure
from pretrain_commands import arguments, start
from tasks import tiny

from electra_tf.training.checkpoint import saved_steps

TEXTS, NUMBERS = tiny.texts(40, longest=11, shortest=10)


@pytest.fixture(scope="module")
def checkpoint(folder, tmp_path_factory):
    """Two steps of pre-training."""
    output = tmp_path_factory.mktemp("pretrained") / "run"
    sets = ("training.steps=2", "optimizer.warmup_steps=1", "training.keep_at=[]")
    process = start(*arguments(folder, output, *sets))
    _, err = process.communicate()
    assert process.returncode == 0, err
    return output


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "texts.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "kind"])
        writer.writerows(
            (text, ("bad", "good")[n]) for text, n in zip(TEXTS, NUMBERS, strict=True)
        )
    return path


def given(checkpoint, table, output, **flags):
    flags = {
        "task": "csv",
        "data": table,
        "checkpoint": checkpoint,
        "output": output,
        "trials": 2,
        "text_columns": "text",
        "label_column": "kind",
        "keep": "best",
        **flags,
    }
    sets = ("training.epochs=3", "training.batch_size=12", "data.dev_share=0.2")
    return [
        *(f"--{name}={value}" for name, value in flags.items()),
        *(f"--set={item}" for item in sets),
    ]


def begun(arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "electra_tf.finetune", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


@pytest.fixture(scope="module")
def whole(checkpoint, table, tmp_path_factory, command):
    """A run that nothing stopped."""
    output = tmp_path_factory.mktemp("whole") / "run"
    result = command("finetune", *given(checkpoint, table, output))
    assert result.returncode == 0, result.stderr
    return output, result.stdout


def written(folder):
    found = [json.loads(line) for line in (folder / "trials.jsonl").open()]
    return [{k: v for k, v in one.items() if k != "seconds"} for one in found]


def weights(folder):
    return tiny.weights(keras.saving.load_model(folder / "model.keras"))


def test_it_tells_and_leaves_what_it_should(whole):
    output, said = whole
    assert "csv: 32 examples to learn from, 9 steps in 3 epochs; dev 8" in said
    assert said.count("  epoch 3: ") == 2
    last = said.strip().splitlines()[-1]
    assert last.startswith("csv dev_macro_f1: median ")
    scores = json.loads((output / "results.json").read_text())["scores"]
    trials = written(output)
    assert [trial["seed"] for trial in trials] == [0, 1]
    values = [trial["scores"]["dev_accuracy"] for trial in trials]
    assert scores["dev_accuracy"]["median"] == pytest.approx(np.mean(values))
    assert scores["dev_accuracy"]["trials"] == 2
    names = {"config.yaml", "model.keras", "results.json", "trials.jsonl"}
    names |= {"trial_1", "trial_2", ".lock"}
    assert {path.name for path in output.iterdir()} == names
    assert len((output / "trial_2" / "dev.tsv").read_text().splitlines()) == 9


def test_a_killed_run_ends_as_if_nothing_had(checkpoint, table, whole, tmp_path):
    """Killed with SIGKILL within the second trial, after its first epoch."""
    output = tmp_path / "run"
    process = begun(given(checkpoint, table, output))
    saved = output / "trial_2" / "checkpoints"
    guard = threading.Timer(200, process.kill)
    guard.start()
    while process.poll() is None and not saved_steps(str(saved)):
        time.sleep(0.002)
    process.kill()
    process.communicate()
    guard.cancel()
    assert process.returncode == -signal.SIGKILL
    assert len(written(output)) == 1
    process = begun(given(checkpoint, table, output))
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "csv trial 2: going on after " in out
    assert "csv trial 1 of 2" not in out
    assert written(output) == written(whole[0])
    assert tiny.distance(weights(output), weights(whole[0])) == 0


def test_what_is_wrong_is_told(checkpoint, table, whole, tmp_path, command):
    message = failure(command("finetune", "--task=csv"))
    assert "no --data and no --checkpoint and no --output" in message
    changed = given(checkpoint, table, whole[0], keep="last")
    message = failure(command("finetune", *changed))
    assert "keep: last" in message
    message = failure(command("finetune", *given(tmp_path, table, tmp_path / "run")))
    assert "A checkpoint is a folder" in message
