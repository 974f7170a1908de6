"""Another backend of Keras is an error of commands and of imports."""

import json

import pytest

from tests.conftest import failure, python

REMEDY = "unset KERAS_BACKEND"


STDERR = """
import os
from electra_tf import cli
with cli.starting_tensorflow():
    os.write(2, b"a note of TensorFlow")
    {}
os.write(2, b"later")
"""


@pytest.mark.parametrize(
    ("statement", "level", "held_back"),
    [("pass", "3", True), ("raise ImportError('gone')", "3", False)],
)
def test_notes_of_tensorflow_s_import_are_for_failures(statement, level, held_back):
    program = STDERR.format(statement)
    result = python("-c", program, TF_CPP_MIN_LOG_LEVEL=level)
    assert ("a note of TensorFlow" in result.stderr) != held_back
    assert ("ImportError: gone" in result.stderr) == ("raise" in statement)
    assert ("later" in result.stderr) == ("raise" not in statement)


def test_a_crash_while_notes_are_held_back_is_reported():
    program = STDERR.format("os.abort()")
    result = python("-c", program, TF_CPP_MIN_LOG_LEVEL="3")
    assert "Fatal Python error: Aborted" in result.stderr


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Return the folder of Keras's settings, which is empty."""
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    return tmp_path


def test_legacy_keras_without_its_package_is_one_line():
    program = "import sys; sys.modules['tf_keras'] = None; import electra_tf.cli"
    result = python("-c", program, TF_USE_LEGACY_KERAS="1")
    assert "unset TF_USE_LEGACY_KERAS" in failure(result)


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


@pytest.fixture
def torch_home(home):
    (home / "keras.json").write_text(json.dumps({"backend": "torch"}))
    return home


def test_a_command_rejects_another_backend():
    given = ("-m", "electra_tf.pretrain", "--help")
    result = python(*given, KERAS_BACKEND="jax")
    message = failure(result)
    assert "TensorFlow" in message
    assert "KERAS_BACKEND=jax" in message
    assert REMEDY in message
    assert len(result.stderr.strip().splitlines()) == 1


def test_an_import_rejects_another_backend():
    result = python("-c", "import electra_tf.model.electra", KERAS_BACKEND="torch")
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert "KERAS_BACKEND=torch" in last
    assert REMEDY in last
    assert "keras/src" not in result.stderr  # Keras was not imported


def test_an_import_reads_the_settings_file_of_keras(torch_home):
    result = python("-c", "import electra_tf.tasks.classifier")
    last = result.stderr.strip().splitlines()[-1]
    assert f"'torch' in {torch_home / 'keras.json'}" in last
    assert "KERAS_BACKEND=tensorflow" in last


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
