"""Extension of mkdocstrings: examples as code, and the methods of public classes."""

import ast
import copy
import inspect
import re
from collections.abc import Iterator
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Show what griffe does not find, as it reads the package without importing it."""

    def on_object(self, *, obj: griffe.Object, **arguments: Any) -> None:
        """Fence the code of `Example:`, the last section, and link to `TextModel`."""
        if obj.docstring is None:
            return
        # The base class has an entry, which its subclasses refer to.
        link = r"[`\1`][electra_tf.tasks.text_model.\1]"
        text = re.sub(r"`(TextModel(\.\w+)?)`", link, obj.docstring.value)
        before, heading, code = text.partition("\nExample:\n")
        obj.docstring.value = text
        if heading:
            code = inspect.cleandoc("\n" + code)
            obj.docstring.value = f"{before}\n**Example**\n\n```python\n{code}\n```\n"

    def on_package(self, *, pkg: griffe.Module, **arguments: Any) -> None:
        """Add methods that a higher layer attaches; omit those of a new task."""
        names = ast.literal_eval(str(pkg["__all__"].value))
        public = {n: pkg[n].final_target for n in names if pkg[n].is_alias}
        public["TextModel"] = pkg["tasks.text_model.TextModel"]
        owners = {**public, "TextModel": pkg["tasks.text_model.TextModel"]}
        for module in _modules(pkg):
            for owner, name, value in _assignments(module):
                if owner in owners:
                    function = value.args[0] if isinstance(value, ast.Call) else value
                    method = _method(_resolve(pkg, module, ast.unparse(function)), name)
                    if function is not value:
                        method.labels.add("classmethod")
                    owners[owner].set_member(name, method)
        for name in pkg["tasks.task_methods.TaskMethods"].members:
            for model in public.values():
                model.members.pop(name, None)


def _modules(module: griffe.Module) -> Iterator[griffe.Module]:
    yield module
    for child in module.modules.values():
        if not child.is_alias:
            yield from _modules(child)


def _assignments(module: griffe.Module) -> Iterator[tuple[str, str, ast.expr]]:
    """Yield class, attribute and value of what is assigned to attributes of classes."""
    for node in ast.walk(ast.parse(module.filepath.read_text(encoding="utf-8"))):
        match node:
            case ast.Assign([ast.Attribute(ast.Name(owner), name)], value):
                yield owner, name, value
            case ast.ClassDef(owner):
                for statement in node.body:
                    match statement:
                        case ast.Assign([ast.Name(name)], ast.Name() as value):
                            yield owner, name, value


def _resolve(pkg: griffe.Module, module: griffe.Module, path: str) -> griffe.Function:
    """Return the function that a name or dotted name in a module stands for."""
    for node in ast.walk(ast.parse(module.filepath.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and path.partition(".")[0] in (
            alias.name for alias in node.names
        ):
            return pkg[f"{node.module}.{path}".removeprefix(f"{pkg.name}.")]
    return module[path]


def _method(function: griffe.Function, name: str) -> griffe.Function:
    """Return a function without its first parameter, which is the class or instance."""
    method = copy.copy(function)
    method.name, method.labels = name, set(function.labels)
    first, *others = function.parameters
    method.parameters = griffe.Parameters(*others)
    entry = rf"^ +{first.name}: .*\n(?: {{8}}.*\n)*"
    method.docstring = copy.copy(function.docstring)
    method.docstring.value = re.sub(entry, "", method.docstring.value, flags=re.M)
    method.docstring.parent = method
    return method
