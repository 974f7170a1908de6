"""A small run of the quick start: its files, its page, and a second start."""

import copy
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from electra_tf.training.bfloat16 import multiplies_bfloat16
from tests.conftest import ROOT

pytestmark = pytest.mark.tools

sys.path.insert(0, str(ROOT / "tools" / "quickstart_lib"))
quickstart = importlib.import_module("quickstart")
OPTIONS = ["--seed=7", "--text_megabytes=0.3", "--vocabulary_size=500"]


def make_command(folder, steps):
    program = ROOT / "tools" / "quickstart_lib" / "quickstart.py"
    return [sys.executable, program, f"--output={folder}", f"--steps={steps}", *OPTIONS]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return output folder and standard output of a small quick start."""
    home = tmp_path_factory.mktemp("home")
    result = subprocess.run(
        make_command("run here", 4), capture_output=True, text=True, cwd=home
    )
    assert result.returncode == 0, result.stderr
    return home / "run here", result.stdout


def test_files_of_a_run(run):
    folder, stdout = run
    modules = [line.split()[3] for line in stdout.splitlines() if line.startswith("$ ")]
    names = ("build_vocab", *["build_records"] * 2, "pretrain", "evaluate")
    assert modules == [f"electra_tf.{n}" for n in (*names, "finetune", "finetune")]
    assert json.loads((folder / "evaluation.json").read_text())["step"] == 4
    assert (folder / "run/checkpoints/step_00000004/checkpoint.json").exists()
    assert "run here/run/checkpoints/step_00000004\n" in stdout
    config = (folder / "run/checkpoints/step_00000004/config.yaml").read_text()
    assert "seed: 7" in config
    assert ("precision: mixed_bfloat16" in config) == multiplies_bfloat16()
    held_out, train = (
        set((folder / "text" / name).read_text().split("\n")) - {""}
        for name in ("heldout.txt", "train.txt")
    )
    assert len(held_out) > 10
    assert not held_out & train


def test_page_is_complete_and_self_contained(run):
    folder, _ = run
    page = (folder / "report.html").read_text()
    assert not re.findall(r"(?:src|href)=|http:", page)
    assert page.count("<figure") > 3
    assert page.count("[MASK]") == 6  # a heading, and five sentences
    assert "<del>" in page
    for weights in ("pretrained", "random"):
        results = folder / f"classifier_{weights}" / "results.json"
        score = json.loads(results.read_text())["scores"]["test_accuracy"]["median"]
        assert f"{score:.1f} %" in page


def test_the_next_command_is_valid(run, monkeypatch):
    folder, stdout = run
    monkeypatch.chdir(folder.parent)
    (arguments,) = re.findall(r"^  \S+ -m electra_tf\.predict (.*)$", stdout, re.M)
    values = copy.deepcopy(importlib.import_module("electra_tf.predict").FLAGS)
    assert values(["command", *shlex.split(arguments)]) == ["command"]
    assert os.path.exists(values.model)


def test_second_run_repeats_no_stage(run):
    folder, stdout = run
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}
    for name in ("quickstart.json", "report.html"):  # always written
        del before[folder / name]
    result = subprocess.run(
        make_command("run here", 4), capture_output=True, text=True, cwd=folder.parent
    )
    assert result.returncode == 0, result.stderr
    assert "\n$ " not in result.stdout
    assert result.stdout.count("done before: ") == 8
    ends = (text.split("\nWhat came out")[1] for text in (result.stdout, stdout))
    assert len({*ends}) == 1
    assert {p: p.stat().st_mtime_ns for p in before} == before


@pytest.mark.slow
def test_resume_after_ctrl_c(tmp_path):
    steps = 1000
    process = subprocess.Popen(
        make_command("run", steps),
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
    metrics = tmp_path / "run/run/metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    stdout, _ = process.communicate()
    assert process.returncode == 130
    assert "stopped by SIGINT" in stdout
    assert f"quickstart --output=run --steps={steps} {' '.join(OPTIONS)}\n" in stdout
    result = subprocess.run(
        make_command("run", steps), capture_output=True, text=True, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert re.search(r"after step [1-9]", result.stderr)
    assert (tmp_path / f"run/run/checkpoints/step_{steps:08d}").exists()
