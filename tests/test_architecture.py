"""Imports have the directions of setup.cfg; ruff reports nothing."""

from tests.conftest import python

LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def test_imports_point_downwards():
    result = python("-c", LINT, "--no-cache")
    assert result.returncode == 0, result.stdout


def test_ruff_reports_nothing():
    for arguments in (["check"], ["format", "--check"]):
        result = python("-m", "ruff", *arguments, ".")
        assert result.returncode == 0, result.stdout
