"""Extension of mkdocstrings: show the `Example:` of a docstring as Python code."""

import inspect
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Fence the indented code below `Example:`, the last section of a docstring."""

    def on_object(self, *, obj: griffe.Object, **arguments: Any) -> None:
        """Change the docstring of a loaded class or function."""
        if obj.docstring is None:
            return
        before, heading, code = obj.docstring.value.partition("\nExample:\n")
        if heading:
            code = inspect.cleandoc("\n" + code)
            obj.docstring.value = f"{before}\n**Example**\n\n```python\n{code}\n```\n"
