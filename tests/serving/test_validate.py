"""What the exporter trusts: that bad SavedModels are told from good ones."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.serving import validate


def saved(folder, function, **variables):
    module = tf.Module()
    for name, variable in variables.items():
        setattr(module, name, variable)
    spec = [tf.TensorSpec([None], tf.float32, name="x")]
    served = tf.function(function, input_signature=spec)
    tf.saved_model.save(module, str(folder), {"serving_default": served})
    return str(folder)


def doubled(x):
    return {"y": 2.0 * x}


def test_operations_of_python_and_xla_are_found(tmp_path):
    assert validate.unknown_operations(saved(tmp_path / "good", doubled)) == []

    def by_python(x):
        y = tf.numpy_function(lambda x: 2 * x, [x], tf.float32)
        return {"y": tf.ensure_shape(y, [None])}

    assert validate.unknown_operations(saved(tmp_path / "python", by_python)) == [
        "PyFunc"
    ]
    compiled = tf.function(doubled, jit_compile=True)
    assert validate.unknown_operations(saved(tmp_path / "xla", compiled)) == ["XLA"]


def test_numbers_are_counted_as_they_are_stored(tmp_path):
    matrix, bias = tf.Variable(tf.ones([3, 4])), tf.Variable(1.0)
    folder = saved(tmp_path / "m", doubled, matrix=matrix, bias=bias, again=matrix)
    assert validate.stored(folder) == (2, 13)
    folder = saved(tmp_path / "twice", doubled, a=matrix, b=tf.Variable(matrix))
    assert validate.stored(folder) == (2, 24)


def test_differences_are_relative_above_1_and_infinite_for_another_shape():
    assert validate.difference(np.array([0.5, 1.0]), np.array([0.25, 1.0])) == 0.25
    assert validate.difference(np.array([110.0]), np.array([100.0])) == pytest.approx(
        0.1
    )
    assert validate.difference(np.zeros([2, 1]), np.zeros([2])) == np.inf
    assert validate.difference(np.array([np.nan]), np.array([0.0])) == np.inf
    assert validate.difference(np.zeros([0, 3]), np.zeros([0, 3])) == 0
    words, others = np.array([b"a"], object), np.array([b"b"], object)
    assert validate.difference(words, words) == 0
    assert validate.difference(words, others) == np.inf


def test_a_process_of_its_own_tells_what_it_found(tmp_path):
    folder = saved(tmp_path / "m", doubled)
    arrays = tmp_path / "arrays"
    arrays.mkdir()
    cases = [{"signature": "serving_default", "inputs": ["x"], "outputs": ["y"]}] * 2
    (arrays / "cases.json").write_text(json.dumps(cases))
    for number, right in enumerate(([2.0, 4.0], [2.0, 4.5])):
        np.save(arrays / f"{number}.in.x.npy", np.array([1.0, 2.0], np.float32))
        np.save(arrays / f"{number}.out.y.npy", np.array(right, np.float32))
    done = subprocess.run(
        [sys.executable, validate.__file__, folder, arrays],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        "unknown_operations": [],
        "variables": 0,
        "numbers": 0,
        "differences": {
            "serving_default: rows": 0.0,
            "serving_default: y": pytest.approx(0.5 / 4.5),
        },
    }
