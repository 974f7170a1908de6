"""Test that the tools run and print consistent numbers."""

import argparse
import importlib
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

pytestmark = pytest.mark.tools


def tpu_compile(*arguments):
    return subprocess.run(
        [sys.executable, ROOT / "tools/tpu_checks/tpu_compile.py", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


@pytest.fixture
def compiler(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "tpu_checks"))
    return importlib.import_module("tpu_compile")


@pytest.mark.slow
def test_tpu_compiler_compiles_the_whole_step():
    for package in ("jax", "libtpu"):
        pytest.importorskip(package, reason="needs the extra tpu-check")
    config = f"--config={ROOT / 'configs' / 'tiny.yaml'}"
    sizes = ("--batch_size=8", "--vocabulary_size=1000", "--set=model.depth=1")
    result = tpu_compile(config, *sizes)
    assert result.returncode == 0, result.stderr
    results = json.loads(result.stdout.splitlines()[-1])
    assert results["leaves_the_device"] == []
    assert results["dynamic_shapes"] == 0
    assert 0 < results["memory_share"] < 0.01
    # For 8 x 32 positions.
    assert 1e8 < results["flops"] < 1e9


def test_find_largest_batch(compiler, monkeypatch, capsys):
    sizes = []

    def measure(options):
        sizes.append(options.batch_size)
        if options.batch_size > 700:
            raise RuntimeError("RESOURCE_EXHAUSTED: Ran out of memory")
        return {}

    monkeypatch.setattr(compiler, "measure", measure)
    compiler.find_largest_batch(argparse.Namespace(batch_size=100))
    assert sizes == [100, 200, 400, 800, 600, 700, 750]
    assert "batch 700 fits, 750 does not" in capsys.readouterr().out


def test_batch_that_does_not_fit(compiler, monkeypatch):
    def measure(options):
        raise RuntimeError("RESOURCE_EXHAUSTED: 15.76G exceeds 15.75G\nmore")

    monkeypatch.setattr(compiler, "measure", measure)
    monkeypatch.setattr(compiler.os, "environ", {})
    monkeypatch.setattr(sys, "argv", ["tpu_compile.py", "--batch_size=16"])
    with pytest.raises(SystemExit, match=r"batch 16 .*15\.76G exceeds"):
        compiler.main()


def test_patterns_of_host_operations_and_dynamic_shapes(compiler):
    device_operation = (
        "%0 = stablehlo.add %1, %2 : tensor<2x3xf32> send_buffer f32[8]{0} add("
    )
    for text in (
        '"stablehlo.infeed"(%0)',
        "%x = f32[] send(f32[] %y), channel_id=1",
        "stablehlo.custom_call @xla_python_cpu_callback(%0)",
    ):
        assert re.search(compiler._HOST_OPERATIONS, text)
    for text in ("tensor<?x3xf32>", "tensor<2x?xf32>", "f32[<=8,4]", "f32[4,<=8]"):
        assert re.search(compiler._DYNAMIC, text)
    assert not re.search(compiler._HOST_OPERATIONS, device_operation)
    assert not re.search(compiler._DYNAMIC, device_operation)


def test_unknown_topology():
    result = tpu_compile("--topology=v1:2x2")
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
