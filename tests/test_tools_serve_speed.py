"""The serving benchmark runs beside its peers, and says what it needs."""

import importlib.util
import re
import subprocess
import sys

import pytest
from conftest import GOLDEN, ROOT

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


def measured(peers, *arguments):
    """What it prints of a small model, from the head of the table on."""
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
    """A point's numbers hang together; returns the point and the ratio."""
    kind, rows, length, *cells, ratio = row.split()
    middles = []
    for number in range(peers):
        middle, last, rate = (
            float(cell.replace(",", "")) for cell in cells[3 * number : 3 * number + 3]
        )
        assert 0 < middle <= last
        assert rate > 0
        middles.append(middle)
    if peers > 1:
        best = min(middles[1:])
        assert float(ratio) == pytest.approx(middles[0] / best, abs=0.02, rel=0.05)
    return kind, int(rows), int(length), float(ratio)


GRID = [
    (kind, rows, length)
    for kind in ("text", "tokens")
    for rows in (1, 3)
    for length in (5, 16)
]


@pytest.mark.slow
def test_the_benchmark_measures_each_point_and_the_memory():
    *rows, last = measured("electra_tf", "--memory_requests=40")
    found = [check(row, 1) for row in rows]
    assert [point[:3] for point in found] == GRID
    assert all(ratio == 1 for *_, ratio in found)
    found = re.fullmatch(
        r"memory: (.*) MiB after a tenth of 40 requests, (.*) MiB after all: (.*) MiB",
        last.strip(),
    )
    before, after, grown = (float(part.replace(",", "")) for part in found.groups())
    assert before > 100
    assert after - before == pytest.approx(grown, abs=0.11)


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, PEERS)), reason="needs interop-test"
)
def test_the_benchmark_measures_beside_pytorch():
    *rows, last = measured("electra_tf,torch", "--clock=processor")
    found = [check(row, 2) for row in rows]
    assert [point[:3] for point in found] == GRID
    ratios = [ratio for *_, ratio in found]
    faster = sum(ratio < 1 for ratio in ratios)
    assert last.startswith(
        f"electra_tf takes {min(ratios):.2f} to {max(ratios):.2f} of the time"
    )
    assert last.endswith(f"faster at {faster} of 8 points")


def test_the_benchmark_says_what_it_needs(monkeypatch):
    monkeypatch.delenv("ELECTRA_TF_DATA", raising=False)
    assert "name --vocab=FILE" in run().stderr
    given = f"--vocab={GOLDEN / 'vocab.txt'}"
    assert "--peers holds electra_tf" in run(given, "--peers=torch").stderr
    assert "--lengths are 3 or more" in run(given, "--lengths=2,16").stderr
    lacking = run(given, "--torch_python=false")
    assert lacking.returncode == 1
    assert "has not all of torch, transformers" in lacking.stderr
