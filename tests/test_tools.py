"""Test that the tools run and print consistent numbers."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import GOLDEN, ROOT

pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    lines = json.loads((GOLDEN / "dataset_builder.json").read_text())["lines"]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(lines * 24))
    return path


def run(name, *arguments, folder="benchmarks"):
    return subprocess.run(
        [sys.executable, ROOT / "tools" / folder / name, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


def parse_ratios(result):
    """Return the ratios of the last table by name."""
    assert result.returncode == 0, result.stderr
    rows = result.stdout.split("ratio")[-1].splitlines()[1:]
    return {row[:44].strip(): float(row.split()[-1]) for row in rows}


def test_records_benchmark(text):
    result = run(
        "benchmark_records.py",
        f"--input={text}",
        f"--vocab={GOLDEN / 'vocab.txt'}",
        "--rounds=1",
        "--workers=1",
    )
    ratios = parse_ratios(result)
    assert ratios["the original's method"] == 1
    assert ratios["bare Tokenizer.encode"] > 2
    assert len(ratios) == 4


def test_pipeline_benchmark(text):
    result = run(
        "benchmark_pipeline.py", f"--input={text}", "--rounds=1", "--rows=2048"
    )
    ratios = parse_ratios(result)
    assert ratios["bare TFRecordDataset"] == 1
    assert len(ratios) == 4


@pytest.mark.parametrize(
    ("precision", "peers"),
    [
        ("float32", "matmul,electra_tf"),
        pytest.param(
            "mixed_bfloat16", "matmul,electra_tf,input", marks=pytest.mark.slow
        ),
    ],
)
def test_train_benchmark(precision, peers):
    result = run(
        "benchmark_train.py",
        f"--config={ROOT / 'configs' / 'tiny.yaml'}",
        "--batch_size=4",
        "--length=32",
        "--rounds=2",
        "--steps=1",
        f"--peers={peers}",
        f"--precision={precision}",
        "--set=model.depth=1",
    )
    assert result.returncode == 0, result.stderr
    rows = {row[0]: row for row in map(str.split, result.stdout.splitlines()) if row}
    limit, ours, estimate = rows["matmul"], rows["electra_tf"], rows["estimate:"]
    assert (limit[6], ours[7]) == ("100.0%", "1.00")
    # Tokens per second follow from the time of a step.
    for _, milliseconds, _, _, tokens, _, _, _, memory, start in (limit, ours):
        expected = 4 * 32 * 1000 / float(milliseconds.replace(",", ""))
        assert float(tokens.replace(",", "")) == pytest.approx(expected, rel=0.3)
        assert float(memory) > 0.1
        assert float(start) > 1
    if "input" in peers:  # reading a batch takes far less time than a step
        assert len(rows["input"]) == 8
        assert 0 < float(rows["input"][5]) < 1 / 20
    # Calls of operations, most of a step of this size, are not part of the estimate.
    milliseconds, time_ratio, memory_ratio = (
        float(estimate[index].replace(",", "")) for index in (1, 3, 9)
    )
    assert 0 < time_ratio < 1.5
    assert milliseconds > 0
    assert 0.75 < memory_ratio < 1.25


def test_profile_adds_up():
    result = run(
        "benchmark_profile.py",
        f"--config={ROOT / 'configs' / 'tiny.yaml'}",
        "--batch_size=4",
        "--length=32",
        "--steps=1",
        "--set=model.depth=1",
    )
    assert result.returncode == 0, result.stderr
    _, table = result.stdout.split("ms a step, untraced\n")
    columns, *rows, last = table.splitlines()
    kinds = columns.split()
    assert kinds[:2] == ["matmul", "fused"]
    numbers = {row[:36].strip(): row[36:].replace(",", "").split() for row in rows}
    *parts, total = ([float(n) for n in row[:-1]] for row in numbers.values())
    np.testing.assert_allclose(np.sum(parts, 0), total, atol=0.1 * len(parts))
    # On one thread the operations take most of the step, and not more than all of it.
    assert 0 <= float(last.split()[-1].rstrip("%")) < 70
    for part, kind in (
        ("discriminator forward: feed-forward", "matmul"),
        ("backward: attention", "matmul"),
        ("vocabulary backward", "matmul"),
        ("backward: fused", "fused"),
        ("update", "others"),
    ):
        assert float(numbers[part][kinds.index(kind)]) > 0


def test_train_benchmark_validates_flags(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = run("benchmark_train.py", "--torch_python=false")
    assert result.returncode == 1
    assert "false must have the packages torch, transformers" in result.stderr
    result = run("benchmark_train.py", "--peers=torch")
    assert "--peers must contain matmul and electra_tf" in result.stderr
    result = run("benchmark_train.py", "--device=gpu")
    assert result.returncode == 1
    assert "--device=cpu" in result.stderr


@pytest.mark.slow
def test_cost_estimate_of_a_step():
    result = run(
        "benchmark_train.py",
        f"--config={ROOT / 'configs' / 'mini.yaml'}",
        "--batch_size=16",
        "--rounds=3",
        "--steps=2",
        "--peers=matmul,electra_tf",
    )
    assert result.returncode == 0, result.stderr
    estimate = result.stdout.splitlines()[-1].split()
    for ratio in (float(estimate[3]), float(estimate[9])):
        assert 0.75 < ratio < 1.25


@pytest.mark.slow
def test_tpu_compiler_compiles_the_whole_step():
    for package in ("jax", "libtpu"):
        pytest.importorskip(package, reason="needs the extra tpu-check")
    result = run(
        "tpu_compile.py",
        f"--config={ROOT / 'configs' / 'tiny.yaml'}",
        "--batch_size=8",
        "--vocabulary_size=1000",
        "--set=model.depth=1",
        folder="tpu_checks",
    )
    assert result.returncode == 0, result.stderr
    results = json.loads(result.stdout.splitlines()[-1])
    assert results["leaves_the_device"] == []
    assert results["dynamic_shapes"] == 0
    assert 0 < results["memory_share"] < 0.01
    # For 8 x 32 positions.
    assert 1e8 < results["flops"] < 1e9


def test_find_largest_batch(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "tpu_checks"))
    import tpu_compile

    sizes = []

    def measure(options):
        size = options.batch_size
        sizes.append(size)
        if size > 700:
            raise RuntimeError("RESOURCE_EXHAUSTED: Ran out of memory")
        return {"batch_size": size, "memory_share": 0.1 + size / 800}

    monkeypatch.setattr(tpu_compile, "measure", measure)
    monkeypatch.setattr(tpu_compile, "report", lambda results: None)
    tpu_compile.find_largest_batch(argparse.Namespace(batch_size=100))
    # 0.1 + size / 800 is 1 at 720. The first size above is a sixteenth larger.
    assert sizes == [100, 200, 765, 482, 623, 694]


def test_batch_that_does_not_fit(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "tpu_checks"))
    import tpu_compile

    def measure(options):
        raise RuntimeError("RESOURCE_EXHAUSTED: 15.76G exceeds 15.75G\nmore")

    monkeypatch.setattr(tpu_compile, "measure", measure)
    monkeypatch.setattr(tpu_compile.os, "environ", {})
    monkeypatch.setattr(sys, "argv", ["tpu_compile.py", "--batch_size=16"])
    with pytest.raises(SystemExit, match=r"batch 16 .*15\.76G exceeds"):
        tpu_compile.main()


def test_patterns_of_host_operations_and_dynamic_shapes(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "tpu_checks"))
    from tpu_compile import _DYNAMIC, _HOST_OPERATIONS

    device_operation = (
        "%0 = stablehlo.add %1, %2 : tensor<2x3xf32> send_buffer f32[8]{0} add("
    )
    for text in (
        '"stablehlo.infeed"(%0)',
        "%x = f32[] send(f32[] %y), channel_id=1",
        "stablehlo.custom_call @xla_python_cpu_callback(%0)",
    ):
        assert re.search(_HOST_OPERATIONS, text)
    for text in ("tensor<?x3xf32>", "tensor<2x?xf32>", "f32[<=8,4]", "f32[4,<=8]"):
        assert re.search(_DYNAMIC, text)
    assert not re.search(_HOST_OPERATIONS, device_operation)
    assert not re.search(_DYNAMIC, device_operation)


def test_unknown_topology():
    result = run("tpu_compile.py", "--topology=v1:2x2", folder="tpu_checks")
    assert result.returncode == 1
    assert "--topology" in result.stderr
    assert "v1:2x2" in result.stderr


def test_install_rejects_unsupported_python(tmp_path):
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
    assert "Python 3.10 to 3.13" in result.stderr
    assert not (tmp_path / ".venv").exists()


_STUB = """#!/usr/bin/env bash
# Stands in for Python: `-m venv DIR` makes an environment with this file in it.
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
else
    echo "$0 $*"
fi
"""


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        ("install", ".venv"),
        ("install serving,interop-test", ".venv"),
        ("install test", ".venv-test"),
        ("install docs,test", ".venv-test"),
        ("test -m slow", ".venv-test"),
        ("faults", ".venv-test"),
        ("serve_check", ".venv-test"),
        ("tpu_compile", ".venv-test"),
        ("count_flops", ".venv"),
        ("quickstart", ".venv"),
    ],
)
def test_the_extra_test_leaves_the_environment_of_trainings_alone(
    tmp_path, command, folder
):
    (tmp_path / "tools").mkdir()
    program, *arguments = command.split()
    for name in ("install", program):
        shutil.copy(ROOT / "tools" / name, tmp_path / "tools")
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    (tmp_path / "python").write_text(_STUB)
    (tmp_path / "python").chmod(0o755)
    result = subprocess.run(
        [tmp_path / "tools" / program, *arguments],
        env={**os.environ, "PYTHON": str(tmp_path / "python")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [path.name for path in tmp_path.glob(".venv*")] == [folder]
    assert f"{folder}/bin/python" in result.stdout.splitlines()[-1]


def test_unknown_benchmark_lists_all():
    result = subprocess.run(
        [ROOT / "tools" / "benchmark", "nothing"], capture_output=True, text=True
    )
    assert result.returncode == 1
    assert "tools/benchmark records" in result.stderr
