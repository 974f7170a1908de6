"""Test that the tools run and print consistent numbers."""

import os
import shutil
import subprocess

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.tools


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
    assert "Python 3.11 to 3.13" in result.stderr
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
        ("device_compile", ".venv-test"),
        ("quickstart", ".venv"),
    ],
)
def test_the_extra_test_leaves_the_environment_of_trainings_alone(
    tmp_path, command, folder
):
    output = run_with_stub(tmp_path, *command.split())
    assert [path.name for path in tmp_path.glob(".venv*")] == [folder]
    assert f"{folder}/bin/python" in output.splitlines()[-1]


def run_with_stub(folder, program, *arguments):
    """Run a tool in a folder of its own, with a stub as Python; return its output."""
    (folder / "tools").mkdir()
    for name in ("install", program):
        shutil.copy(ROOT / "tools" / name, folder / "tools")
    shutil.copy(ROOT / "setup.cfg", folder)
    (folder / "python").write_text(_STUB)
    (folder / "python").chmod(0o755)
    return subprocess.run(
        [folder / "tools" / program, *arguments],
        env={**os.environ, "PYTHON": str(folder / "python")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
