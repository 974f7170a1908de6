"""The adversarial generator: its expected gradient by enumeration of all samples."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.pretraining.masking import SpecialTokens
from electra_tf.pretraining.metrics import compute_metrics
from tests.pretraining.objectives.example import TEXT
from tests.tiny import CLS, MASK, SEP, batch, log_softmax, objective, rng

SIZE = 7
SMALL_TOKENS = SpecialTokens(
    cls=CLS,
    sep=SEP,
    mask=MASK,
    vocabulary_size=SIZE,
    is_continuation_V=np.zeros(SIZE, bool),
)


def generator_gradient(objective, masked):
    """Return the gradient of the total loss in all weights of the generator, flat."""
    variables = [v.value for v in objective.model.generator.trainable_variables]
    with tf.GradientTape() as tape:
        losses = objective.losses(masked, objective.context(rng(), False))
        loss = losses.combined(objective.counts(masked))
    gradients = tape.gradient(loss, variables)
    return flat(gradients, variables)


def flat(gradients, variables):
    dense = [
        np.zeros(v.shape) if g is None else tf.convert_to_tensor(g).numpy()
        for g, v in zip(gradients, variables, strict=True)
    ]
    return np.concatenate([np.ravel(g).astype(np.float64) for g in dense])


def draw(objective, sampled):
    """Make the generator draw the given tokens."""
    objective.sample_replacements = lambda *_: tf.constant([sampled], tf.int32)


def test_the_expected_gradient_is_the_policy_gradient():
    rate, temperature = 0.15, 0.7  # two masked positions
    settings = {"temperature": temperature, "generator_weight": 2.0}
    adversarial = objective(
        "adversarial",
        objective=settings,
        masking={"rate": rate},
        tokens=SMALL_TOKENS,
        vocabulary_size=SIZE,
        sharing="none",
    )
    # Any baseline: it does not change the expectation.
    kernel = adversarial.model.baseline.kernel
    kernel.assign(np.random.default_rng(0).normal(size=kernel.shape))
    text = batch([12])
    text = text._replace(input_ids_BL=tf.math.floormod(text.input_ids_BL, SIZE))
    masked = adversarial.mask(text, rng())
    used = masked.weights_BM.numpy()[0] > 0
    count, width = int(used.sum()), len(used)
    assert count == 2
    variables = [v.value for v in adversarial.model.generator.trainable_variables]
    with tf.GradientTape(persistent=True) as tape:
        logits_BMV = adversarial.generator_logits(
            masked, adversarial.context(rng(), False)
        )
        p_MV = tf.nn.softmax(logits_BMV / temperature)[0]
        surrogate, expected = 0.0, 0.0
        for sampled in itertools.product(range(SIZE), repeat=count):
            tokens = [*sampled, *[0] * (width - count)]
            draw(adversarial, tokens)
            chances = [float(p_MV[i, t]) for i, t in enumerate(sampled)]
            expected += np.prod(chances) * generator_gradient(adversarial, masked)
            rewards = discriminator_losses(adversarial, masked, tokens)[:count]
            for i, token in enumerate(sampled):
                others = np.prod(np.delete(chances, i))
                surrogate -= others * p_MV[i, token] * rewards[i]
        surrogate *= 2.0 / count
    exact = flat(tape.gradient(surrogate, variables), variables)
    assert np.abs(exact).max() > 1e-4
    np.testing.assert_allclose(expected, exact, rtol=2e-4, atol=2e-6)


def discriminator_losses(objective, masked, tokens):
    """Return -log P(correct class) at the masked positions, in float64."""
    ids = masked.input_ids_BL.numpy().copy()
    positions, original = masked.positions_BM.numpy()[0], ids[0].copy()
    used = masked.weights_BM.numpy()[0] > 0
    ids[0, positions[used]] = np.array(tokens)[used]
    logits_L = objective.model.discriminator(
        ids, masked.segment_ids_BL, masked.input_mask_BL
    ).numpy()[0]
    sign = np.where(ids[0] != original, -1.0, 1.0)
    return np.logaddexp(0, sign * logits_L.astype(np.float64))[positions]


@pytest.mark.parametrize("scheme", ["paper", "original"])
def test_the_baseline_learns_the_probability_of_the_correct_class(scheme):
    adversarial = objective("adversarial", masking={"scheme": scheme, "rate": 0.5})
    masked = adversarial.mask(TEXT, rng())
    losses = adversarial.losses(masked, adversarial.context(rng(), True))
    values = compute_metrics(losses.metrics)
    assert values["baseline"] == pytest.approx(np.log(2))  # w begins at 0
    # Cross-entropy of sigmoid(0) = 1/2 with any target is log 2.
    part = losses.parts["baseline"]
    count = adversarial.counts(masked)[part.denominator]
    assert float(part.total / count) == pytest.approx(np.log(2))
    # `original` repeats positions; the reward is that of the token in the text.
    assert np.isfinite([values["reward"], values["disc_loss"]]).all()


def test_the_entropy_term_flattens_the_distribution():
    plain = objective("adversarial")
    with_entropy = objective("adversarial", objective={"entropy_weight": 0.5})
    masked = plain.mask(TEXT, rng())
    losses = with_entropy.losses(masked, with_entropy.context(rng(), False))
    log_p = log_softmax(
        with_entropy.generator_logits(masked, with_entropy.context(rng(), False))
    )
    weights = masked.weights_BM.numpy()
    total = (-(np.exp(log_p) * log_p).sum(-1) * weights).sum()
    assert float(losses.parts["entropy"].total) == pytest.approx(total, rel=1e-5)
    without = plain.losses(masked, plain.context(rng(), False))
    difference = losses.combined(with_entropy.counts(masked))
    difference -= without.combined(plain.counts(masked))
    assert float(difference) == pytest.approx(-0.5 * total / weights.sum(), rel=1e-3)
