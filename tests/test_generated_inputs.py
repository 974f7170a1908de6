"""Generated files and flags give a right answer or an InputError."""

import sys

import pytest
from conftest import ROOT

from electra_tf.errors import InputError

pytest.importorskip("hypothesis")
sys.path.insert(0, str(ROOT / "tools" / "fault_checks"))
import generated_inputs
import input_kinds

pytestmark = pytest.mark.tools


def test_generated_inputs():
    kinds = [name for name in input_kinds.KINDS if name != ".keras"]
    report = generated_inputs.run_inputs(300, 0, kinds)
    assert report["failures"] == []
    assert report["inputs"] == report["answers"] + report["errors"] >= 290
    assert min(report["answers"], report["errors"]) > 30


def compute(folder, case):
    while True:
        pass


def take(folder, case):
    return b"x" * (80 << 20)


def look_up(folder, case):
    return {}["a key"]


def refuse(folder, case):
    raise InputError("A", "B", "C")


@pytest.mark.parametrize(
    ("read", "evidence"),
    [(compute, "over"), (take, "over 64 MiB"), (look_up, "KeyError"), (refuse, None)],
)
def test_failures_are_reported(read, evidence, monkeypatch):
    kind = input_kinds.KINDS["text"]._replace(read=read)
    monkeypatch.setitem(input_kinds.KINDS, "text", kind)
    monkeypatch.setattr(generated_inputs, "MAX_SECONDS", 0.2)
    monkeypatch.setattr(generated_inputs, "MAX_BYTES", 1 << 26)
    report = generated_inputs.run_inputs(3, 0, ["text"])
    assert report["inputs"] == 3
    if evidence is None:
        assert (report["errors"], report["failures"]) == (3, [])
        return
    assert len(report["failures"]) == 3
    for failure in report["failures"]:
        assert failure.startswith("text: ")
        assert evidence in failure
        assert "electra_tf_failures" in failure
