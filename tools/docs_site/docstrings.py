"""Extension of mkdocstrings: examples as code, and no methods of new tasks."""

import ast
import inspect
import re
from typing import Any

import griffe

_HOOKS = (  # attributes and methods that a new task defines
    *("kind", "own_arguments", "head_arguments", "required_argument", "output_names"),
    *("metric_kind", "reads_cls_alone", "input_form", "pairs", "rate_scale"),
    *("new_arguments", "num_outputs", "make_head", "head_outputs", "task_loss"),
    *("served_inputs", "served_columns", "row_texts", "row_examples", "named_outputs"),
    *("text_outputs", "served_metadata", "examples", "check_training", "decode"),
    *("decode_details", "metric_rows", "task_metrics", "class_weights"),
    *("settings_note", "compute_metrics"),
)


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
        base = pkg["tasks.text_model.TextModel"]
        for name in _HOOKS:
            for model in (*public, base):
                model.members.pop(name, None)
