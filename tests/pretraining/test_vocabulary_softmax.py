import numpy as np
import pytest
import tensorflow as tf

from electra_tf.pretraining.vocabulary_softmax import log_probabilities
from tests.tiny import log_softmax

POSITIONS, SIZE, WIDTH = 11, 23, 5


def problem():
    random = np.random.default_rng(0)
    arrays = (
        random.normal(size=(POSITIONS, WIDTH)),
        random.normal(size=(SIZE, WIDTH)),
        random.normal(size=SIZE),
    )
    ids = random.integers(0, SIZE, (2, POSITIONS)).astype(np.int32)
    return [tf.constant(a, tf.float32) for a in arrays], ids, random


def reference(arrays, ids):
    """Return the log-probabilities in float64."""
    hidden, table, bias = (a.numpy().astype(np.float64) for a in arrays)
    log_p = log_softmax(hidden @ table.T + bias)
    rows = np.arange(len(log_p))
    return log_p[rows, ids[0]], log_p[rows, ids[1]], log_p.max(-1)


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
@pytest.mark.parametrize("chunk", [1, 4, 11, 100, None])
def test_values_and_gradients_equal_a_plain_softmax(chunk, wrap):
    arrays, ids, random = problem()
    upstream = tf.constant(random.normal(size=POSITIONS), tf.float32)

    @wrap
    def ours(*arrays):
        with tf.GradientTape() as tape:
            tape.watch(arrays)
            found = log_probabilities(*arrays, ids[0], ids[1], chunk)
            # Only the labels have a gradient.
            total = tf.reduce_sum(found.label_X * upstream)
            total += 3 * tf.reduce_sum(found.other_X) + tf.reduce_sum(found.largest_X)
        return found, tape.gradient(total, arrays)

    found, gradients = ours(*arrays)
    for array, expected in zip(found, reference(arrays, ids), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-5)
    with tf.GradientTape() as tape:
        tape.watch(arrays)
        hidden, table, bias = arrays
        log_p = tf.nn.log_softmax(tf.matmul(hidden, table, transpose_b=True) + bias)
        total = tf.reduce_sum(tf.gather(log_p, ids[0], batch_dims=1) * upstream)
    for ours, plain in zip(gradients, tape.gradient(total, arrays), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-5)


def test_large_logits_stay_finite():
    arrays, ids, _ = problem()
    found = log_probabilities(arrays[0] * 1e4, *arrays[1:], ids[0], ids[1], 4)
    assert all(np.isfinite(array).all() for array in found)
    assert (found.largest_X.numpy() <= 0).all()
