"""Metrics of generator and discriminator, named as in the released ELECTRA code.

A metric is a `WeightedSum`, so the metrics of steps, replicas and evaluation batches
are added before the division. `disc_auc` is a pair of histograms.
"""

import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from electra_tf.batch import CorruptedBatch, MaskedBatch
from electra_tf.pretraining.losses import MLMPredictions, WeightedSum

AUC = "disc_auc"
# The histogram bins have equal widths in sign(x) * log(1 + 10 |x|): 0.0001 at a logit
# of 0, 0.003 at 2 and 0.03 at 20. Logits beyond +-10,000 fall into the outermost bins.
_BINS, _STRETCH, _REACH = 2**14, 10.0, 1e4

Metrics = Mapping[str, WeightedSum]


def masked_lm_metrics(
    predictions: MLMPredictions,
    masked: MaskedBatch,
    loss: WeightedSum,
    name: str = "masked_lm",
) -> dict[str, WeightedSum]:
    """Return `masked_lm_loss` and `masked_lm_accuracy`, over masked positions."""
    accuracy = weighted_mean(predictions.is_correct_BM, masked.weights_BM)
    return {f"{name}_loss": loss, f"{name}_accuracy": accuracy}


def sampled_metrics(
    sampled_BM: tf.Tensor, masked: MaskedBatch
) -> dict[str, WeightedSum]:
    """Return how often a sample equals the original token, over masked positions."""
    is_correct_BM = sampled_BM == masked.labels_BM
    return {
        "sampled_masked_lm_accuracy": weighted_mean(is_correct_BM, masked.weights_BM)
    }


def discriminator_metrics(
    logits_BL: tf.Tensor,
    corrupted: CorruptedBatch,
    input_mask_BL: tf.Tensor,
    loss: WeightedSum,
) -> dict[str, WeightedSum]:
    """Compute the metrics of replaced-token detection over real tokens.

    Precision and recall are those of the class "replaced", a logit above 0.
    """
    real_BL = tf.cast(input_mask_BL, tf.float32)
    predicted_BL = logits_BL > 0
    fake_BL = tf.cast(corrupted.is_fake_BL, tf.bool)
    return {
        "disc_loss": loss,
        "disc_accuracy": weighted_mean(predicted_BL == fake_BL, real_BL),
        "disc_precision": weighted_mean(
            fake_BL, real_BL * tf.cast(predicted_BL, tf.float32)
        ),
        "disc_recall": weighted_mean(
            predicted_BL, real_BL * tf.cast(fake_BL, tf.float32)
        ),
        AUC: _histograms(logits_BL, fake_BL, real_BL),
    }


def metric_ratios(metrics: Metrics) -> dict[str, tf.Tensor]:
    """Divide sums by weights within a graph, for Keras's `fit`.

    The AUC is left out; a metric of weight 0 is 0.
    """
    return {
        name: tf.math.divide_no_nan(pair.total, tf.cast(pair.weight, tf.float32))
        for name, pair in metrics.items()
        if name != AUC
    }


def compute_metrics(metrics: Metrics) -> dict[str, float]:
    """Divide sums by weights (NaN if 0), and compute the AUC from its histograms."""
    values = {}
    for name, (total, weight) in metrics.items():
        total, weight = np.asarray(total, np.float64), np.asarray(weight, np.float64)
        if name == AUC:
            values[name] = area_under_curve(total, weight)
        else:
            values[name] = float(total / weight) if weight else float("nan")
    return values


def area_under_curve(fakes_K: np.ndarray, reals_K: np.ndarray) -> float:
    """Compute the area under the ROC curve from histograms, lowest bin first.

    It is the probability that a replaced token has a larger logit than an original one.
    A pair in one bin counts half. NaN if either histogram is empty.
    """
    pairs = fakes_K.sum() * reals_K.sum()
    below_K = np.cumsum(reals_K) - reals_K / 2
    return float((fakes_K * below_K).sum() / pairs) if pairs else float("nan")


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> WeightedSum:
    """Return the mean of numbers or booleans as sums."""
    values = tf.cast(values, tf.float32)
    return WeightedSum(tf.reduce_sum(values * weights), tf.reduce_sum(weights))


def _histograms(
    logits_BL: tf.Tensor, fake_BL: tf.Tensor, real_BL: tf.Tensor
) -> WeightedSum:
    bin_position_BL = tf.sign(logits_BL) * tf.math.log1p(_STRETCH * tf.abs(logits_BL))
    bin_position_BL = (bin_position_BL / math.log1p(_STRETCH * _REACH) + 1) * (
        _BINS / 2
    )
    bin_BL = tf.cast(tf.clip_by_value(bin_position_BL, 0.0, _BINS - 1.0), tf.int32)
    bin_BL += tf.where(fake_BL, 0, _BINS)
    counts = tf.math.unsorted_segment_sum(
        tf.reshape(real_BL, [-1]), tf.reshape(bin_BL, [-1]), 2 * _BINS
    )
    return WeightedSum(counts[:_BINS], counts[_BINS:])
