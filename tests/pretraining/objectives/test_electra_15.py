"""The discriminator's loss at the masked positions alone."""

import numpy as np
import pytest
import tensorflow as tf
from tiny import batch, objective, rng

from electra_tf.pretraining.metrics import compute_metrics

TEXT = batch([16, 12, 9, 16])


def used_positions(masked):
    """Return where the masked positions are, bool [B, L], with NumPy loops."""
    used_BL = np.zeros(masked.input_ids_BL.shape, bool)
    pairs = zip(masked.positions_BM.numpy(), masked.weights_BM.numpy(), strict=True)
    for row, (positions, weights) in enumerate(pairs):
        used_BL[row, positions[weights == 1]] = True
    return used_BL


def run_and_record(objective, masked):
    """Return the losses, and logits and labels of the discriminator.

    The last value is the gradient of its loss in the logits.
    """
    seen, discriminator = {}, objective.model.discriminator
    call = discriminator.call

    def record(ids_BL, *args, **kwargs):
        seen["fake"] = ids_BL.numpy() != masked.input_ids_BL.numpy()
        seen["logits"] = call(ids_BL, *args, **kwargs)
        return seen["logits"]

    discriminator.call = record
    with tf.GradientTape() as tape:
        losses = objective.losses(masked, rng(), training=True)
        part = losses.parts["disc"].total
    discriminator.call = call
    return losses, seen["logits"], seen["fake"], tape.gradient(part, seen["logits"])


@pytest.mark.parametrize("scheme", ["paper", "original"])
def test_loss_and_metrics_are_those_of_the_masked_positions(scheme):
    electra_15 = objective("electra_15", masking={"scheme": scheme})
    masked = electra_15.mask(TEXT, rng())
    losses, logits_BL, fake_BL, gradient_BL = run_and_record(electra_15, masked)
    used = used_positions(masked)
    logits, fake = logits_BL.numpy()[used].astype(np.float64), fake_BL[used]
    expected = np.where(fake, np.logaddexp(0, -logits), np.logaddexp(0, logits))
    values = compute_metrics(losses.metrics)
    assert values["disc_loss"] == pytest.approx(expected.mean(), rel=1e-5)
    assert values["disc_accuracy"] == pytest.approx(((logits > 0) == fake).mean())
    assert float(electra_15.weights(masked)["disc"]) == used.sum()
    assert (gradient_BL.numpy() != 0).tolist() == used.tolist()


def test_all_but_the_discriminators_loss_equals_electra():
    electra, electra_15 = objective("electra"), objective("electra_15")
    masked = electra_15.mask(TEXT, rng())
    ours, our_logits, *_ = run_and_record(electra_15, masked)
    theirs, their_logits, fake_BL, gradient_BL = run_and_record(electra, masked)
    np.testing.assert_array_equal(our_logits, their_logits)
    our_total, their_total = (x.parts["masked_lm"].total for x in (ours, theirs))
    assert float(our_total) == float(their_total)
    # ELECTRA's loss is ours plus that of the positions that are not masked.
    outside = (masked.input_mask_BL.numpy() == 1) & ~used_positions(masked)
    assert not fake_BL[outside].any()
    rest = np.logaddexp(0, their_logits.numpy()[outside].astype(np.float64)).sum()
    total = float(ours.parts["disc"].total) + rest
    assert float(theirs.parts["disc"].total) == pytest.approx(total, rel=1e-5)
    assert (gradient_BL.numpy()[outside] != 0).all()
