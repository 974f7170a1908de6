"""The discriminator's loss at the masked positions alone."""

import numpy as np
import pytest

from electra_tf.pretraining.metrics import compute_metrics
from tests.pretraining.objectives.example import TEXT
from tests.tiny import losses_and_text, masked_positions, objective, rng


@pytest.mark.parametrize("scheme", ["paper", "original"])
def test_loss_and_metrics_are_those_of_the_masked_positions(scheme):
    electra_15 = objective("electra_15", masking={"scheme": scheme})
    masked = electra_15.mask(TEXT, rng())
    losses, ids_BL = losses_and_text(electra_15, masked)
    used = masked_positions(masked)
    logits_BL = electra_15.model.discriminator(
        ids_BL, masked.segment_ids_BL, masked.input_mask_BL
    )
    logits = logits_BL.numpy()[used].astype(np.float64)
    fake = (ids_BL != masked.input_ids_BL.numpy())[used]
    expected = np.where(fake, np.logaddexp(0, -logits), np.logaddexp(0, logits))
    values = compute_metrics(losses.metrics)
    assert values["disc_loss"] == pytest.approx(expected.mean(), rel=1e-5)
    assert values["disc_accuracy"] == pytest.approx(((logits > 0) == fake).mean())
    assert float(electra_15.counts(masked)["distinct"]) == used.sum()
