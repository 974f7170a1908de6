import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.batch import Batch
from electra_tf.errors import InputError
from electra_tf.pretraining.metrics import compute_metrics
from tests.pretraining.objectives.example import TEXT
from tests.tiny import TOKENS, VOCABULARY, chi_square, objective, rng


def loss_of(objective, masked):
    losses = objective.losses(masked, objective.context(rng(), False))
    return losses.combined(objective.counts(masked))


def metrics_of(objective, masked):
    context = objective.context(rng(), False)
    return compute_metrics(objective.losses(masked, context).metrics)


def test_loss_is_the_weighted_sum_of_both_losses():
    electra = objective(
        objective={"generator_weight": 3.0, "discriminator_weight": 20.0}
    )
    masked = electra.mask(TEXT, rng())
    values = metrics_of(electra, masked)
    expected = 3 * values["masked_lm_loss"] + 20 * values["disc_loss"]
    np.testing.assert_allclose(loss_of(electra, masked), expected, rtol=1e-6)
    counts = {name: float(n) for name, n in electra.counts(masked).items()}
    predictions = sum(math.ceil(0.3 * n) for n in (16, 12, 9, 16))
    assert counts == {"masked": predictions, "real": 16 + 12 + 9 + 16}


@pytest.mark.parametrize("kind", ["uniform_generator", "unigram_generator"])
def test_samples_without_a_network_follow_the_counts_of_ordinary_tokens(kind):
    special = [TOKENS.cls, TOKENS.sep, TOKENS.mask]
    counts_V = np.arange(VOCABULARY, dtype=np.int64) ** 2
    counts_V[0] = 500  # a word, if [PAD] is another entry
    counts_V[VOCABULARY - 1] = 0
    counts_V[special] = 10**6
    tokens = dataclasses.replace(TOKENS, counts_V=counts_V)
    electra = objective(objective={kind: True}, tokens=tokens)
    assert electra.model.generator is None
    masked = electra.mask(Batch(*(tf.tile(x, [300, 1]) for x in TEXT)), rng())
    corrupted, generated = electra.corrupted_batch(
        masked, electra.context(rng(), False)
    )
    drawn_BM = tf.gather(corrupted.corrupted_ids_BL, masked.positions_BM, batch_dims=1)
    drawn_V = np.bincount(
        drawn_BM.numpy()[masked.weights_BM == 1], minlength=VOCABULARY
    )
    p_V = np.ones(VOCABULARY)
    if kind == "unigram_generator":
        p_V = np.where(np.isin(np.arange(VOCABULARY), special), 0, counts_V)
    p_V = p_V / p_V.sum()
    assert not drawn_V[p_V == 0].any()
    assert abs(chi_square(drawn_V[p_V > 0], p_V[p_V > 0] * drawn_V.sum())) < 5
    # The loss of no network is a constant, and no metric.
    assert not {"masked_lm_loss", "masked_lm_accuracy"} & generated.metrics.keys()
    if kind == "uniform_generator":
        total, count = (
            generated.parts["masked_lm"].total,
            masked.weights_BM.numpy().sum(),
        )
        assert float(total) / count == pytest.approx(math.log(VOCABULARY), rel=1e-6)
    else:
        with pytest.raises(InputError, match="unigram_generator"):
            objective(objective={kind: True})


def test_temperature_and_disallow_correct_reach_the_sampler():
    plain = objective()
    other = objective(objective={"disallow_correct": True, "temperature": 0.5})
    # A large output bias makes the generator always predict one token.
    masked = plain.mask(TEXT, rng())
    label = int(masked.labels_BM[0, 0])
    for electra in (plain, other):
        bias = electra.model.generator.head.output_bias
        bias.assign(tf.one_hot(label, VOCABULARY) * 30)
    predictions = float(tf.reduce_sum(masked.weights_BM))
    labelled = float(tf.reduce_sum(tf.cast(masked.labels_BM == label, tf.float32)))
    name = "sampled_masked_lm_accuracy"
    share = labelled / predictions
    assert metrics_of(plain, masked)[name] == pytest.approx(share)
    assert metrics_of(other, masked)[name] == 0


@pytest.mark.parametrize("sampler", ["inverse_cdf", "gumbel"])
def test_a_scheduled_temperature_equals_a_constant_one(sampler):
    """At each share of training the losses are those of the constant setting."""
    points = ((0.1, 2.0), (0.3, 1.0), (1.0, 6.0))
    changing = objective(objective={"sampler": sampler, "temperature_schedule": points})
    masked = changing.mask(TEXT, rng())
    # Constant before the first point, linear between the points.
    factors = {0.0: 2.0, 0.2: 1.5, 0.65: 3.5, 1.0: 6.0}
    for progress, factor in factors.items():
        constant = objective(objective={"sampler": sampler, "temperature": factor})
        losses = changing.losses(masked, changing.context(rng(), False, progress))
        total = float(losses.combined(changing.counts(masked)))
        assert total == pytest.approx(float(loss_of(constant, masked)), rel=1e-5)
        values = compute_metrics(losses.metrics)
        assert values["temperature"] == pytest.approx(factor)
