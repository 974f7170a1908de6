import numpy as np
import pytest
import tensorflow as tf
from tiny import TOKENS, batch, config

from electra_tf.config.pretraining import ObjectiveConfig
from electra_tf.kernels.rng import TRAINING, RngStream, make_rng
from electra_tf.pretraining.metrics import compute_metrics
from electra_tf.pretraining.objectives.electra import ElectraObjective
from electra_tf.pretraining.objectives.electra_15 import Electra15Objective
from electra_tf.pretraining.sampling import corrupt

TEXT = batch([16, 12, 9, 16])


def build_objective(kind=Electra15Objective, masking=None, objective=None, **model):
    name = "electra_15" if kind is Electra15Objective else "electra"
    settings = config(
        masking={"rate": 0.3, **(masking or {})},
        objective={"name": name, **(objective or {})},
        **model,
    )
    result = kind(settings, TOKENS)
    result.model.build()
    return result


@pytest.fixture(scope="module")
def electra_15():
    return build_objective()


def rng(step=0):
    return make_rng(0, TRAINING, step)


def used_positions(masked):
    """Return where the masked positions are, bool [B, L], with NumPy loops."""
    used_BL = np.zeros(masked.input_ids_BL.shape, bool)
    pairs = zip(masked.positions_BM.numpy(), masked.weights_BM.numpy(), strict=True)
    for row, (positions, weights) in enumerate(pairs):
        used_BL[row, positions[weights == 1]] = True
    return used_BL


def run_and_record(objective, masked):
    """Return the losses, and logits, labels and logits' gradient of the discriminator.

    The gradient is that of the discriminator's loss.
    """
    seen = {}
    discriminator = objective.model.discriminator
    call = discriminator.call

    def record(ids_BL, *args, **kwargs):
        seen["fake"] = ids_BL.numpy() != masked.input_ids_BL.numpy()
        seen["logits"] = call(ids_BL, *args, **kwargs)
        return seen["logits"]

    discriminator.call = record
    try:
        with tf.GradientTape() as tape:
            losses = objective.losses(masked, rng(), training=True)
            part = losses.parts["disc"].total
    finally:
        discriminator.call = call
    return losses, seen["logits"], seen["fake"], tape.gradient(part, seen["logits"])


@pytest.mark.parametrize("scheme", ["paper", "original"])
def test_loss_and_metrics_are_those_of_the_masked_positions(scheme):
    objective = build_objective(masking={"scheme": scheme})
    masked = objective.mask(TEXT, rng())
    losses, logits_BL, fake_BL, _ = run_and_record(objective, masked)
    used = used_positions(masked)
    logits, fake = logits_BL.numpy()[used].astype(np.float64), fake_BL[used]
    expected = np.where(fake, np.logaddexp(0, -logits), np.logaddexp(0, logits))
    values = compute_metrics(losses.metrics)
    assert values["disc_loss"] == pytest.approx(expected.mean(), rel=1e-5)
    assert values["disc_accuracy"] == pytest.approx(((logits > 0) == fake).mean())
    weights = objective.weights(masked)
    assert float(weights["disc"]) == float(losses.parts["disc"].weight) == used.sum()
    assert set(weights) == set(losses.parts) == set(losses.factors)


def test_logits_of_other_positions_have_no_gradient(electra_15):
    masked = electra_15.mask(TEXT, rng())
    *_, gradient_BL = run_and_record(electra_15, masked)
    used = used_positions(masked)
    assert (gradient_BL.numpy()[used] != 0).all()
    assert not gradient_BL.numpy()[~used].any()


def test_all_but_the_discriminators_loss_equals_electra(electra_15):
    electra = build_objective(ElectraObjective)
    masked = electra_15.mask(TEXT, rng())
    ours, our_logits, *_ = run_and_record(electra_15, masked)
    theirs, their_logits, fake_BL, gradient_BL = run_and_record(electra, masked)
    np.testing.assert_array_equal(our_logits, their_logits)
    assert float(ours.parts["masked_lm"].total) == float(
        theirs.parts["masked_lm"].total
    )
    # ELECTRA's loss is ours plus that of the positions that are not masked.
    outside = (masked.input_mask_BL.numpy() == 1) & ~used_positions(masked)
    assert not fake_BL[outside].any()
    rest = np.logaddexp(0, their_logits.numpy()[outside].astype(np.float64)).sum()
    total = float(ours.parts["disc"].total) + rest
    assert float(theirs.parts["disc"].total) == pytest.approx(total, rel=1e-5)
    assert (gradient_BL.numpy()[outside] != 0).all()


def test_every_weight_has_a_gradient(electra_15):
    masked = electra_15.mask(TEXT, rng())
    variables = [v.value for v in electra_15.model.trainable_variables]
    with tf.GradientTape() as tape:
        losses = electra_15.losses(masked, rng(), training=True)
        loss = losses.combined(electra_15.weights(masked))
    grads = tape.gradient(loss, variables)
    assert all(np.any(tf.convert_to_tensor(g)) for g in grads)


def test_parts_of_a_batch_add_up_to_the_batch(electra_15):
    masked = electra_15.mask(TEXT, rng())
    weights = electra_15.weights(masked)
    whole = electra_15.losses(masked, rng(), training=True).combined(weights)
    parts = 0.0
    for first in (0, 2):
        rows = tf.nest.map_structure(lambda t, i=first: t[i : i + 2], masked)
        stream = RngStream(rng().seed, rng().first_row + first)
        parts += electra_15.losses(rows, stream, training=True).combined(weights)
    np.testing.assert_allclose(parts, whole, rtol=1e-6)


@pytest.mark.parametrize("lengths", [[0, 0], [2, 3]])
def test_a_batch_without_maskable_tokens_has_zero_loss(electra_15, lengths):
    masked = electra_15.mask(batch(lengths), rng())
    losses = electra_15.losses(masked, rng(), training=True)
    assert float(losses.combined(electra_15.weights(masked))) == 0


@pytest.mark.parametrize(
    "model",
    [
        {"sharing": "none", "depth": 2, "generator_depth": 0.5},
        {"sharing": "all", "generator_width": 1.0},
    ],
)
def test_sharing_sizes_and_temperature_give_finite_losses(model):
    objective = build_objective(objective={"temperature": 2.0}, **model)
    masked = objective.mask(TEXT, rng())
    losses = objective.losses(masked, rng(), training=True)
    assert 0 < float(losses.combined(objective.weights(masked))) < 200


def test_discriminated_positions_are_the_only_ones_that_can_be_replaced(electra_15):
    masked = electra_15.mask(TEXT, rng())
    other_BM = (masked.labels_BM + 1) % TOKENS.vocabulary_size
    corrupted = corrupt(masked, other_BM)
    np.testing.assert_array_equal(
        electra_15.discriminated(masked), corrupted.is_fake_BL
    )


@pytest.mark.parametrize("name", ["disallow_correct", "uniform_generator"])
def test_a_discriminator_that_sees_one_class_is_an_error(name):
    with pytest.raises(ValueError, match=f"`{name}` must.*`name: electra_15`"):
        ObjectiveConfig(name="electra_15", **{name: True})
