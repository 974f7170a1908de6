"""The adversarial generator: its expected gradient by enumeration of all samples."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from tiny import CLS, MASK, SEP, TOKENS, batch, config

from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.pretraining.masking import SpecialTokens
from electra_tf.pretraining.metrics import compute_metrics
from electra_tf.pretraining.objectives.adversarial import AdversarialObjective

SIZE = 7
SMALL_TOKENS = SpecialTokens(
    cls=CLS,
    sep=SEP,
    mask=MASK,
    vocabulary_size=SIZE,
    is_continuation_V=np.zeros(SIZE, bool),
)
TEXT = batch([16, 12, 9, 16])


def build(tokens=TOKENS, objective=None, masking=None, **model):
    settings = config(
        objective={"name": "adversarial", **(objective or {})},
        masking=masking or {"rate": 0.3},
        vocabulary_size=tokens.vocabulary_size,
        **model,
    )
    result = AdversarialObjective(settings, tokens)
    result.model.build()
    return result


def rng(step=0):
    return make_rng(0, TRAINING, step)


def small_text(length=12):
    text = batch([length])
    return text._replace(input_ids_BL=tf.math.floormod(text.input_ids_BL, SIZE))


def generator_gradient(objective, masked, source=None):
    """Return the gradient of the total loss in all weights of the generator, flat."""
    variables = [v.value for v in objective.model.generator.trainable_variables]
    with tf.GradientTape() as tape:
        losses = objective.losses(masked, source or rng(), training=False)
        loss = losses.combined(objective.weights(masked))
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


@pytest.mark.parametrize(
    ("rate", "temperature"),
    [(0.05, 1.0), (0.05, 0.7), (0.15, 0.7)],  # one masked position, and two
)
def test_the_expected_gradient_is_the_policy_gradient(rate, temperature):
    objective = build(
        SMALL_TOKENS,
        {"temperature": temperature, "generator_weight": 2.0},
        {"rate": rate},
        sharing="none",
    )
    # Any baseline: it does not change the expectation.
    objective.model.baseline.kernel.assign(
        np.random.default_rng(0).normal(size=objective.model.baseline.kernel.shape)
    )
    masked = objective.mask(small_text(), rng())
    used = masked.weights_BM.numpy()[0] > 0
    count, width = int(used.sum()), len(used)
    assert count == (1 if rate == 0.05 else 2)
    variables = [v.value for v in objective.model.generator.trainable_variables]
    with tf.GradientTape(persistent=True) as tape:
        logits_BMV = objective._generator_logits(masked, None)
        p_MV = tf.nn.softmax(logits_BMV / temperature)[0]
        surrogate, expected = 0.0, 0.0
        for sampled in itertools.product(range(SIZE), repeat=count):
            tokens = [*sampled, *[0] * (width - count)]
            draw(objective, tokens)
            chances = [float(p_MV[i, t]) for i, t in enumerate(sampled)]
            expected += np.prod(chances) * generator_gradient(objective, masked)
            rewards = discriminator_losses(objective, masked, tokens)[:count]
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


def test_the_baseline_learns_the_probability_of_the_correct_class():
    objective = build()
    masked = objective.mask(TEXT, rng())
    kernel = objective.model.baseline.kernel
    with tf.GradientTape() as tape:
        losses = objective.losses(masked, rng(), training=True)
        loss = losses.combined(objective.weights(masked))
    values = compute_metrics(losses.metrics)
    assert values["baseline"] == pytest.approx(np.log(2))  # w begins at 0
    assert np.any(tape.gradient(loss, kernel.value))
    # Cross-entropy of sigmoid(0) = 1/2 with any target is log 2.
    part = losses.parts["baseline"]
    assert float(part.total / part.weight) == pytest.approx(np.log(2))


def test_reward_of_duplicate_positions_is_that_of_the_written_token():
    objective = build(masking={"scheme": "original", "rate": 0.5})
    masked = objective.mask(TEXT, rng())
    values = compute_metrics(objective.losses(masked, rng(), training=True).metrics)
    assert np.isfinite([values["reward"], values["disc_loss"]]).all()


def test_only_the_discriminators_loss_reaches_the_discriminator():
    objective = build(sharing="none")
    masked = objective.mask(TEXT, rng())
    variables = [v.value for v in objective.model.discriminator.trainable_variables]

    def gradient(names):
        with tf.GradientTape() as tape:
            losses = objective.losses(masked, rng(), training=True)
            factors = {n: f for n, f in losses.factors.items() if n in names}
            loss = losses._replace(factors=factors).combined(objective.weights(masked))
        return tape.gradient(loss, variables)

    assert all(g is None for g in gradient(("policy", "baseline")))
    assert all(g is not None for g in gradient(("disc",)))


def test_the_entropy_term_flattens_the_distribution():
    plain, with_entropy = build(), build(objective={"entropy_weight": 0.5})
    masked = plain.mask(TEXT, rng())
    losses = with_entropy.losses(masked, rng(), training=False)
    logits = with_entropy._generator_logits(masked, None).numpy().astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    entropy = -(np.exp(log_p) * log_p).sum(-1)
    weights = masked.weights_BM.numpy()
    assert float(losses.parts["entropy"].total) == pytest.approx(
        (entropy * weights).sum(), rel=1e-5
    )
    losses_without = plain.losses(masked, rng(), training=False)
    difference = losses.combined(with_entropy.weights(masked))
    difference -= losses_without.combined(plain.weights(masked))
    mean = (entropy * weights).sum() / weights.sum()
    assert float(difference) == pytest.approx(-0.5 * mean, rel=1e-3)


@pytest.mark.parametrize(
    ("objective", "model", "message"),
    [
        ({"disallow_correct": True}, {}, "disallow_correct"),
        ({"uniform_generator": True}, {}, "uniform_generator"),
        ({"freeze_generator": True}, {"sharing": "none"}, "freeze_generator"),
        (
            {},
            {"sharing": "all", "generator_width": 1.0},
            "model.sharing must be none or embeddings",
        ),
        ({"name": "electra", "entropy_weight": 0.1}, {}, "entropy_weight"),
        ({"name": "electra", "freeze_generator": True}, {}, "model.sharing must be"),
    ],
)
def test_settings_that_make_no_sense_are_errors(objective, model, message):
    with pytest.raises(ValueError, match=message):
        config(objective={"name": "adversarial", **objective}, **model)
