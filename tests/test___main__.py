"""`electra-tf` and `python -m electra_tf` list the commands and run them."""

import ast
import copy
import importlib
import shlex

import pytest

from electra_tf.__main__ import COMMANDS
from tests.conftest import ROOT, python

PACKAGE = ROOT / "electra_tf"


def last_statement(path):
    return ast.unparse(ast.parse(path.read_text()).body[-1])


def test_commands_lists_every_command_line_module():
    modules = {
        path.stem
        for path in PACKAGE.glob("*.py")
        if "cli.run(main, FLAGS, __doc__)" in last_statement(path)
    }
    assert modules == set(COMMANDS)


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_has_a_line_for_each_command(arguments):
    result = python("-m", "electra_tf", *arguments)
    assert result.returncode == 0, result.stderr
    rows = dict(
        line.split(maxsplit=1)
        for line in result.stdout.partition("Start here")[0].splitlines()
        if line.startswith("  ")
    )
    assert tuple(rows) == COMMANDS
    for name, first_line in rows.items():
        docstring = ast.get_docstring(ast.parse((PACKAGE / f"{name}.py").read_text()))
        assert docstring.startswith(first_line)


def test_help_ends_with_commands_that_are_accepted():
    lines = python("-m", "electra_tf", "--help").stdout.replace("\\\n", "")
    start = lines.partition("Start here")[2].splitlines()[1:]
    assert len(start) == 2
    for line in start:
        command, *arguments = shlex.split(line.partition("electra-tf ")[2])
        values = copy.deepcopy(importlib.import_module(f"electra_tf.{command}").FLAGS)
        assert values([command, *arguments]) == [command]


def test_help_imports_no_tensorflow():
    result = python("-X", "importtime", "-m", "electra_tf")
    modules = {line.split("|")[-1].strip() for line in result.stderr.splitlines()}
    assert "electra_tf" in modules
    assert not {"tensorflow", "keras", "numpy", "absl"} & modules


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("pretrian", "Did you mean 'pretrain'?"),
        ("build-vocab", "Did you mean 'build_vocab'?"),
        ("xyz", "build_records"),
    ],
)
def test_an_unknown_command_is_an_error(name, hint):
    result = python("-m", "electra_tf", name, "--config=tiny")
    assert result.returncode == 2
    assert repr(name) in result.stderr
    assert hint in result.stderr
    assert len(result.stderr.splitlines()) == 1
