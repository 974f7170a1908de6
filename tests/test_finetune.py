"""The command: scores of a table; killed, stopped and resumed."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tiny
from conftest import ROOT, failure

from electra_tf.tasks.inference import load
from electra_tf.training.checkpoint import saved_steps

TEXTS, NUMBERS = tiny.texts(40, longest=11, shortest=10)


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


def start(arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "electra_tf.finetune", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


@pytest.fixture(scope="module")
def whole(pretrained, table, tmp_path_factory, command):
    """An uninterrupted run."""
    output = tmp_path_factory.mktemp("whole") / "run"
    result = command("finetune", *given(pretrained, table, output))
    assert result.returncode == 0, result.stderr
    return output, result.stdout


def logged_trials(folder):
    lines = (folder / "trials.jsonl").read_text().splitlines()
    trials = [json.loads(line) for line in lines]
    return [{k: v for k, v in trial.items() if k != "seconds"} for trial in trials]


def weights(folder):
    return tiny.weights(load(str(folder)))


def test_output_and_files_of_a_run(whole):
    output, stdout = whole
    assert "csv: 32 training examples, 9 steps in 3 epochs; dev 8" in stdout
    assert re.search(r"^train: \d+ of class 'bad', \d+ of class 'good'$", stdout, re.M)
    assert stdout.count("  epoch 3: ") == 2
    last = stdout.strip().splitlines()[-1]
    assert last.startswith("csv dev_macro_f1: median ")
    scores = json.loads((output / "results.json").read_text())["scores"]
    trials = logged_trials(output)
    assert [trial["seed"] for trial in trials] == [0, 1]
    values = [trial["scores"]["dev_accuracy"] for trial in trials]
    assert scores["dev_accuracy"]["median"] == pytest.approx(np.mean(values))
    assert scores["dev_accuracy"]["trials"] == 2
    names = {"config.yaml", "model.keras", "results.json", "trials.jsonl"}
    names |= {"trial_1", "trial_2", ".lock"}
    assert {path.name for path in output.iterdir()} == names
    assert len((output / "trial_2" / "dev.tsv").read_text().splitlines()) == 9


def test_a_killed_run_resumes_to_the_same_result(pretrained, table, whole, tmp_path):
    """Kill it in the second trial, after its first epoch."""
    output = tmp_path / "run"
    process = start(given(pretrained, table, output))
    saved = output / "trial_2" / "checkpoints"
    guard = threading.Timer(200, process.kill)
    guard.start()
    while process.poll() is None and not saved_steps(str(saved)):
        time.sleep(0.002)
    process.kill()
    process.communicate()
    guard.cancel()
    assert process.returncode == -signal.SIGKILL
    assert len(logged_trials(output)) == 1
    process = start(given(pretrained, table, output))
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "csv trial 2: resuming after " in out
    assert "csv trial 1 of 2" not in out
    assert logged_trials(output) == logged_trials(whole[0])
    assert tiny.distance(weights(output), weights(whole[0])) == 0


def test_a_terminated_run_exits_with_0_and_resumes(pretrained, table, whole, tmp_path):
    output = tmp_path / "run"
    process = start(given(pretrained, table, output))
    guard = threading.Timer(200, process.kill)
    guard.start()
    saved = output / "trial_1" / "checkpoints"
    while process.poll() is None and not saved_steps(str(saved)):
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    guard.cancel()
    assert process.returncode == 0, err
    assert "stopped by SIGTERM" in out
    process = start(given(pretrained, table, output))
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert logged_trials(output) == logged_trials(whole[0])
    assert tiny.distance(weights(output), weights(whole[0])) == 0


def test_invalid_input_is_an_error(pretrained, table, whole, tmp_path, here):
    message = failure(here("finetune", "--task=csv"))
    for flag in ("--data", "--checkpoint", "--output"):
        assert f"no {flag}" in message
    other = given(pretrained, table, tmp_path / "run", task="rte")
    message = failure(here("finetune", *other))
    assert "--text_columns, --label_column" in message
    assert "--task=rte" in message
    changed = given(pretrained, table, whole[0], keep="last")
    message = failure(here("finetune", *changed))
    assert "keep: last" in message
    message = failure(here("finetune", *given(tmp_path, table, tmp_path / "run")))
    assert str(tmp_path) in message
    wrong = given(pretrained, table, tmp_path / "run", label_column="knid")
    assert "knid" in failure(here("finetune", *wrong))
    assert not list(tmp_path.iterdir())
