"""What a task's head is trained on: losses of examples, sums and weights.

Spans have theirs in `span_loss.py`.
"""

from typing import NamedTuple

import tensorflow as tf

from electra_tf.tasks.inputs import IGNORED


class Loss(NamedTuple):
    """Sums over the rows of this replica."""

    total: tf.Tensor
    """float32: the sum of what each item loses."""
    weight: tf.Tensor
    """float32: how many items there are."""
    right: tf.Tensor
    """float32: how many of them are predicted right; for scores, the squared error."""


def class_loss(logits_BC: tf.Tensor, labels_B: tf.Tensor, weights_B: tf.Tensor) -> Loss:
    """Cross-entropy of classes.

    Args:
        logits_BC: float32.
        labels_B: int32; or the classes' probabilities [B, C], such as one-hot rows.
        weights_B: float32; 0 in rows that only fill up.

    Returns:
        Sums over the rows.
    """
    labels_B = tf.convert_to_tensor(labels_B)
    if labels_B.shape.rank == 2 and labels_B.shape[1] == 1:
        labels_B = labels_B[:, 0]
    if labels_B.shape.rank == 2:
        shares_BC = tf.cast(labels_B, tf.float32)
        losses_B = tf.nn.softmax_cross_entropy_with_logits(shares_BC, logits_BC)
        labels_B = tf.argmax(shares_BC, -1, tf.int32)
    else:
        labels_B = tf.cast(labels_B, tf.int32)
        losses_B = tf.nn.sparse_softmax_cross_entropy_with_logits(labels_B, logits_BC)
    hits_B = tf.cast(tf.argmax(logits_BC, -1, tf.int32) == labels_B, tf.float32)
    return Loss(
        tf.reduce_sum(losses_B * weights_B),
        tf.reduce_sum(weights_B),
        tf.reduce_sum(hits_B * weights_B),
    )


def score_loss(
    outputs_B1: tf.Tensor, scores_B: tf.Tensor, weights_B: tf.Tensor
) -> Loss:
    """Squared error of scores.

    Args:
        outputs_B1: float32.
        scores_B: float32, in the units the head is trained in.
        weights_B: float32; 0 in rows that only fill up.

    Returns:
        Sums over the rows.
    """
    errors_B = tf.square(outputs_B1[:, 0] - tf.cast(scores_B, tf.float32))
    total = tf.reduce_sum(errors_B * weights_B)
    return Loss(total, tf.reduce_sum(weights_B), total)


def tag_loss(logits_BLC: tf.Tensor, tags_BL: tf.Tensor, weights_B: tf.Tensor) -> Loss:
    """Cross-entropy of tags at the positions that have one.

    Args:
        logits_BLC: float32.
        tags_BL: int32; `IGNORED` where none is asked for.
        weights_B: float32; 0 in rows that only fill up.

    Returns:
        Sums over words.
    """
    asked_BL = tf.cast(tags_BL != IGNORED, tf.float32) * weights_B[:, None]
    safe_BL = tf.maximum(tags_BL, 0)
    losses_BL = tf.nn.sparse_softmax_cross_entropy_with_logits(safe_BL, logits_BLC)
    hits_BL = tf.cast(tf.argmax(logits_BLC, -1, tf.int32) == tags_BL, tf.float32)
    return Loss(
        tf.reduce_sum(losses_BL * asked_BL),
        tf.reduce_sum(asked_BL),
        tf.reduce_sum(hits_BL * asked_BL),
    )
