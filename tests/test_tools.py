"""Test that the tools run and print consistent numbers."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

pytestmark = pytest.mark.tools


def run(name, *arguments, folder="benchmarks"):
    return subprocess.run(
        [sys.executable, ROOT / "tools" / folder / name, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


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
