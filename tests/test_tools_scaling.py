"""The model of step time for several replicas, and its tables."""

import subprocess
import sys

import pytest
from conftest import ROOT
from runs.test_experiment import resolve

from electra_tf.runs.dry_run import num_parameters, variable_shapes

pytestmark = pytest.mark.tools

TOOL = ROOT / "tools" / "benchmarks"


@pytest.fixture
def scaling(monkeypatch):
    """Import the tool, which lies beside the modules it imports."""
    monkeypatch.syspath_prepend(str(TOOL))
    import benchmark_scaling

    yield benchmark_scaling
    for name in ("benchmark_scaling", "peers"):
        del sys.modules[name]


def run(*arguments):
    result = subprocess.run(
        [sys.executable, TOOL / "benchmark_scaling.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_a_step_by_hand(scaling):
    link = scaling.Link(bandwidth=1e6, latency=0.5)
    # Three quarters of the bytes twice, and six exchanges of each of two operations.
    assert scaling.all_reduce_seconds(4, 2e6, link, 2) == pytest.approx(3 + 6)
    assert scaling.step_seconds(4, 7.0, 2e6, link, 2, 0.25) == pytest.approx(16.25)
    assert scaling.step_seconds(1, 7.0, 2e6, link, 2, 0.25) == pytest.approx(7.25)


def test_parameters_are_those_of_the_built_model(scaling, folder):
    for sets in ([], ["model.embedding=null"]):
        experiment = resolve(folder, *sets)
        actual = num_parameters(variable_shapes(experiment))
        assert scaling.count_parameters(experiment.config.model) == pytest.approx(
            actual, rel=0.02
        )


def test_more_replicas_are_faster_and_less_efficient():
    _, _, *rows = run("--processes=none", "--replicas=1,2,8")
    assert len(rows) == 2 * 3 * 3
    for first in range(0, len(rows), 3):
        steps = [float(row[7]) for row in rows[first : first + 3]]
        shares = [int(row[8].rstrip("%")) for row in rows[first : first + 3]]
        assert steps == sorted(steps, reverse=True)
        assert shares == sorted(shares, reverse=True)
        assert shares[0] == 100


@pytest.mark.slow
def test_processes_are_measured(data):
    rows = run("--processes=1,2", "--steps=24", "--rounds=1", "--megabytes=0.3")
    measured = [row for row in rows if len(row) == 7 and row[0] in ("1", "2")]
    assert [row[1] for row in measured] == ["64", "32"]
    assert all(float(row[5]) > 0 for row in measured)
