import math

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import roc_auc_score
from tiny import in_every_mode

from electra_tf.batch import CorruptedBatch, MaskedBatch
from electra_tf.pretraining.losses import WeightedSum, mlm_predictions
from electra_tf.pretraining.metrics import (
    area_under_curve,
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


def test_auc_of_extreme_logits():
    logits_BL, fake_BL = [[-1e9, -3.0, 3.0, 1e9]], [[0, 0, 1, 1]]
    assert compute_metrics(disc_metrics(logits_BL, fake_BL))["disc_auc"] == 1
    assert (
        compute_metrics(disc_metrics([[1e9, 3.0, -3.0, -1e9]], fake_BL))["disc_auc"]
        == 0
    )
    assert (
        compute_metrics(disc_metrics([[2.0, 2.0, 2.0, 2.0]], fake_BL))["disc_auc"]
        == 0.5
    )
    # Close logits are distinguished in the usual range.
    assert (
        compute_metrics(disc_metrics([[-2.0, 0.0, -1.99, 0.01]], fake_BL))["disc_auc"]
        == 0.75
    )
    for labels in ([[0, 0, 0, 0]], [[1, 1, 1, 1]]):
        assert math.isnan(compute_metrics(disc_metrics(logits_BL, labels))["disc_auc"])
    assert area_under_curve(np.array([1.0, 3.0]), np.array([4.0, 2.0])) == 17 / 24


def test_metrics_without_weight():
    metrics = disc_metrics([[1.0, -1.0]], [[0, 0]], [[0, 0]])
    values = compute_metrics(
        {**metrics, "disc_loss": WeightedSum(tf.constant(0.0), tf.constant(0.0))}
    )
    assert len(values) == 5
    assert all(math.isnan(value) for value in values.values())
    assert math.isnan(
        compute_metrics(disc_metrics([[-1.0, -1.0]], [[1, 0]]))["disc_precision"]
    )
    assert math.isnan(
        compute_metrics(disc_metrics([[1.0, 1.0]], [[0, 0]]))["disc_recall"]
    )
    result = metric_ratios(disc_metrics([[1.0, -1.0]], [[0, 0]], [[0, 0]]))
    assert {name: float(value) for name, value in result.items()} == {
        "disc_loss": 1.5,
        "disc_accuracy": 0.0,
        "disc_precision": 0.0,
        "disc_recall": 0.0,
    }


def test_sums_over_batches_give_the_metrics_of_all_rows():
    random = np.random.default_rng(1)
    logits_BL = random.normal(size=(6, 50))
    fake_BL = random.random((6, 50)) < 0.3
    mask_BL = (random.random((6, 50)) < 0.5).astype(np.int32)
    expected = compute_metrics(disc_metrics(logits_BL, fake_BL, mask_BL))
    parts = [
        disc_metrics(logits_BL[rows], fake_BL[rows], mask_BL[rows])
        for rows in (slice(0, 1), slice(1, 4), slice(4, 6))
    ]
    sums = tf.nest.map_structure(lambda *values: sum(values), *parts)
    assert compute_metrics(sums) == pytest.approx(expected, rel=1e-6)
    # The mean of the batches' values would differ.
    means = np.mean([compute_metrics(part)["disc_auc"] for part in parts])
    assert abs(means - expected["disc_auc"]) > 1e-3


def test_all_modes_give_equal_metrics():
    random = np.random.default_rng(2)
    logits_BL = tf.constant(random.normal(scale=5, size=(4, 30)), tf.float32)
    fake_BL = tf.constant(random.integers(0, 2, (4, 30)), tf.int32)
    mask_BL = tf.constant(random.integers(0, 2, (4, 30)), tf.int32)

    def measured(logits_BL):
        return discriminator_metrics(
            logits_BL, CorruptedBatch(None, fake_BL), mask_BL, LOSS
        )

    modes = [compute_metrics(metrics) for metrics in in_every_mode(measured, logits_BL)]
    assert modes[1] == pytest.approx(modes[0], rel=1e-6)
    assert modes[2] == pytest.approx(modes[0], rel=1e-4)  # a logit on a bin's border
