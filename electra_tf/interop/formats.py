"""The registry of the formats of models."""

import importlib
from types import ModuleType

OURS = ("fine_tuned", "checkpoint")
MODULES = {
    "fine_tuned": "electra_tf.interop.keras_file",
    "checkpoint": "electra_tf.interop.checkpoint",
    "huggingface": "electra_tf.interop.huggingface",
    "keras_hub": "electra_tf.interop.keras_hub",
    "model_garden": "electra_tf.interop.model_garden",
    "tf1": "electra_tf.interop.tf1",
}
"""Modules with `accepts(path)`, `read(path, vocab)` and, apart from `fine_tuned` and
`tf1`, `write(model, path)`. They are asked in this order what a path is, as a
folder of ours may also have files of another format."""


def names() -> list[str]:
    """Return the formats that a model can be converted to, ours first."""
    return ["electra_tf", *(name for name in MODULES if name not in (*OURS, "tf1"))]


def module_of(name: str) -> ModuleType:
    """Return the module of a format; `electra_tf` is a checkpoint."""
    name = "checkpoint" if name == "electra_tf" else name
    return importlib.import_module(MODULES[name])


def format_of(path: str) -> str | None:
    """Return the format of a file, folder or prefix of files, or None."""
    return next((name for name in MODULES if module_of(name).accepts(path)), None)
