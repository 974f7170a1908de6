"""Check that the backend of Keras is TensorFlow, and quieten TensorFlow's start."""

import contextlib
import faulthandler
import importlib.util
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator

_VARIABLE = "KERAS_BACKEND"
_LEGACY = "TF_USE_LEGACY_KERAS"
_FILE = "keras.json"


def check() -> None:
    """Check the backend of Keras, whether or not Keras is imported yet."""
    is_legacy = os.environ.get(_LEGACY) in ("1", "true", "True")
    if is_legacy and importlib.util.find_spec("tf_keras") is None:
        raise ImportError(
            f"TensorFlow needs the package tf_keras with {_LEGACY}="
            f"{os.environ[_LEGACY]}; run `unset {_LEGACY}`",
            name="tf_keras",
        )
    imported = getattr(sys.modules.get("keras"), "config", None)
    variable = os.environ.get(_VARIABLE)
    stored, path = _stored_backend()
    name = imported.backend() if imported else variable or stored
    if name == "tensorflow":
        return
    if imported:
        cause = (
            f"{name!r}, and keras is already imported; set {_VARIABLE}=tensorflow "
            "before its first import"
        )
    elif name == variable:
        cause = f"{_VARIABLE}={name}; run `unset {_VARIABLE}`"
    else:
        cause = f"{name!r} in {path}; run `export {_VARIABLE}=tensorflow`"
    text = f"The backend of Keras must be TensorFlow, but it is {cause}."
    raise ImportError(text, name="keras")


@contextlib.contextmanager
def held_back_stderr() -> Iterator[None]:
    """Keep standard error aside, and print it only if an exception is raised.

    TensorFlow 2.21 writes notes while it is imported, and converters while they run,
    to the file descriptor, whatever TF_CPP_MIN_LOG_LEVEL is. With the level 0, which
    asks for everything, nothing is kept aside. A crash of the process is reported by
    Python's handler of faults.
    """
    if sys.stderr is None or os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0":
        yield
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    reports_faults = faulthandler.is_enabled()
    if not reports_faults:
        faulthandler.enable(stderr)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        failed = False
        try:
            yield
        except Exception:
            failed = True
            raise
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            if not reports_faults:
                faulthandler.disable()
            os.close(stderr)
            if failed:
                aside.seek(0)
                os.write(2, aside.read())


def _stored_backend() -> tuple[str, pathlib.Path]:
    """Return the backend in the settings file of Keras, and the file."""
    home = os.environ.get("KERAS_HOME")
    # It stays "~" without HOME and without an entry in the table of users.
    folder = pathlib.Path(home or os.path.expanduser("~/.keras"))
    try:
        text = (folder / _FILE).read_text(encoding="utf-8")
        return json.loads(text)["backend"], folder / _FILE
    except (OSError, ValueError, KeyError, TypeError):
        return "tensorflow", folder / _FILE
