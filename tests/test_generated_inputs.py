"""Generated files and flags give a right answer or an InputError."""

import dataclasses
import sys

import pytest
from conftest import ROOT

from electra_tf.errors import InputError

pytest.importorskip("hypothesis")
sys.path.insert(0, str(ROOT / "tools" / "fault_checks"))
import generated_inputs
import input_commands
import input_kinds

pytestmark = pytest.mark.tools
_BUILDS_A_MODEL = (".keras", "checkpoint to score with", "input of predict", "records")


def test_generated_inputs():
    kinds = [name for name in input_kinds.KINDS if name not in _BUILDS_A_MODEL]
    report = generated_inputs.run_in_process(300, 0, kinds)
    assert report["failures"] == []
    assert report["inputs"] == report["answers"] + report["errors"] == 300
    assert min(report["answers"], report["errors"]) > 30


@pytest.mark.slow
def test_ten_thousand_generated_inputs():
    report = generated_inputs.run_in_process(10_000, 0)
    assert report["failures"] == []
    assert report["inputs"] == report["answers"] + report["errors"] == 10_000
    for name in input_kinds.KINDS:
        assert report[f"{name} answers"] > 0, name
        assert report[f"{name} errors"] > 0, name


@pytest.mark.slow
def test_two_hundred_commands():
    report = generated_inputs.run_commands(200, 0)
    assert report["failures"] == []
    assert report["commands"] == report["answers"] + report["errors"] == 200


def compute(folder, case):
    while True:
        pass


def take(folder, case):
    return b"x" * (100 << 20)


def look_up(folder, case):
    return {}["a key"]


def refuse(folder, case):
    raise InputError("A", "B", "C")


@pytest.mark.parametrize(
    ("read", "evidence"),
    [(compute, "over"), (take, "over 64 MiB"), (look_up, "KeyError"), (refuse, None)],
)
def test_failures_are_reported(read, evidence, monkeypatch):
    kind = dataclasses.replace(input_kinds.KINDS["text"], read=read)
    monkeypatch.setitem(input_kinds.KINDS, "text", kind)
    monkeypatch.setattr(generated_inputs, "MAX_SECONDS", 0.2)
    monkeypatch.setattr(generated_inputs, "MAX_BYTES", 1 << 26)
    report = generated_inputs.run_in_process(3, 0, ["text"])
    assert report["inputs"] == 3
    if evidence is None:
        assert (report["errors"], report["failed"]) == (3, 0)
        return
    assert report["failed"] == 3
    (failure,) = report["failures"]
    assert evidence in failure
    assert "electra_tf_failures" in failure


def test_a_traceback_of_a_command_is_reported(tmp_path):
    def problem(**changes):
        result = input_commands.Result(1, "error: a message", 1.0, 100)
        return input_commands._problem(dataclasses.replace(result, **changes), 200)

    assert not problem()
    assert "KeyError" in problem(
        output="Traceback (most recent call last):\nKeyError: 1"
    )
    assert "signal 9" in problem(status=-9)
    assert "MiB" in problem(memory=300)
    assert "message" in problem(output="")


def test_a_command_and_its_memory_are_measured(tmp_path):
    result = input_commands.run_command(["build_vocab"], tmp_path, 60)
    assert result.status == 1
    assert "--input" in result.output
    assert 10 << 20 < result.memory < 1 << 30
