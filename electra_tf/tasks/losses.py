"""Losses of classes, scores, tags and spans, as weighted sums over examples.

Logits and outputs are float32, ids int32. Weights are float32, 0 in padding rows.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from electra_tf.tasks.examples import IGNORE_LABEL


class Loss(NamedTuple):
    """Sums over the rows of this replica."""

    total: tf.Tensor  # float32: weighted sum of the losses
    weight: tf.Tensor  # float32: sum of the weights


def weighted_sums(losses: tf.Tensor, weights: tf.Tensor) -> Loss:
    """Return the weighted sum of losses, and the sum of weights of the same shape."""
    return Loss(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))


def squeeze_column(values: Any) -> tf.Tensor:
    """Return [B] for values [B, 1], and other values unchanged."""
    values = tf.convert_to_tensor(values)
    is_column = values.shape.rank == 2 and values.shape[1] == 1
    return values[:, 0] if is_column else values


def class_targets(labels_B: Any) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Return class ids, int32 [B], and probabilities [B, C] if the labels are these.

    The class of probabilities is the most probable one.
    """
    labels_B = squeeze_column(labels_B)
    if labels_B.shape.rank != 2:
        # Traced for [B] and for [B, 1], the rank is unknown.
        return tf.reshape(tf.cast(labels_B, tf.int32), [-1]), None
    probabilities_BC = tf.cast(labels_B, tf.float32)
    return tf.argmax(probabilities_BC, -1, tf.int32), probabilities_BC


def class_loss(logits_BC: tf.Tensor, labels_B: tf.Tensor, weights_B: tf.Tensor) -> Loss:
    """Compute the cross-entropy of classes; labels are as for `class_targets`."""
    labels_B, probabilities_BC = class_targets(labels_B)
    if probabilities_BC is not None:
        losses_B = tf.nn.softmax_cross_entropy_with_logits(probabilities_BC, logits_BC)
    else:
        losses_B = tf.nn.sparse_softmax_cross_entropy_with_logits(labels_B, logits_BC)
    return weighted_sums(losses_B, weights_B)


def score_loss(
    outputs_B1: tf.Tensor, scores_B: tf.Tensor, weights_B: tf.Tensor
) -> Loss:
    """Compute the squared error of scores, in the units of the head's output."""
    scores_B = tf.reshape(tf.cast(scores_B, tf.float32), [-1])
    return weighted_sums(tf.square(outputs_B1[:, 0] - scores_B), weights_B)


def tag_loss(logits_BLC: tf.Tensor, tags_BL: tf.Tensor, weights_B: tf.Tensor) -> Loss:
    """Compute the cross-entropy of tags at the positions without `IGNORE_LABEL`."""
    tagged_BL = tf.cast(tags_BL != IGNORE_LABEL, tf.float32) * weights_B[:, None]
    valid_BL = tf.maximum(tags_BL, 0)
    losses_BL = tf.nn.sparse_softmax_cross_entropy_with_logits(valid_BL, logits_BLC)
    return weighted_sums(losses_BL, tagged_BL)


def sum_over_replicas(weight: tf.Tensor) -> tf.Tensor:
    """Sum the float32 weight of this replica over all replicas."""
    replica = tf.distribute.get_replica_context()
    if replica.num_replicas_in_sync == 1:
        return weight
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, weight)


def span_loss(
    start_logits_BL: tf.Tensor,
    end_logits_BL: tf.Tensor,
    answerable_logit_B: tf.Tensor | None,
    starts_B: tf.Tensor,
    ends_B: tf.Tensor,
    impossible_B: tf.Tensor,
    answerable_weight: float = 0.5,
) -> tf.Tensor:
    """Compute the loss of each row, float32 [B]; the original sums it over the batch.

    (start + end) / 2 + answerable_weight * impossible, each a cross-entropy. Without an
    answer both positions are 0.
    """
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
    start_B, end_B = (
        cross_entropy(positions_B, tf.cast(logits_BL, tf.float32))
        for positions_B, logits_BL in (
            (starts_B, start_logits_BL),
            (ends_B, end_logits_BL),
        )
    )
    loss_B = (start_B + end_B) / 2.0
    if answerable_logit_B is not None:
        impossible_B = tf.cast(impossible_B, tf.float32)
        logit_B = tf.cast(answerable_logit_B, tf.float32)
        none_B = tf.nn.sigmoid_cross_entropy_with_logits(impossible_B, logit_B)
        loss_B += answerable_weight * none_B
    return loss_B


def label_set_targets(targets: Any, num_classes: int) -> tf.Tensor:
    """Return targets of ids, float32 [B, C]: zeros, ones, or probabilities."""
    targets_BC = tf.cast(tf.convert_to_tensor(targets), tf.float32)
    return tf.ensure_shape(targets_BC, [None, num_classes])


def label_set_loss(logits_BC: tf.Tensor, targets: Any, weights_B: tf.Tensor) -> Loss:
    """Compute the mean binary cross-entropy of the classes."""
    targets_BC = label_set_targets(targets, logits_BC.shape[-1])
    losses_BC = tf.nn.sigmoid_cross_entropy_with_logits(targets_BC, logits_BC)
    return weighted_sums(tf.reduce_mean(losses_BC, -1), weights_B)
