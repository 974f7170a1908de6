"""Losses as (total, weight): summed over what counts, divided once by the caller."""

from typing import NamedTuple

import tensorflow as tf


class Pair(NamedTuple):
    """A sum and what it is a sum over; their quotient is read at the very end."""

    total: tf.Tensor
    """float32 scalar."""
    weight: tf.Tensor
    """float32 scalar: number of tokens."""


def masked_lm_loss(
    logits_BMV: tf.Tensor, labels_BM: tf.Tensor, weights_BM: tf.Tensor
) -> Pair:
    """Cross-entropy of the text's tokens at masked positions, in nats.

    Args:
        logits_BMV: float32.
        labels_BM: int32.
        weights_BM: float32, 0 in unused slots.

    Returns:
        The sum over used slots, and their number.
    """
    xent_BM = tf.nn.sparse_softmax_cross_entropy_with_logits(labels_BM, logits_BMV)
    return Pair(tf.reduce_sum(xent_BM * weights_BM), tf.reduce_sum(weights_BM))


def replaced_token_loss(
    logits_BL: tf.Tensor, is_fake_BL: tf.Tensor, input_mask_BL: tf.Tensor
) -> Pair:
    """Cross-entropy of "replaced or not" at every real token, in nats.

    Args:
        logits_BL: float32, above 0 for "replaced".
        is_fake_BL: int32, 1 where the token is not the text's.
        input_mask_BL: int32, 1 at real tokens.

    Returns:
        The sum over real tokens, and their number.
    """
    fake_BL = tf.cast(is_fake_BL, tf.float32)
    real_BL = tf.cast(input_mask_BL, tf.float32)
    xent_BL = tf.nn.sigmoid_cross_entropy_with_logits(fake_BL, logits_BL)
    return Pair(tf.reduce_sum(xent_BL * real_BL), tf.reduce_sum(real_BL))
