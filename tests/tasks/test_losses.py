"""Losses of all heads by hand; tests/model compares them with the original."""

import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.tasks.examples import IGNORE_LABEL
from electra_tf.tasks.losses import class_loss, score_loss, span_loss, tag_loss

RANDOM = np.random.default_rng(0)
LOGITS_BC = RANDOM.normal(size=(4, 3)).astype(np.float32)
LABELS_B = np.array([2, 0, 1, 1], np.int32)
LOGITS_BLC = RANDOM.normal(size=(3, 4, 5)).astype(np.float32)
TAGS_BL = np.array([[-1, 3, 0, -1], [-1, -1, -1, -1], [4, -1, 2, 1]], np.int32)


def loss(logits, label):
    return math.log(np.exp(logits.astype(np.float64)).sum()) - logits[label]


def assert_loss(found, total, weight, right):
    assert all(value.dtype == tf.float32 and value.shape == () for value in found)
    np.testing.assert_allclose(found, [total, weight, right], rtol=1e-5)


def test_class_loss_by_hand():
    weights_B = np.float32([1, 0, 1, 1])
    asked = (0, 2, 3)
    assert_loss(
        class_loss(LOGITS_BC, LABELS_B, weights_B),
        sum(loss(LOGITS_BC[b], LABELS_B[b]) for b in asked),
        3,
        sum(LOGITS_BC[b].argmax() == LABELS_B[b] for b in asked),
    )
    right_B = LOGITS_BC.argmax(1).astype(np.int32)
    assert class_loss(LOGITS_BC, right_B, np.ones(4, np.float32)).metric_sum == 4


def test_score_loss_by_hand():
    found = score_loss(
        np.float32([[0.5], [2.0], [9.0]]),
        np.float32([0, 1.5, 0]),
        np.float32([1, 1, 0]),
    )
    assert_loss(found, 0.25 + 0.25, 2, 0.5)
    # Whole numbers may come as integers.
    assert_loss(score_loss(np.float32([[0.5]]), [1], np.float32([1])), 0.25, 1, 0.25)


def test_tag_loss_by_hand():
    asked = [(b, p) for b in (0, 2) for p in range(4) if TAGS_BL[b, p] != IGNORE_LABEL]
    assert len(asked) == 5
    assert_loss(
        tag_loss(LOGITS_BLC, TAGS_BL, np.float32([1, 1, 1])),
        sum(loss(LOGITS_BLC[at], TAGS_BL[at]) for at in asked),
        5,
        sum(LOGITS_BLC[at].argmax() == TAGS_BL[at] for at in asked),
    )
    found = tag_loss(LOGITS_BLC, TAGS_BL, np.float32([1, 1, 0]))
    assert_loss(
        found,
        loss(LOGITS_BLC[0, 1], 3) + loss(LOGITS_BLC[0, 2], 0),
        2,
        (LOGITS_BLC[0, 1].argmax() == 3) + (LOGITS_BLC[0, 2].argmax() == 0),
    )


@pytest.mark.parametrize(
    ("of", "outputs", "targets"),
    [
        (class_loss, LOGITS_BC, LABELS_B),
        (score_loss, LOGITS_BC[:, :1], np.float32([0, 0.5, 1, 2])),
        (tag_loss, LOGITS_BLC, TAGS_BL),
    ],
)
def test_padding_rows_change_neither_sums_nor_gradients(of, outputs, targets):
    rows = len(outputs)
    more = np.concatenate([outputs, 9 * np.ones_like(outputs[:2])])
    filled = np.concatenate([targets, np.zeros_like(targets[:2])])
    weights_B = np.float32([1] * rows + [0, 0])
    found, gradients = [], []
    for x, y, w in ((outputs, targets, weights_B[:rows]), (more, filled, weights_B)):
        x = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            sums = of(x, y, w)
        found.append(np.array(sums))
        gradients.append(tape.gradient(sums.total, x).numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    np.testing.assert_allclose(gradients[1][:rows], gradients[0], rtol=1e-5, atol=1e-7)
    assert np.abs(gradients[0]).max() > 0.1
    assert not gradients[1][rows:].any()


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
