"""What is measured of generator and discriminator, under the original's names.

A metric is a pair of sums until somebody reads it, so steps, replicas and batches of
an evaluation simply add up. `disc_auc` is a pair of histograms.
"""

import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from electra_tf.batch import CorruptedBatch, MaskedBatch
from electra_tf.pretraining.losses import MLMPredictions, WeightedSum

AUC = "disc_auc"
# Bins of the histograms, even in sign(x) log(1 + 10 |x|): 0.0001 wide at a logit of 0,
# 0.003 at 2 and 0.03 at 20; what lies beyond 10,000 is in the outer ones.
_BINS, _STRETCH, _REACH = 2**14, 10.0, 1e4

Metrics = Mapping[str, WeightedSum]


def masked_lm_metrics(
    predictions: MLMPredictions, masked: MaskedBatch, loss: WeightedSum
) -> dict[str, WeightedSum]:
    """How well a masked language model guesses.

    Args:
        predictions: What it thinks.
        masked: The batch with labels and weights.
        loss: Its masked-LM loss.

    Returns:
        `masked_lm_loss` and `masked_lm_accuracy`, over used slots.
    """
    return {
        "masked_lm_loss": loss,
        "masked_lm_accuracy": _share(predictions.is_right_BM, masked.weights_BM),
    }


def sampled_metrics(
    sampled_BM: tf.Tensor, masked: MaskedBatch
) -> dict[str, WeightedSum]:
    """How often a sample is the text's own token.

    Args:
        sampled_BM: int32.
        masked: The batch with labels and weights.

    Returns:
        `sampled_masked_lm_accuracy`, over used slots.
    """
    hits_BM = sampled_BM == masked.labels_BM
    return {"sampled_masked_lm_accuracy": _share(hits_BM, masked.weights_BM)}


def discriminator_metrics(
    logits_BL: tf.Tensor,
    corrupted: CorruptedBatch,
    input_mask_BL: tf.Tensor,
    loss: WeightedSum,
) -> dict[str, WeightedSum]:
    """How well replaced tokens are told from the text's; padding never counts.

    Args:
        logits_BL: float32; above 0 calls a token replaced.
        corrupted: The labels.
        input_mask_BL: int32, 1 at real tokens.
        loss: The replaced-token loss.

    Returns:
        `disc_loss`, `disc_accuracy`, `disc_precision` (right among those called
        replaced), `disc_recall` (found among the replaced), `disc_auc`.
    """
    real_BL = tf.cast(input_mask_BL, tf.float32)
    called_BL = logits_BL > 0
    fake_BL = tf.cast(corrupted.is_fake_BL, tf.bool)
    return {
        "disc_loss": loss,
        "disc_accuracy": _share(called_BL == fake_BL, real_BL),
        "disc_precision": _share(fake_BL, real_BL * tf.cast(called_BL, tf.float32)),
        "disc_recall": _share(called_BL, real_BL * tf.cast(fake_BL, tf.float32)),
        AUC: _histograms(logits_BL, fake_BL, real_BL),
    }


def metric_ratios(metrics: Metrics) -> dict[str, tf.Tensor]:
    """Divides within a graph, for Keras's `fit`; what has no weight is 0.

    Args:
        metrics: Pairs of one replica's tensors.

    Returns:
        float32 scalars by name, without the AUC.
    """
    return {
        name: tf.math.divide_no_nan(pair.total, tf.cast(pair.weight, tf.float32))
        for name, pair in metrics.items()
        if name != AUC
    }


def compute_metrics(metrics: Metrics) -> dict[str, float]:
    """Divides; what has no weight is NaN.

    Args:
        metrics: Summed pairs, of NumPy arrays or eager tensors.

    Returns:
        The values by name.
    """
    values = {}
    for name, (total, weight) in metrics.items():
        total, weight = np.asarray(total, np.float64), np.asarray(weight, np.float64)
        if name == AUC:
            values[name] = area_under_curve(total, weight)
        else:
            values[name] = float(total / weight) if weight else float("nan")
    return values


def area_under_curve(fakes_K: np.ndarray, reals_K: np.ndarray) -> float:
    """The chance that a replaced token's logit is above a real one's.

    Args:
        fakes_K: Histogram of replaced tokens' logits, lowest first.
        reals_K: The same of real tokens'.

    Returns:
        Area under the ROC curve, two in one bin counting half; NaN without both.
    """
    pairs = fakes_K.sum() * reals_K.sum()
    below_K = np.cumsum(reals_K) - reals_K / 2
    return float((fakes_K * below_K).sum() / pairs) if pairs else float("nan")


def _share(hits: tf.Tensor, weights: tf.Tensor) -> WeightedSum:
    hits = tf.cast(hits, tf.float32)
    return WeightedSum(tf.reduce_sum(hits * weights), tf.reduce_sum(weights))


def _histograms(
    logits_BL: tf.Tensor, fake_BL: tf.Tensor, real_BL: tf.Tensor
) -> WeightedSum:
    place_BL = tf.sign(logits_BL) * tf.math.log1p(_STRETCH * tf.abs(logits_BL))
    place_BL = (place_BL / math.log1p(_STRETCH * _REACH) + 1) * (_BINS / 2)
    bin_BL = tf.cast(tf.clip_by_value(place_BL, 0.0, _BINS - 1.0), tf.int32)
    bin_BL += tf.where(fake_BL, 0, _BINS)
    counts = tf.math.unsorted_segment_sum(
        tf.reshape(real_BL, [-1]), tf.reshape(bin_BL, [-1]), 2 * _BINS
    )
    return WeightedSum(counts[:_BINS], counts[_BINS:])
