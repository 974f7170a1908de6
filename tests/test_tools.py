"""The tools run; what they print is theirs to answer for."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import GOLDEN, ROOT


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    lines = json.loads((GOLDEN / "dataset_builder.json").read_text())["lines"]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(lines * 24))
    return path


def run(name, *arguments):
    return subprocess.run(
        [sys.executable, ROOT / "tools" / name, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


def table(result):
    """The rows of the last table, as name -> ratio."""
    assert result.returncode == 0, result.stderr
    rows = result.stdout.split("ratio")[-1].splitlines()[1:]
    return {row[:44].strip(): float(row.split()[-1]) for row in rows}


def test_the_records_benchmark_measures_peer_and_limit_in_one_run(text):
    result = run(
        "benchmark_records.py",
        f"--input={text}",
        f"--vocab={GOLDEN / 'vocab.txt'}",
        "--rounds=1",
        "--workers=1",
    )
    ratios = table(result)
    assert ratios["plain reading of the original"] == 1
    assert ratios["bare Tokenizer.encode"] > 2
    assert len(ratios) == 4


def test_the_pipeline_benchmark_measures_beside_the_bare_files(text, tmp_path):
    result = run(
        "benchmark_pipeline.py", f"--input={text}", "--rounds=1", "--rows=2048"
    )
    ratios = table(result)
    assert ratios["bare TFRecordDataset"] == 1
    assert len(ratios) == 4


def test_the_train_benchmark_measures_beside_large_products():
    result = run(
        "benchmark_train.py",
        f"--config={ROOT / 'configs' / 'tiny.yaml'}",
        "--batch_size=4",
        "--length=32",
        "--rounds=2",
        "--steps=1",
        "--peers=products,electra_tf",
        "--set=model.depth=1",
    )
    assert result.returncode == 0, result.stderr
    limit, ours = (row.split() for row in result.stdout.splitlines()[-2:])
    assert (limit[0], limit[6], ours[0], ours[7]) == (
        "products",
        "100.0%",
        "electra_tf",
        "1.00",
    )
    # Tokens a second, FLOP/s and the share of the limit follow from the times.
    for name, milliseconds, _, _, tokens, _, _, _, memory, start in (limit, ours):
        assert name in ("products", "electra_tf")
        expected = 4 * 32 * 1000 / float(milliseconds.replace(",", ""))
        assert float(tokens.replace(",", "")) == pytest.approx(expected, rel=0.3)
        assert float(memory) > 0.1
        assert float(start) > 1


def test_the_profile_adds_up():
    result = run(
        "benchmark_profile.py",
        f"--config={ROOT / 'configs' / 'tiny.yaml'}",
        "--batch_size=4",
        "--length=32",
        "--steps=1",
        "--set=model.depth=1",
    )
    assert result.returncode == 0, result.stderr
    _, table_ = result.stdout.split("ms a step, untraced\n")
    columns, *rows, beyond = table_.splitlines()
    kinds = columns.split()
    assert kinds[:2] == ["products", "chains"]
    numbers = {row[:36].strip(): row[36:].replace(",", "").split() for row in rows}
    *parts, whole = ([float(n) for n in row[:-1]] for row in numbers.values())
    np.testing.assert_allclose(np.sum(parts, 0), whole, atol=0.1 * len(parts))
    # On one thread the operations take most of the step, and no more than it.
    assert 0 <= float(beyond.split()[-1].rstrip("%")) < 70
    products = kinds.index("products")
    for part in ("discriminator forward: feed-forward", "generator backward: head"):
        assert float(numbers[part][products]) > 0
    for part in ("backward: chains", "update"):
        assert float(numbers[part][kinds.index("chains")]) > 0


def test_the_train_benchmark_says_what_it_needs():
    result = run("benchmark_train.py", "--torch_python=false")
    assert result.returncode == 1
    assert "false has no torch and transformers" in result.stderr
    result = run("benchmark_train.py", "--peers=torch")
    assert "--peers holds products and electra_tf" in result.stderr


@pytest.mark.slow
def test_the_tpus_compiler_takes_the_whole_step():
    for package in ("jax", "libtpu"):
        pytest.importorskip(package, reason="needs the extra tpu-check")
    result = run(
        "tpu_compile.py",
        f"--config={ROOT / 'configs' / 'tiny.yaml'}",
        "--batch_size=8",
        "--vocabulary_size=1000",
        "--set=model.depth=1",
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["leaves_the_device"] == []
    assert found["dynamic_shapes"] == 0
    assert 0 < found["memory_share"] < 0.01
    # Products of 8 x 32 positions, and what stands between them.
    assert 1e8 < found["flops"] < 1e9


def test_an_unknown_topology_is_told():
    result = run("tpu_compile.py", "--topology=v1:2x2")
    assert result.returncode == 1
    assert "--topology begins with one of" in result.stderr


def test_a_python_that_does_not_fit_is_refused(tmp_path):
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "install", tmp_path / "tools")
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    result = subprocess.run(
        [tmp_path / "tools" / "install"],
        env={**os.environ, "PYTHON": "false"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert "Python 3.10 to 3.12" in result.stderr
    assert not (tmp_path / ".venv").exists()


def test_an_unknown_benchmark_lists_the_known():
    result = subprocess.run(
        [ROOT / "tools" / "benchmark", "nothing"], capture_output=True, text=True
    )
    assert result.returncode == 1
    assert "tools/benchmark records" in result.stderr
