"""Losses as weighted sums over examples, of which each model computes its own.

Weights are float32, 0 in padding rows.
"""

from typing import Any, NamedTuple

import tensorflow as tf


class Loss(NamedTuple):
    """Sums over the rows of this replica."""

    total: tf.Tensor  # float32: weighted sum of the losses
    weight: tf.Tensor  # float32: sum of the weights


def weighted_sums(losses: tf.Tensor, weights: tf.Tensor) -> Loss:
    """Return the weighted sum of losses, and the sum of weights of the same shape."""
    return Loss(tf.reduce_sum(losses * weights), tf.reduce_sum(weights))


def sum_over_replicas(weight: tf.Tensor) -> tf.Tensor:
    """Sum the float32 weight of this replica over all replicas."""
    replica = tf.distribute.get_replica_context()
    if replica.num_replicas_in_sync == 1:
        return weight
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, weight)


def squeeze_column(values: Any) -> tf.Tensor:
    """Return [B] for values [B, 1], and other values unchanged."""
    values = tf.convert_to_tensor(values)
    is_column = values.shape.rank == 2 and values.shape[1] == 1
    return values[:, 0] if is_column else values
