"""The fault campaign on a small scale, and its report."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT

pytestmark = pytest.mark.tools


def run(*arguments):
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "fault_checks" / "faults.py", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


def test_kills_and_corruptions_on_a_small_scale(tmp_path):
    output = tmp_path / "results.json"
    for only, scale in (("kills", 0.02), ("corruptions", 0.4)):
        result = run(f"--only={only}", f"--scale={scale}", f"--output={output}")
        assert result.returncode == 0, result.stderr
    results = json.loads(output.read_text())
    assert results["kills"]["kills"] == results["kills"]["runs"] == 1
    found = results["corruptions"]
    assert found["detected"] + found["harmless"] == found["requested"] == 20
    assert found["silent"] == 0 < found["detected"]


def test_load_on_a_small_scale(tmp_path):
    output = tmp_path / "results.json"
    result = run("--only=load", "--scale=0.004", f"--output={output}")
    assert result.returncode == 0, result.stderr
    load = json.loads(output.read_text())["load"]
    assert load["failures"] == []
    assert load["requests"] > 100
    assert 0 < load["p50_ms"] < load["p99_ms"]


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(
        "before\n<!-- faults: begin -->\nold\n<!-- faults: end -->\nafter\n"
    )
    return path


def test_the_report_is_a_table_between_the_markers(tmp_path, page):
    results = {
        "kills": {
            **{"kills": 5, "in_writes": 2, "runs": 1, "failed": 0, "failures": []},
            **{"requested": 5, "full": 50, "seed": 0, "minutes": 1.5, "date": "today"},
        },
        "strings": {
            **{"strings": 9000, "different": 3, "failures": ["one"]},
            **{"requested": 9000, "full": 10**6, "seed": 0, "minutes": 1, "date": ""},
        },
    }
    output = tmp_path / "results.json"
    output.write_text(json.dumps(results))
    for _ in range(2):  # the second time it replaces its own table
        result = run("--report", f"--output={output}", f"--page={page}")
        assert result.returncode == 0, result.stderr
    text = page.read_text()
    assert text.startswith("before\n<!-- faults: begin -->\n| section")
    assert text.endswith("\n<!-- faults: end -->\nafter\n")
    rows = {row[0]: row[1:] for row in map(cells, text.splitlines()) if row}
    assert rows["kills"][:2] == ["5", "10%"]
    assert "in writes 2" in rows["kills"][2]
    assert rows["kills"][3:5] == ["0", "1.5"]
    assert rows["strings"][3] == "3"
    assert rows["load"][0] == "not run"


def cells(line):
    return [cell.strip() for cell in line.split("|")[1:-1]]


@pytest.mark.parametrize(
    ("arguments", "received"),
    [(["--only=kills,bites"], "bites"), (["--scale=0"], "0")],
)
def test_invalid_options_are_errors(arguments, received):
    result = run(*arguments)
    assert result.returncode == 1
    assert result.stderr.startswith("error: --")
    assert result.stderr.rstrip().endswith(received) or "0.0" in result.stderr
