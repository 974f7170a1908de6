"""Test the serving benchmark."""

import importlib.util
import re
import subprocess
import sys

import pytest
from conftest import GOLDEN, ROOT

pytestmark = pytest.mark.tools

PEERS = ("torch", "transformers")


def run(*arguments):
    return subprocess.run(
        [
            sys.executable,
            ROOT / "tools/benchmarks/benchmark_serve.py",
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


def measure(peers, *arguments):
    """Return the rows of the table for a small model."""
    result = run(
        f"--config={ROOT / 'configs' / 'tiny.yaml'}",
        "--set=model.depth=1",
        f"--vocab={GOLDEN / 'vocab.txt'}",
        "--lengths=5,16",
        "--batches=1,3",
        "--rounds=2",
        "--seconds=0.05",
        f"--peers={peers}",
        *arguments,
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    return lines[next(n for n, line in enumerate(lines) if " batch " in line) + 1 :]


def check(row, peers):
    """Check that a row is consistent; return its point of the grid and ratio."""
    kind, rows, length, *cells, ratio = row.split()
    medians = []
    for number in range(peers):
        median, p99, rate = (
            float(cell.replace(",", "")) for cell in cells[3 * number : 3 * number + 3]
        )
        assert 0 < median <= p99
        assert rate > 0
        medians.append(median)
    if peers > 1:
        best = min(medians[1:])
        assert float(ratio) == pytest.approx(medians[0] / best, abs=0.02, rel=0.05)
    return kind, int(rows), int(length), float(ratio)


GRID = [
    (kind, rows, length)
    for kind in ("text", "tokens")
    for rows in (1, 3)
    for length in (5, 16)
]


@pytest.mark.slow
def test_all_points_and_memory():
    *rows, last = measure("electra_tf", "--memory_requests=40")
    points = [check(row, 1) for row in rows]
    assert [point[:3] for point in points] == GRID
    assert all(ratio == 1 for *_, ratio in points)
    match = re.fullmatch(
        r"memory: (.*) MiB after a tenth of 40 requests, (.*) MiB after all: (.*) MiB",
        last.strip(),
    )
    before, after, growth = (float(n.replace(",", "")) for n in match.groups())
    assert before > 100
    assert after - before == pytest.approx(growth, abs=0.11)


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, PEERS)), reason="needs interop-test"
)
def test_comparison_with_pytorch():
    *rows, last = measure("electra_tf,torch", "--clock=processor")
    points = [check(row, 2) for row in rows]
    assert [point[:3] for point in points] == GRID
    ratios = [ratio for *_, ratio in points]
    faster = sum(ratio < 1 for ratio in ratios)
    assert last.startswith(
        f"electra_tf takes {min(ratios):.2f} to {max(ratios):.2f} of the time"
    )
    assert last.endswith(f"faster at {faster} of 8 points")


def test_invalid_flags(monkeypatch):
    monkeypatch.delenv("ELECTRA_TF_DATA", raising=False)
    assert "--vocab=FILE" in run().stderr
    vocab = f"--vocab={GOLDEN / 'vocab.txt'}"
    assert "--peers must contain electra_tf" in run(vocab, "--peers=torch").stderr
    assert "--lengths must be at least 3" in run(vocab, "--lengths=2,16").stderr
    result = run(vocab, "--torch_python=false")
    assert result.returncode == 1
    assert "packages torch, transformers" in result.stderr
