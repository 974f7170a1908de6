"""Direction of imports; ruff checks types and docstrings."""

import ast
import graphlib
import re

import pytest

from electra_tf.__main__ import COMMANDS
from tests.conftest import ROOT, python

PACKAGE = ROOT / "electra_tf"
FILES = sorted(PACKAGE.rglob("*.py"))
# Modules that each layer (a folder or file of the package) may import, in addition to
# those of `EVERYWHERE`.
BELOW_SOURCES = {
    *("config", "batch", "storage", "text", "model", "training", "interop"),
    "preset_files",
}
BELOW_SERVING = BELOW_SOURCES | {"kernels", "sources", "model_names"}
BELOW_TASKS = BELOW_SERVING | {"serving"}
BELOW_RUNS = BELOW_TASKS | {"pretraining", "tasks"}
MAY_IMPORT = {
    "__init__": BELOW_RUNS | {"runs"},  # for type checkers, lazy
    "__main__": {"cli"},
    "compat": set(),
    "errors": set(),
    "backend": set(),
    "durable_files": set(),
    "untrusted_files": set(),
    "batch": set(),
    "config": set(),
    "preset_files": set(),
    "storage": set(),
    "cli": {"config", "storage"},
    "text": {"config", "batch", "storage", "preset_files"},
    "model": {"config"},
    "kernels": {"model"},
    "pretraining": {"config", "batch", "model", "kernels"},
    "training": {"config", "batch", "storage"},
    "interop": {"config", "batch", "storage", "text", "model", "training"},
    "model_names": {"config", "interop", "preset_files", "storage"},
    "sources": BELOW_SOURCES | {"model_names"},
    "serving": BELOW_SERVING,
    "tasks": BELOW_TASKS,
    "runs": BELOW_RUNS,
    **{name: BELOW_RUNS | {"runs", "cli"} for name in COMMANDS},
}
EVERYWHERE = {"errors", "backend", "durable_files", "compat", "untrusted_files"}
# Packages that a layer does without; test_install.py has those that are declared.
WITHOUT = {
    "model": ("tensorflow",),
    **dict.fromkeys(("text", "interop", "serving"), ("keras",)),
    **dict.fromkeys(("config", "batch", "storage", "cli"), ("keras", "tensorflow")),
    **dict.fromkeys(("model_names", "sources", *COMMANDS), ("keras", "tensorflow")),
}


def layer_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path):
    """Yield the dotted names of all imports, including those within functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            if node.module == "electra_tf":
                yield from whole
            else:
                yield from filter(is_module, whole)
                yield node.module
        elif isinstance(node, ast.Constant):
            # A module's name, as `import_module` and registries get it.
            if re.fullmatch(r"electra_tf(\.\w+)+", str(node.value)):
                yield from [node.value] * is_module(node.value)
        elif isinstance(node, ast.Attribute) and node.attr == "import_module":
            registries = "tasks/registry.py", "interop/formats.py"
            registries += ("serving/export_options.py",)
            is_lazy = layer_of(path) in ("__init__", "__main__")
            is_lazy |= path in [PACKAGE / name for name in registries]
            assert is_lazy, f"{path}: import_module"


def is_module(name):
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_imports_point_downwards():
    for path in FILES:
        layer = layer_of(path)
        allowed = MAY_IMPORT[layer] | {layer} | EVERYWHERE
        for name in imports(path):
            parts = name.split(".")
            is_own = parts[0] == "electra_tf"
            absent = () if is_own else WITHOUT.get(layer, ())
            assert not is_own or parts[1] in allowed, f"{path} may not import {name}"
            assert not name.startswith(absent), f"{path} may not use {name}"


def test_imports_have_no_circle():
    paths = {
        ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
        for p in FILES
    }
    # The lazy API imports what is above it.
    graph = {
        name: {target for target in imports(path) if target in paths} - {name}
        for name, path in paths.items()
        if name != "electra_tf"
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
        circle = []
    except graphlib.CycleError as error:
        circle = error.args[1]
    assert circle == []


COMMAND_FILES = [PACKAGE / f"{name}.py" for name in COMMANDS]


@pytest.mark.parametrize("path", COMMAND_FILES, ids=lambda p: p.stem)
def test_a_command_imports_at_its_top_or_where_it_starts_tensorflow(path):
    tree = ast.parse(path.read_text())
    allowed = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        items = node.items if isinstance(node, ast.With) else ()
        if "cli.starting_tensorflow()" in map(ast.unparse, items):
            allowed |= {*map(id, node.body)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in allowed:
            # Apache Beam is an extra; `cli` runs a module that is called as a program.
            assert ast.unparse(node).endswith((" beam", " cli")), ast.unparse(node)


def test_ruff_reports_nothing():
    for arguments in (["check"], ["format", "--check"]):
        result = python("-m", "ruff", *arguments, ".")
        assert result.returncode == 0, result.stdout
