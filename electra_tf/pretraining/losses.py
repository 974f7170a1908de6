"""Losses as sums and weights.

A loss is a `WeightedSum`. The caller divides it once, by the weight of all replicas.
"""

from typing import NamedTuple

import tensorflow as tf

from electra_tf.kernels.fused_layer_ops import xla_compiled
from electra_tf.kernels.weak_functions import custom_gradient


class WeightedSum(NamedTuple):
    """A sum and its weight. Sums and weights are added up before the division."""

    total: tf.Tensor
    """float32 scalar."""
    weight: tf.Tensor
    """float32 scalar: number of tokens."""


class MLMPredictions(NamedTuple):
    """Outputs of the masked-LM head at masked positions."""

    xent_BM: tf.Tensor
    """float32: cross-entropy of the original tokens, in nats."""
    probabilities_BMV: tf.Tensor
    """float32: softmax of the logits, without gradient."""
    is_correct_BM: tf.Tensor
    """bool: no token has a larger logit than the original one."""


def mlm_predictions(logits_BMV: tf.Tensor, labels_BM: tf.Tensor) -> MLMPredictions:
    """Compute cross-entropy, probabilities and correctness with one softmax."""
    logits_BMV = tf.convert_to_tensor(logits_BMV)
    max_logit_BM = tf.reduce_max(logits_BMV, -1)
    label_logit_BM = tf.gather(logits_BMV, labels_BM, batch_dims=2)

    @custom_gradient
    def softmax(logits_BMV: tf.Tensor):
        probabilities_BMV = tf.nn.softmax(logits_BMV)
        # log(sum(exp(x))) = max(x) - log(max(softmax(x))): no second pass over V.
        log_sum_BM = max_logit_BM - tf.math.log(tf.reduce_max(probabilities_BMV, -1))

        def gradient(of_xent_BM, _):
            return _xent_backward(of_xent_BM, probabilities_BMV, labels_BM)

        return (log_sum_BM - label_logit_BM, probabilities_BMV), gradient

    xent_BM, probabilities_BMV = softmax(logits_BMV)
    return MLMPredictions(
        xent_BM, tf.stop_gradient(probabilities_BMV), label_logit_BM >= max_logit_BM
    )


@xla_compiled
def _xent_backward(
    of_xent_BM: tf.Tensor, probabilities_BMV: tf.Tensor, labels_BM: tf.Tensor
) -> tf.Tensor:
    one_hot_BMV = tf.one_hot(labels_BM, probabilities_BMV.shape[-1])
    return of_xent_BM[..., None] * (probabilities_BMV - one_hot_BMV)


def masked_lm_loss(predictions: MLMPredictions, weights_BM: tf.Tensor) -> WeightedSum:
    """Sum the cross-entropy of the original tokens at masked positions, in nats.

    `weights_BM` is 1 at masked positions, 0 at unused ones.
    """
    total = tf.reduce_sum(predictions.xent_BM * weights_BM)
    return WeightedSum(total, tf.reduce_sum(weights_BM))


def replaced_token_loss(
    logits_BL: tf.Tensor, is_fake_BL: tf.Tensor, input_mask_BL: tf.Tensor
) -> WeightedSum:
    """Sum the binary cross-entropy of "replaced" at real tokens, in nats.

    A positive logit predicts "replaced"; the masks are int32 with 1 for yes.
    """
    fake_BL = tf.cast(is_fake_BL, tf.float32)
    real_BL = tf.cast(input_mask_BL, tf.float32)
    xent_BL = tf.nn.sigmoid_cross_entropy_with_logits(fake_BL, logits_BL)
    return WeightedSum(tf.reduce_sum(xent_BL * real_BL), tf.reduce_sum(real_BL))
