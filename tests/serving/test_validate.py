"""Test the validation of SavedModels."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.serving import validate


def save(folder, function):
    spec = [tf.TensorSpec([None], tf.float32, name="x")]
    signature = tf.function(function, input_signature=spec)
    tf.saved_model.save(tf.Module(), str(folder), {"serving_default": signature})
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
