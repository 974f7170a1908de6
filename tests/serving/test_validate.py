"""Test the comparison of an export with Keras."""

import numpy as np
import pytest

from electra_tf.serving import validate


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
