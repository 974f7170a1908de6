"""Extension of mkdocstrings: examples as code, and no methods of new tasks."""

import ast
import inspect
import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Change what griffe reads from the package, which it does not import."""

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
        """Omit the methods that a new task writes."""
        names = ast.literal_eval(str(pkg["__all__"].value))
        public = [pkg[n].final_target for n in names if pkg[n].is_alias]
        for name in pkg["tasks.task_methods.TaskMethods"].members:
            for model in (*public, pkg["tasks.text_model.TextModel"]):
                model.members.pop(name, None)
