"""The loss of spans by hand; tests/model compares all losses with the original."""

import math

import numpy as np
import tensorflow as tf

from electra_tf.tasks.losses import span_loss

START_BL = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]])) + 3.0
END_BL = np.log(np.array([[0.2, 0.2, 0.6], [0.3, 0.3, 0.4]]))
LOGIT_B = np.array([math.log(3.0), 0.0])  # P(no answer): 3/4, 1/2


def test_span_loss_by_hand():
    args = (START_BL, END_BL, LOGIT_B, [1, 1], [2, 0], [1, 0])
    spans = [
        (-math.log(0.25) - math.log(0.6)) / 2,
        (-math.log(0.8) - math.log(0.3)) / 2,
    ]
    empty = [-math.log(0.75), math.log(2)]
    for weight, given in ((0.5, {}), (2.0, {"answerable_weight": 2.0})):
        expected = [s + weight * e for s, e in zip(spans, empty, strict=True)]
        np.testing.assert_allclose(span_loss(*args, **given), expected, rtol=1e-6)
    without = span_loss(START_BL, END_BL, None, [1, 1], [2, 0], [1, 0])
    np.testing.assert_allclose(without, spans, rtol=1e-6)


def test_span_loss_is_float32():
    low = [tf.cast(x, tf.bfloat16) for x in (START_BL, END_BL, LOGIT_B)]
    exact = [tf.cast(x, tf.float32) for x in low]
    targets = ([1, 1], [2, 0], [1, 0])
    found = span_loss(*low, *targets)
    assert found.dtype == tf.float32
    np.testing.assert_array_equal(found, span_loss(*exact, *targets))
