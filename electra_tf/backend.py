"""Check that the backend of Keras is TensorFlow, without importing Keras."""

import json
import os
import pathlib
import sys

from electra_tf.errors import InputError

_VARIABLE = "KERAS_BACKEND"
_FILE = "keras.json"


def check() -> None:
    """Check the backend of Keras, whether or not Keras is imported yet."""
    imported = getattr(sys.modules.get("keras"), "config", None)
    variable = os.environ.get(_VARIABLE)
    path = _settings_path()
    name = imported.backend() if imported else variable or _stored_backend(path)
    if name == "tensorflow":
        return
    if name == variable:
        source = f"{_VARIABLE}={name}"
        remedy = f"Run `unset {_VARIABLE}` or `export {_VARIABLE}=tensorflow`"
    elif imported:
        source = f"keras is already imported with the backend {name!r}"
        remedy = f"Set {_VARIABLE}=tensorflow before the first import of keras"
    else:
        source = f"the backend {name!r} in {path}"
        remedy = f"Run `export {_VARIABLE}=tensorflow`, or edit the file"
    required = "The backend of Keras must be TensorFlow"
    raise ImportError(str(InputError(required, source, remedy)), name="keras")


def _settings_path() -> pathlib.Path:
    home = os.environ.get("KERAS_HOME")
    return (pathlib.Path(home) if home else pathlib.Path.home() / ".keras") / _FILE


def _stored_backend(path: pathlib.Path) -> str:
    """Return the backend in the settings file of Keras."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["backend"]
    except (OSError, ValueError, KeyError, TypeError):
        return "tensorflow"
