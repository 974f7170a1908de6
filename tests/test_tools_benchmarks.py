"""Test that the benchmarks run and print consistent numbers."""

import pytest

from tests.conftest import ROOT, python

pytestmark = pytest.mark.tools
TINY = f"--config={ROOT / 'configs' / 'tiny.yaml'}"


def measure(name, *arguments):
    """Return the rows of words of standard output, without thousands separators."""
    result = python(ROOT / f"tools/benchmarks/benchmark_{name}.py", TINY, *arguments)
    assert result.returncode == 0, result.stderr
    return [line.replace(",", "").split() for line in result.stdout.splitlines()]


def test_train():
    sizes = ("--set=model.depth=1", "--batch_size=4", "--length=32")
    rows = measure("train", *sizes, "--rounds=2", "--steps=1", "--peers")
    by_name = {row[0]: row[1:] for row in rows if row}
    limit, ours = by_name["matmul"], by_name["electra_tf"]
    assert (limit[-1], ours[4]) == ("100.0%", "1.00")
    for milliseconds, _, _, tokens, _, memory, gflops, _ in (limit, ours):
        expected = 4 * 32 * 1000 / float(milliseconds)
        assert float(tokens) == pytest.approx(expected, rel=0.3)
        assert float(memory) > 0.1
        assert float(gflops) > 0


def test_serve():
    sizes = ("--sizes", "1x5", "3x16", "--rounds=1", "--seconds=.05")
    *_, head, first, second = measure("serve", *sizes, "--peers", "onnxruntime")
    assert head == ["matmul", "electra_tf", "onnxruntime"]
    assert (first[0], second[0]) == ("1x5", "3x16")
    # Logits that differ end the benchmark with an error.
    for times in (first[1:], second[1:]):
        assert len(times) == 3
        assert min(map(float, times)) > 0
