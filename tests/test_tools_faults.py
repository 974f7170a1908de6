"""The fault campaign on a small scale, and the texts of the planted defects."""

import importlib
import subprocess
import sys

import pytest
from conftest import ROOT

pytestmark = pytest.mark.tools
TOOL = ROOT / "tools" / "fault_checks"


def run(*arguments):
    return subprocess.run(
        [sys.executable, TOOL / "faults.py", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


def test_kills_and_corruptions_on_a_small_scale():
    result = run("kills", "corruptions", "--scale=0.02")
    assert result.returncode == 0, result.stderr
    _, kills, corruptions = result.stdout.splitlines()
    assert kills.startswith("| kills | 1 | 2% | kills 1, in writes ")
    assert corruptions.split(" | ")[4] == "0"
    result = run("corruptions", "--scale=0.4", "--seed=1")
    assert result.returncode == 0, result.stderr
    assert " detected " in result.stdout


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
    result = run(*arguments)
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert received in result.stderr
