"""Losses as (total, weight): summed over what counts, divided once by the caller."""

from typing import NamedTuple

import tensorflow as tf

from electra_tf.kernels.fused_layer_ops import xla_compiled


class WeightedSum(NamedTuple):
    """A sum and what it is a sum over; their quotient is read at the very end."""

    total: tf.Tensor
    """float32 scalar."""
    weight: tf.Tensor
    """float32 scalar: number of tokens."""


class MLMPredictions(NamedTuple):
    """What a masked language model thinks of the masked positions."""

    xent_BM: tf.Tensor
    """float32: cross-entropy of the text's tokens, in nats."""
    probabilities_BMV: tf.Tensor
    """float32, through which no gradient goes."""
    is_right_BM: tf.Tensor
    """bool: no token is likelier than the text's own."""


def mlm_predictions(logits_BMV: tf.Tensor, labels_BM: tf.Tensor) -> MLMPredictions:
    """One softmax over the vocabulary for loss, gradient, samples and accuracy.

    Args:
        logits_BMV: float32.
        labels_BM: int32.

    Returns:
        All that is asked of the logits.
    """
    logits_BMV = tf.convert_to_tensor(logits_BMV)
    largest_BM = tf.reduce_max(logits_BMV, -1)
    own_BM = tf.gather(logits_BMV, labels_BM, batch_dims=2)

    @tf.custom_gradient
    def softmax(logits_BMV: tf.Tensor):
        probabilities_BMV = tf.nn.softmax(logits_BMV)
        # exp(largest) is the share of the largest in the sum.
        log_sum_BM = largest_BM - tf.math.log(tf.reduce_max(probabilities_BMV, -1))

        def gradient(of_xent_BM, _):
            return _xent_backward(of_xent_BM, probabilities_BMV, labels_BM)

        return (log_sum_BM - own_BM, probabilities_BMV), gradient

    xent_BM, probabilities_BMV = softmax(logits_BMV)
    return MLMPredictions(
        xent_BM, tf.stop_gradient(probabilities_BMV), own_BM >= largest_BM
    )


@xla_compiled
def _xent_backward(
    of_xent_BM: tf.Tensor, probabilities_BMV: tf.Tensor, labels_BM: tf.Tensor
) -> tf.Tensor:
    own_BMV = tf.one_hot(labels_BM, probabilities_BMV.shape[-1])
    return of_xent_BM[..., None] * (probabilities_BMV - own_BMV)


def masked_lm_loss(predictions: MLMPredictions, weights_BM: tf.Tensor) -> WeightedSum:
    """Cross-entropy of the text's tokens at masked positions, in nats.

    Args:
        predictions: What the model thinks.
        weights_BM: float32, 0 in unused slots.

    Returns:
        The sum over used slots, and their number.
    """
    total = tf.reduce_sum(predictions.xent_BM * weights_BM)
    return WeightedSum(total, tf.reduce_sum(weights_BM))


def replaced_token_loss(
    logits_BL: tf.Tensor, is_fake_BL: tf.Tensor, input_mask_BL: tf.Tensor
) -> WeightedSum:
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
    return WeightedSum(tf.reduce_sum(xent_BL * real_BL), tf.reduce_sum(real_BL))
