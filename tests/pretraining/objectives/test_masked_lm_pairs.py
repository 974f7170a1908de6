"""Replace MLM and All-Tokens MLM, compared with NumPy in float64."""

import numpy as np
import pytest
import tensorflow as tf
from tiny import TOKENS, batch, config

from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.pretraining.metrics import compute_metrics
from electra_tf.pretraining.objectives import OBJECTIVES
from electra_tf.pretraining.objectives.electra import ElectraObjective

PAIRS = "replace_mlm", "all_tokens_mlm"
TEXT = batch([16, 12, 9, 16])


def build(name, objective=None, **settings):
    settings.setdefault("masking", {"rate": 0.3})
    result = OBJECTIVES[name](
        config(objective={"name": name, **(objective or {})}, **settings), TOKENS
    )
    result.model.build()
    return result


@pytest.fixture(scope="module", params=PAIRS)
def pair(request):
    objective = build(request.param)
    if objective.model.gate is not None:  # not the initial zeros
        kernel = objective.model.gate.kernel
        kernel.assign(np.random.default_rng(1).normal(size=kernel.shape))
    return objective


def rng(step=0):
    return make_rng(0, TRAINING, step)


def run(objective, masked, training=False):
    """Return the losses and the text that the main network reads."""
    seen, encoder = {}, objective.model.main.encoder
    call = encoder.call

    def record(ids_BL, *args, **kwargs):
        seen["ids"] = ids_BL.numpy()
        return call(ids_BL, *args, **kwargs)

    encoder.call = record
    try:
        losses = objective.losses(masked, rng(), training)
    finally:
        encoder.call = call
    return losses, seen["ids"]


def main_log_softmax(objective, ids_BL, masked):
    """Return log-probabilities [B, L, V] and gate logits [B, L] in float64."""
    positions = np.tile(np.arange(ids_BL.shape[1]), (len(ids_BL), 1))
    segments, mask = masked.segment_ids_BL, masked.input_mask_BL
    logits = objective.model.main(ids_BL, segments, mask, positions)
    logits = logits.numpy().astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    gate = None
    if objective.model.gate is not None:
        x = objective.model.encoder(ids_BL, segments, mask).numpy().astype(np.float64)
        gate = x @ objective.model.gate.kernel.numpy()[:, 0].astype(np.float64)
    return log_p, gate


def test_the_main_network_reads_the_samples_of_electra(pair):
    masked = pair.mask(TEXT, rng())
    electra = ElectraObjective(config(masking={"rate": 0.3}), TOKENS)
    electra.model.build()
    names = {v.path.partition("/")[2]: v for v in electra.model.trainable_variables}
    for variable in pair.model.trainable_variables:
        name = variable.path.partition("/")[2].replace("main/", "discriminator/")
        if name in names and "head" not in name.split("/")[1:2]:
            np.testing.assert_array_equal(variable, names[name])
    seen, call = {}, electra.model.discriminator.call

    def record(ids_BL, *args, **kwargs):
        seen["ids"] = ids_BL.numpy()
        return call(ids_BL, *args, **kwargs)

    electra.model.discriminator.call = record
    theirs = electra.losses(masked, rng(), training=False)
    ours, ids_BL = run(pair, masked)
    np.testing.assert_array_equal(ids_BL, seen["ids"])
    # The generator's loss is ELECTRA's.
    assert float(ours.parts["masked_lm"].total) == float(
        theirs.parts["masked_lm"].total
    )


def test_the_loss_equals_numpy(pair):
    masked = pair.mask(TEXT, rng())
    losses, ids_BL = run(pair, masked)
    log_softmax, gate = main_log_softmax(pair, ids_BL, masked)
    original = masked.input_ids_BL.numpy()
    rows, columns = np.indices(original.shape)
    log_p = log_softmax[rows, columns, original]
    if gate is None:
        counted = np.zeros(original.shape, bool)
        used = masked.weights_BM.numpy() > 0
        for row, positions in enumerate(masked.positions_BM.numpy()):
            counted[row, positions[used[row]]] = True
        best = log_softmax.argmax(-1) == original
    else:
        counted = masked.input_mask_BL.numpy() > 0
        copy, predict = -np.logaddexp(0, -gate), -np.logaddexp(0, gate)
        p = np.exp(predict)[..., None] * np.exp(log_softmax)
        p[rows, columns, ids_BL] += np.exp(copy)
        best = p.argmax(-1) == original
        log_p = np.log(p[rows, columns, original])
        copied = 1 / (1 + np.exp(-gate[counted]))
    values = compute_metrics(losses.metrics)
    assert values["main_lm_loss"] == pytest.approx(-log_p[counted].mean(), rel=1e-5)
    assert values["main_lm_accuracy"] == pytest.approx(best[counted].mean())
    if gate is not None:
        assert values["copy_probability"] == pytest.approx(copied.mean(), rel=1e-5)
    weights = pair.weights(masked)
    assert set(weights) == set(losses.parts) == set(losses.factors)
    assert float(weights["main_lm"]) == counted.sum()
    expected = values["masked_lm_loss"] + values["main_lm_loss"]
    assert float(losses.combined(weights)) == pytest.approx(expected, rel=1e-5)


def gradients(objective, masked, names):
    variables = objective.model.trainable_variables
    with tf.GradientTape() as tape:
        losses = objective.losses(masked, rng(), training=True)
        factors = {n: f for n, f in losses.factors.items() if n in names}
        loss = losses._replace(factors=factors).combined(objective.weights(masked))
    found = tape.gradient(loss, [v.value for v in variables])
    return {
        v.path
        for v, g in zip(variables, found, strict=True)
        if g is not None and np.any(tf.convert_to_tensor(g))
    }


@pytest.mark.parametrize("name", PAIRS)
def test_no_gradient_flows_through_sampling(name):
    objective = build(name, sharing="none")
    masked = objective.mask(TEXT, rng())
    paths = {v.path for v in objective.model.trainable_variables}
    generator = {path for path in paths if "/generator/" in path}
    reached = gradients(objective, masked, ["main_lm"])
    # The gate's kernel is 0 at first, so that it passes no gradient to the encoder.
    assert reached == paths - generator
    assert gradients(objective, masked, ["masked_lm"]) == generator


def test_padding_does_not_change_the_loss(pair):
    masked = pair.mask(batch([12, 9]), rng())
    padded = masked._replace(
        **{
            name: tf.pad(getattr(masked, name), [[0, 0], [0, 4]])
            for name in masked._fields
            if name.endswith("_BL")
        }
    )
    short, long = (pair.losses(m, rng(), False) for m in (masked, padded))
    assert float(short.parts["main_lm"].total) == pytest.approx(
        float(long.parts["main_lm"].total), rel=1e-5
    )


@pytest.mark.parametrize("gate", [-1e4, 1e4])
def test_an_extreme_gate_gives_a_finite_loss_and_gradient(gate):
    objective = build("all_tokens_mlm")
    masked = objective.mask(TEXT, rng())
    bias = objective.model.encoder.blocks[-1].output_layer_norm.beta
    bias.assign(tf.ones_like(bias))
    kernel = objective.model.gate.kernel
    kernel.assign(tf.fill(kernel.shape, gate / 16))
    variables = [v.value for v in objective.model.trainable_variables]
    with tf.GradientTape() as tape:
        losses = objective.losses(masked, rng(), training=False)
        loss = losses.combined(objective.weights(masked))
    assert np.isfinite(float(loss))
    for gradient in tape.gradient(loss, variables):
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()
    copied = compute_metrics(losses.metrics)["copy_probability"]
    assert copied == pytest.approx(float(gate > 0), abs=1e-3)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("sharing", ["none", "embeddings", "all"])
def test_every_sharing_trains_all_weights(name, sharing):
    width = {"generator_width": 1.0} if sharing == "all" else {}
    objective = build(name, sharing=sharing, **width)
    masked = objective.mask(TEXT, rng())
    paths = {v.path for v in objective.model.trainable_variables}
    assert gradients(objective, masked, ["main_lm", "masked_lm"]) == paths
    with pytest.raises(ValueError, match=r"model\.sharing must be"):
        config(objective={"name": name}, sharing="gdes")
