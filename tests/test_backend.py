"""Another backend of Keras is an error of commands and of imports."""

import json

import pytest

from tests.conftest import python

STDERR = """
import os
from electra_tf import cli
with cli.starting_tensorflow():
    os.write(2, b"a note of TensorFlow")
    {}
os.write(2, b"later")
"""


@pytest.mark.parametrize(
    ("statement", "printed", "held_back"),
    [
        ("pass", ["later"], ["a note of TensorFlow"]),
        ("raise ImportError", ["a note of TensorFlow", "ImportError"], ["later"]),
        ("os.abort()", ["Fatal Python error: Aborted"], ["later"]),
    ],
)
def test_notes_of_tensorflow_s_import_are_for_failures(statement, printed, held_back):
    program = STDERR.format(statement)
    result = python("-c", program, TF_CPP_MIN_LOG_LEVEL="3")
    assert all(words in result.stderr for words in printed)
    assert not any(words in result.stderr for words in held_back)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Return the folder of Keras's settings, which is empty."""
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    return tmp_path


HOMELESS = """
import os, pwd
for name in {"HOME", "KERAS_HOME", "XDG_CACHE_HOME"} & os.environ.keys():
    del os.environ[name]
pwd.getpwuid = {}.__getitem__
from electra_tf import cli
from electra_tf.storage import mirror
print(mirror.cache_folder())
"""


def test_commands_start_for_a_user_without_a_home(tmp_path):
    result = python("-c", HOMELESS, TMPDIR=str(tmp_path))
    assert result.stdout.strip() == f"{tmp_path}/.cache/electra_tf", result.stderr


LEGACY = "import sys; sys.modules['tf_keras'] = None; import electra_tf.cli"
ERRORS = [  # arguments, variables, words of the last line
    (
        ["-m", "electra_tf.pretrain", "--help"], {"KERAS_BACKEND": "jax"},
        ["error: ", "TensorFlow", "KERAS_BACKEND=jax", "unset KERAS_BACKEND"],
    ),
    (["-c", LEGACY], {"TF_USE_LEGACY_KERAS": "1"}, ["unset TF_USE_LEGACY_KERAS"]),
    (
        ["-c", "import electra_tf.model.electra"], {"KERAS_BACKEND": "torch"},
        ["ImportError: ", "KERAS_BACKEND=torch", "unset KERAS_BACKEND"],
    ),
    (
        ["-c", "import electra_tf.tasks.classifier"], {},
        ["ImportError: ", "'torch' in ", "keras.json", "KERAS_BACKEND=tensorflow"],
    ),
]  # fmt: skip


@pytest.fixture
def torch_home(home):
    (home / "keras.json").write_text(json.dumps({"backend": "torch"}))


@pytest.mark.parametrize(("arguments", "variables", "words"), ERRORS)
def test_another_backend_is_an_error(request, arguments, variables, words):
    if not variables:
        request.getfixturevalue("torch_home")
    result = python(*arguments, **variables)
    lines = result.stderr.strip().splitlines()
    assert all(word in lines[-1] for word in words)
    assert "-m" not in arguments or len(lines) == 1
    assert "keras/src" not in result.stderr  # Keras was not imported


@pytest.mark.parametrize("module", ["backend", "cli"])
def test_variable_and_command_override_the_settings_file(torch_home, module):
    given = {"KERAS_BACKEND": "tensorflow"} if module == "backend" else {}
    code = f"from electra_tf import {module}, backend; backend.check()"
    result = python("-c", code, **given)
    assert result.returncode == 0, result.stderr


def test_an_imported_keras_determines_the_backend(monkeypatch):
    import keras

    from electra_tf import backend

    monkeypatch.setenv("KERAS_BACKEND", "jax")  # ignored: Keras is imported
    backend.check()
    monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with pytest.raises(ImportError, match="'jax'"):
        backend.check()
