"""Losses of predicting the original tokens, compared with NumPy in float64."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.pretraining.metrics import compute_metrics
from tests.pretraining.objectives.example import TEXT
from tests.tiny import log_softmax, losses_and_text, masked_positions, objective, rng

# Weights of the losses by objective; the last loss is compared with NumPy.
WEIGHTS = {
    "mlm": {"masked_lm": 3.0},
    "replace_mlm": {"masked_lm": 1.0, "main_lm": 3.0},
    "all_tokens_mlm": {"masked_lm": 1.0, "main_lm": 3.0},
}


def log_probabilities(objective, ids_BL, masked):
    """Return log-probabilities [B, L, V] of the main network's masked-LM head."""
    model = objective.model
    inputs = ids_BL, masked.segment_ids_BL, masked.input_mask_BL
    positions = np.tile(np.arange(ids_BL.shape[1]), (len(ids_BL), 1))
    network = getattr(model, "main", model)
    return log_softmax(network(*inputs, positions))


def gate_logits(objective, ids_BL, masked):
    """Return the logits of copying the input, [B, L]."""
    inputs = ids_BL, masked.segment_ids_BL, masked.input_mask_BL
    x_BLD = objective.model.encoder(*inputs).numpy().astype(np.float64)
    return x_BLD @ objective.model.gate.kernel.numpy()[:, 0].astype(np.float64)


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_loss_equals_numpy(name):
    *_, part = WEIGHTS[name]
    weight = "generator_weight" if name == "mlm" else "main_weight"
    trained = objective(name, objective={weight: 3.0})
    masked = trained.mask(TEXT, rng())
    original = masked.input_ids_BL.numpy()
    rows, columns = np.indices(original.shape)
    if name == "all_tokens_mlm":  # not the initial zeros
        kernel = trained.model.gate.kernel
        kernel.assign(np.random.default_rng(1).normal(size=kernel.shape))
    losses, ids_BL = losses_and_text(trained, masked)
    values = compute_metrics(losses.metrics)
    p = np.exp(log_probabilities(trained, ids_BL, masked))
    counted = masked_positions(masked)
    if name == "all_tokens_mlm":
        counted = masked.input_mask_BL.numpy() > 0
        copied = 1 / (1 + np.exp(-gate_logits(trained, ids_BL, masked)))
        p *= 1 - copied[..., None]
        p[rows, columns, ids_BL] += copied
        share = values["copy_probability"]
        assert share == pytest.approx(copied[counted].mean(), rel=1e-5)
    log_p = np.log(p[rows, columns, original])
    best = p.argmax(-1) == original
    assert values[f"{part}_loss"] == pytest.approx(-log_p[counted].mean(), rel=1e-5)
    assert values[f"{part}_accuracy"] == pytest.approx(best[counted].mean())
    counts = trained.counts(masked)
    assert float(counts[losses.parts[part].denominator]) == counted.sum()
    expected = sum(w * values[f"{n}_loss"] for n, w in WEIGHTS[name].items())
    assert float(losses.combined(counts)) == pytest.approx(expected, rel=1e-5)


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
        losses = pair.losses(masked, pair.context(rng(), False))
        loss = losses.combined(pair.counts(masked))
    assert np.isfinite(float(loss))
    for gradient in tape.gradient(loss, variables):
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()
    copied = compute_metrics(losses.metrics)["copy_probability"]
    assert copied == pytest.approx(float(gate > 0), abs=1e-3)
