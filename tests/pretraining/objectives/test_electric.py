"""Electric, compared with outputs of the released code and by its laws."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.batch import MaskedBatch
from electra_tf.pretraining.metrics import compute_metrics
from tests.pretraining.objectives.example import TEXT
from tests.pretraining.original import Fixture
from tests.tiny import batch, objective, rng


@pytest.fixture(scope="module")
def fixture():
    return Fixture("pretraining_electric.npz")


def masked_batch(fixture):
    names = (
        *("input_ids", "input_mask", "segment_ids", "masked_input_ids"),
        *("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"),
    )
    return MaskedBatch(*(tf.constant(fixture[name]) for name in names))


def test_losses_labels_and_gradients_equal_the_original(fixture, monkeypatch):
    objective, masked = fixture.pretrainer.objective, masked_batch(fixture)
    # Some samples equal the original token, which is noise all the same.
    is_same = fixture["corrupted_input_ids"] == fixture["input_ids"]
    assert (is_same & (fixture["is_fake"] == 1)).any()
    monkeypatch.setattr(
        objective, "sample_replacements", lambda *_: tf.constant(fixture["sampled_ids"])
    )
    read, discriminator_losses = [], objective.discriminator_losses

    def keep_input(logits_BL, masked, noisy):
        read.append(noisy)
        return discriminator_losses(logits_BL, masked, noisy)

    monkeypatch.setattr(objective, "discriminator_losses", keep_input)
    losses = fixture.check_losses_and_gradients(
        masked, rng(), {"cloze": "cloze_loss", "disc": "disc_loss"}
    )
    (noisy,) = read
    np.testing.assert_array_equal(
        noisy.corrupted_ids_BL, fixture["corrupted_input_ids"]
    )
    np.testing.assert_array_equal(noisy.is_fake_BL, fixture["is_fake"])
    values = compute_metrics(losses.metrics)
    assert values["masked_lm_loss"] == pytest.approx(float(fixture["gen_loss"]), 1e-5)


def test_a_prediction_does_not_depend_on_its_own_token():
    electric = objective("electric")
    text = batch([16])
    ids = text.input_ids_BL.numpy()

    def hidden(ids):
        inputs = text.segment_ids_BL, text.input_mask_BL
        return electric.model.cloze(ids, *inputs).numpy()

    before = hidden(ids)
    for position in range(1, 15):
        changed = ids.copy()
        changed[0, position] = 5 + (ids[0, position] + 7) % 40
        after = hidden(changed)
        same = np.isclose(before, after, rtol=0, atol=1e-6).all(-1)
        assert same[position]
        # All others see it, except those that only see the wrapped-around ends.
        assert not same[1:position].any()
        assert not same[position + 1 : 15].any()


def test_the_sampler_draws_from_the_same_distribution_as_log_q():
    """The logits at the drawn positions are those of the loss over all tokens."""
    electric = objective("electric")
    masked = electric.mask(TEXT, rng())
    losses = electric.losses(masked, electric.context(rng(), False))
    # With every candidate drawn, the masked-LM loss equals the cloze loss.
    everything = objective("electric", masking={"rate": 1.0 - 1e-6})
    drawn = everything.mask(TEXT, rng())
    assert drawn.weights_BM.numpy().sum() == float(electric.counts(masked)["maskable"])
    context = everything.context(rng(), False)
    values = compute_metrics(everything.losses(drawn, context).metrics)
    expected = compute_metrics(losses.metrics)["cloze_loss"]
    assert values["masked_lm_loss"] == pytest.approx(expected, rel=1e-5)
