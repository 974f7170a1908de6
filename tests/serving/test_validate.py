"""Test the validation of SavedModels."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.serving import validate


def save(folder, function, **variables):
    module = tf.Module()
    for name, variable in variables.items():
        setattr(module, name, variable)
    spec = [tf.TensorSpec([None], tf.float32, name="x")]
    signature = tf.function(function, input_signature=spec)
    tf.saved_model.save(module, str(folder), {"serving_default": signature})
    return str(folder)


def double(x):
    return {"y": 2.0 * x}


def test_unknown_operations(tmp_path):
    assert validate.unknown_operations(save(tmp_path / "good", double)) == []

    def python_function(x):
        y = tf.numpy_function(lambda x: 2 * x, [x], tf.float32)
        return {"y": tf.ensure_shape(y, [None])}

    assert validate.unknown_operations(save(tmp_path / "python", python_function)) == [
        "PyFunc"
    ]
    compiled = tf.function(double, jit_compile=True)
    assert validate.unknown_operations(save(tmp_path / "xla", compiled)) == ["XLA"]


def test_count_variables(tmp_path):
    matrix, bias = tf.Variable(tf.ones([3, 4])), tf.Variable(1.0)
    folder = save(tmp_path / "m", double, matrix=matrix, bias=bias, again=matrix)
    assert validate.count_variables(folder) == (2, 13)
    folder = save(tmp_path / "twice", double, a=matrix, b=tf.Variable(matrix))
    assert validate.count_variables(folder) == (2, 24)


@pytest.mark.parametrize(
    ("actual", "expected", "difference"),
    [
        ([0.5, 1.0], [0.25, 1.0], 0.25),
        ([110.0], [100.0], 0.1),  # relative to values above 1
        ([[0.0], [0.0]], [0.0, 0.0], np.inf),
        ([np.nan], [0.0], np.inf),
        (np.zeros([0, 3]), np.zeros([0, 3]), 0),
        (np.array([b"a"], object), np.array([b"a"], object), 0),
        (np.array([b"a"], object), np.array([b"b"], object), np.inf),
    ],
)
def test_max_difference(actual, expected, difference):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert validate.max_difference(actual, expected) == pytest.approx(difference)


def test_report(tmp_path):
    folder = save(tmp_path / "m", double)
    arrays = tmp_path / "arrays"
    arrays.mkdir()
    cases = [{"signature": "serving_default", "inputs": ["x"], "outputs": ["y"]}] * 2
    (arrays / "cases.json").write_text(json.dumps(cases))
    for number, expected in enumerate(([2.0, 4.0], [2.0, 4.5])):
        np.save(arrays / f"{number}.in.x.npy", np.array([1.0, 2.0], np.float32))
        np.save(arrays / f"{number}.out.y.npy", np.array(expected, np.float32))
    result = subprocess.run(
        [sys.executable, validate.__file__, folder, arrays],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout.splitlines()[-1])
    assert report == {
        "unknown_operations": [],
        "variables": 0,
        "numbers": 0,
        "differences": {
            "serving_default: rows": 0.0,
            "serving_default: y": pytest.approx(0.5 / 4.5),
        },
    }
