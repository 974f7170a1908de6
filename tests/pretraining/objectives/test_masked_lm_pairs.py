"""Replace MLM and All-Tokens MLM, compared with NumPy in float64."""

import numpy as np
import pytest
import tensorflow as tf
from tiny import batch, objective, rng

from electra_tf.pretraining.metrics import compute_metrics

TEXT = batch([16, 12, 9, 16])

PAIRS = "replace_mlm", "all_tokens_mlm"


@pytest.fixture(scope="module", params=PAIRS)
def pair(request):
    result = objective(request.param)
    if result.model.gate is not None:  # not the initial zeros
        kernel = result.model.gate.kernel
        kernel.assign(np.random.default_rng(1).normal(size=kernel.shape))
    return result


def run(objective, masked, network):
    """Return the losses and the text that a network reads."""
    seen, call = {}, network.call

    def record(ids_BL, *args, **kwargs):
        seen["ids"] = ids_BL.numpy()
        return call(ids_BL, *args, **kwargs)

    network.call = record
    losses = objective.losses(masked, rng(), training=False)
    network.call = call
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
    electra = objective()
    names = {v.path.partition("/")[2]: v for v in electra.model.trainable_variables}
    for variable in pair.model.trainable_variables:
        name = variable.path.partition("/")[2].replace("main/", "discriminator/")
        if name in names and "head" not in name.split("/")[1:2]:
            np.testing.assert_array_equal(variable, names[name])
    theirs, their_ids_BL = run(electra, masked, electra.model.discriminator)
    ours, ids_BL = run(pair, masked, pair.model.encoder)
    np.testing.assert_array_equal(ids_BL, their_ids_BL)
    # The generator's loss is ELECTRA's.
    our_total, their_total = (x.parts["masked_lm"].total for x in (ours, theirs))
    assert float(our_total) == float(their_total)


def test_the_loss_equals_numpy(pair):
    masked = pair.mask(TEXT, rng())
    losses, ids_BL = run(pair, masked, pair.model.encoder)
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
    assert float(weights["main_lm"]) == counted.sum()
    expected = values["masked_lm_loss"] + values["main_lm_loss"]
    assert float(losses.combined(weights)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("gate", [-1e4, 1e4])
def test_an_extreme_gate_gives_a_finite_loss_and_gradient(gate):
    pair = objective("all_tokens_mlm")
    masked = pair.mask(TEXT, rng())
    bias = pair.model.encoder.blocks[-1].output_layer_norm.beta
    bias.assign(tf.ones_like(bias))
    kernel = pair.model.gate.kernel
    kernel.assign(tf.fill(kernel.shape, gate / 16))
    variables = [v.value for v in pair.model.trainable_variables]
    with tf.GradientTape() as tape:
        losses = pair.losses(masked, rng(), training=False)
        loss = losses.combined(pair.weights(masked))
    assert np.isfinite(float(loss))
    for gradient in tape.gradient(loss, variables):
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()
    copied = compute_metrics(losses.metrics)["copy_probability"]
    assert copied == pytest.approx(float(gate > 0), abs=1e-3)
