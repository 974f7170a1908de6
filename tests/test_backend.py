"""Another backend of Keras is one clear message, for commands and imports."""

import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT, failure

from electra_tf.__main__ import COMMANDS

REMEDY = "unset KERAS_BACKEND"


def python(*arguments, home, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_HOME": str(home)}
    environment.pop("KERAS_BACKEND", None)
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment | variables,
    )


@pytest.fixture
def torch_home(tmp_path):
    (tmp_path / "keras.json").write_text(json.dumps({"backend": "torch"}))
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_names_the_variable_and_what_to_run(name, tmp_path):
    result = python(
        "-m", f"electra_tf.{name}", "--help", home=tmp_path, KERAS_BACKEND="jax"
    )
    message = failure(result)
    assert "TensorFlow" in message
    assert "KERAS_BACKEND=jax" in message
    assert REMEDY in message
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "module",
    ["tasks.text_model", "model.electra", "training.loop", "runs.pretraining"],
)
def test_an_import_says_the_same(module, tmp_path):
    code = f"import electra_tf.{module}"
    result = python("-c", code, home=tmp_path, KERAS_BACKEND="torch")
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert "KERAS_BACKEND=torch" in last
    assert REMEDY in last
    assert "keras/src" not in result.stderr  # nothing of Keras was run


def test_the_file_of_keras_counts_for_an_import(torch_home):
    result = python(
        "-c", "import electra_tf.tasks.classification.model", home=torch_home
    )
    last = result.stderr.strip().splitlines()[-1]
    assert f"the backend 'torch' in {torch_home / 'keras.json'}" in last
    assert "KERAS_BACKEND=tensorflow" in last


def test_a_variable_wins_over_the_file(torch_home):
    code = "from electra_tf import backend; backend.check()"
    result = python("-c", code, home=torch_home, KERAS_BACKEND="tensorflow")
    assert result.returncode == 0, result.stderr


def test_a_command_sets_the_variable_where_only_the_file_names_another(torch_home):
    code = "from electra_tf import cli; import keras; print(keras.config.backend())"
    result = python("-c", code, home=torch_home)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["tensorflow"]


def test_keras_that_is_imported_already_is_asked(monkeypatch):
    import keras

    from electra_tf import backend

    monkeypatch.setenv("KERAS_BACKEND", "jax")  # too late to matter
    backend.check()
    monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with pytest.raises(ImportError, match=r"imported with the backend 'jax'"):
        backend.check()
