"""Check that Keras runs on TensorFlow, before anything imports Keras."""

import json
import os
import pathlib
import sys

from electra_tf.errors import InputError

_VARIABLE = "KERAS_BACKEND"
_FILE = "keras.json"


def check() -> None:
    """Check the backend that Keras has, or will have once it is imported.

    Raises:
        ImportError: The backend is not TensorFlow.
    """
    imported = getattr(sys.modules.get("keras"), "config", None)
    named = os.environ.get(_VARIABLE)
    path = _file()
    name = imported.backend() if imported else named or _stored(path)
    if name == "tensorflow":
        return
    if name == named:
        source = f"{_VARIABLE}={name}"
        remedy = f"Run `unset {_VARIABLE}` or `export {_VARIABLE}=tensorflow`"
    elif imported:
        source = f"keras is imported with the backend {name!r}"
        remedy = f"Set {_VARIABLE}=tensorflow before the first import of keras"
    else:
        source = f"the backend {name!r} in {path}"
        remedy = f"Run `export {_VARIABLE}=tensorflow`, or change that file"
    required = "electra_tf must run on the TensorFlow backend of Keras"
    raise ImportError(str(InputError(required, source, remedy)), name="keras")


def _file() -> pathlib.Path:
    home = os.environ.get("KERAS_HOME")
    return (pathlib.Path(home) if home else pathlib.Path.home() / ".keras") / _FILE


def _stored(path: pathlib.Path) -> str:
    """Return the backend that the settings file of Keras names."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["backend"]
    except (OSError, ValueError, KeyError, TypeError):
        return "tensorflow"
