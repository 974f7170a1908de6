import math

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from electra_tf.batch import CorruptedBatch, MaskedBatch
from electra_tf.pretraining.losses import WeightedSum, mlm_predictions
from electra_tf.pretraining.metrics import (
    compute_metrics,
    discriminator_metrics,
    masked_lm_metrics,
    metric_ratios,
    sampled_metrics,
)

LOSS = WeightedSum(tf.constant(6.0), tf.constant(4.0))


def masked_of(labels_BM, weights_BM):
    fields = dict.fromkeys(MaskedBatch._fields)
    fields["labels_BM"] = tf.constant(labels_BM)
    fields["weights_BM"] = tf.constant(weights_BM, tf.float32)
    return MaskedBatch(**fields)


def disc_metrics(logits_BL, fake_BL, mask_BL=None):
    fake_BL = tf.constant(np.asarray(fake_BL, np.int32))
    mask_BL = tf.ones_like(fake_BL) if mask_BL is None else tf.constant(mask_BL)
    logits_BL = tf.constant(np.asarray(logits_BL, np.float32))
    return discriminator_metrics(
        logits_BL, CorruptedBatch(None, fake_BL), mask_BL, LOSS
    )


def test_generator_metrics():
    masked = masked_of([[1, 2, 3], [0, 4, 0]], [[1, 1, 1], [1, 0, 0]])
    # Correct, wrong, correct; correct; unused positions are correct and wrong.
    predictions_BM = [[1, 0, 3], [0, 4, 1]]
    logits_BMV = tf.one_hot(predictions_BM, 5)
    predictions = mlm_predictions(logits_BMV, masked.labels_BM)
    result = compute_metrics(masked_lm_metrics(predictions, masked, LOSS))
    assert result == {"masked_lm_loss": 1.5, "masked_lm_accuracy": 0.75}
    result = compute_metrics(
        sampled_metrics(tf.constant([[1, 0, 0], [0, 4, 0]]), masked)
    )
    assert result == {"sampled_masked_lm_accuracy": 0.5}


def test_discriminator_metrics_of_a_batch():
    # Replaced: .9, -.2, 3; real: -1, .1, -2, 0 (0 is not above 0); last two: padding.
    logits_BL = [[0.9, -0.2, -1.0, 0.1, 9.0], [3.0, -2.0, 0.0, -9.0, 9.0]]
    fake_BL = [[1, 1, 0, 0, 0], [1, 0, 0, 1, 0]]
    mask_BL = [[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]]
    result = compute_metrics(disc_metrics(logits_BL, fake_BL, mask_BL))
    # Of 3 x 4 pairs: .9 and 3 are above all four, -.2 above two.
    assert result == pytest.approx(
        {
            "disc_loss": 1.5,
            "disc_accuracy": 5 / 7,
            "disc_precision": 2 / 3,
            "disc_recall": 2 / 3,
            "disc_auc": 10 / 12,
        }
    )


@pytest.mark.parametrize(
    ("centre", "width", "gap"),
    [
        (0, 1, 1),
        (-2.2, 0.3, 0.2),  # early in training
        (-2.2, 0.1, 0.1),  # collapsed to the majority, but ranking still
        (0, 0.003, 0.002),
        (-9, 1, 0.5),
        (30, 5, 3),
        (0, 300, 200),  # a float32 sigmoid rounds these to 0 and 1
    ],
)
def test_auc_equals_scikit_learn(centre, width, gap):
    random = np.random.default_rng(0)
    fake_BL = random.random((40, 500)) < 0.1
    mask_BL = (random.random((40, 500)) < 0.8).astype(np.int32)
    noise_BL = random.normal(size=fake_BL.shape)
    logits_BL = (centre + width * noise_BL + gap * fake_BL).astype(np.float32)
    real = mask_BL == 1
    expected = roc_auc_score(fake_BL[real], logits_BL[real])
    result = compute_metrics(disc_metrics(logits_BL, fake_BL, mask_BL))["disc_auc"]
    assert 0.6 < expected < 0.95
    assert result == pytest.approx(expected, abs=1e-3)
    # Negated logits.
    result = compute_metrics(disc_metrics(-logits_BL, fake_BL, mask_BL))["disc_auc"]
    assert result == pytest.approx(1 - expected, abs=1e-3)


@pytest.mark.parametrize(
    ("logits", "labels", "expected"),
    [
        ([-1e9, -3.0, 3.0, 1e9], [0, 0, 1, 1], 1),
        ([1e9, 3.0, -3.0, -1e9], [0, 0, 1, 1], 0),
        ([2.0, 2.0, 2.0, 2.0], [0, 0, 1, 1], 0.5),
        # Close logits are distinguished in the usual range.
        ([-2.0, 0.0, -1.99, 0.01], [0, 0, 1, 1], 0.75),
        ([-1e9, -3.0, 3.0, 1e9], [0, 0, 0, 0], math.nan),
        ([-1e9, -3.0, 3.0, 1e9], [1, 1, 1, 1], math.nan),
    ],
)
def test_auc_of_extreme_logits(logits, labels, expected):
    auc = compute_metrics(disc_metrics([logits], [labels]))["disc_auc"]
    assert auc == pytest.approx(expected, nan_ok=True)


def test_metrics_without_weight_are_nan():
    metrics = disc_metrics([[1.0, -1.0]], [[0, 0]], [[0, 0]])
    none = WeightedSum(tf.constant(0.0), tf.constant(0.0))
    values = compute_metrics({**metrics, "disc_loss": none})
    assert all(math.isnan(value) for value in values.values())
    for name, logits, labels in (
        ("disc_precision", [-1.0, -1.0], [1, 0]),
        ("disc_recall", [1.0, 1.0], [0, 0]),
    ):
        values = compute_metrics(disc_metrics([logits], [labels]))
        assert math.isnan(values[name])
    ratios = {name: float(ratio) for name, ratio in metric_ratios(metrics).items()}
    zeros = dict.fromkeys(("disc_accuracy", "disc_precision", "disc_recall"), 0.0)
    assert ratios == {"disc_loss": 1.5, **zeros}
