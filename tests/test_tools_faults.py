"""The fault campaign on a small scale, and the texts of the planted defects."""

import importlib

import pytest
from conftest import ROOT, python

pytestmark = pytest.mark.tools
TOOL = ROOT / "tools" / "fault_checks"


def test_one_kill(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOL))
    result = importlib.import_module("kills").run_kills(1, 0, steps=60)
    assert (result["kills"], result["runs"], result["failures"]) == (1, 1, [])


def test_twenty_corruptions():
    result = python(TOOL / "faults.py", "corruptions", "--scale=0.4")
    assert result.returncode == 0, result.stderr
    row = result.stdout.splitlines()[-1].split(" | ")
    assert row[:3] == ["| corruptions", "20", "40%"]
    assert row[3].startswith("detected ")
    assert row[4] == "0"


def test_planted_defects_are_edits_of_texts_that_occur_once(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOL))
    planted = importlib.import_module("planted_defects")
    assert list(planted.check_texts(planted.DEFECTS)) == []
    moved = planted.DEFECTS[0]._replace(old="no such text", tests="no_such.py")
    (text, tests) = planted.check_texts([moved])
    assert "no such text" in text
    assert "no_such.py" in tests


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        (["kills", "bites"], "bites"),
        (["--scale=0"], "0"),
        (["planted", "bite"], "bite"),
    ],
)
def test_invalid_options_are_errors(arguments, received):
    result = python(TOOL / "faults.py", *arguments)
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert received in result.stderr
