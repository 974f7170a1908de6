"""Comparison with outputs of google-research/electra for equal weights and draws."""

import numpy as np
import pytest

from electra_tf.model.layer_ops import LayerOps
from electra_tf.pretraining.sampling import corrupt, sample_gumbel
from tests.pretraining.original import Fixture

FILES = ("pretraining.npz", "pretraining_tied.npz", "pretraining_untied_embeddings.npz")


@pytest.fixture(scope="module", params=FILES)
def fixture(request):
    return Fixture(request.param)


def logits(fixture):
    masked, model = fixture.masked(), fixture.pretrainer.core
    args = {"segment_ids": masked.segment_ids_BL, "padding_mask": masked.input_mask_BL}
    return model.generator(masked.masked_ids_BL, **args, positions=masked.positions_BM)


def sampled(fixture):
    objective = fixture.config.objective
    return sample_gumbel(
        logits(fixture),
        fixture["rand_gumbel_uniform"],
        fixture["masked_lm_ids"],
        temperature=objective.temperature,
        disallow_correct=objective.disallow_correct,
    )


def test_masking(fixture):
    masked = fixture.masked()
    np.testing.assert_array_equal(masked.masked_ids_BL, fixture["masked_input_ids"])
    np.testing.assert_array_equal(masked.positions_BM, fixture["masked_lm_positions"])
    np.testing.assert_array_equal(masked.labels_BM, fixture["masked_lm_ids"])
    np.testing.assert_array_equal(masked.weights_BM, fixture["masked_lm_weights"])
    assert (
        fixture.pretrainer.objective.mask.max_predictions_per_seq
        == masked.positions_BM.shape[1]
    )


def test_generator_and_samples(fixture):
    np.testing.assert_allclose(logits(fixture), fixture["gen_logits"], atol=2e-5)
    np.testing.assert_array_equal(sampled(fixture), fixture["sampled_ids"])


def test_corrupted_text_with_its_averaged_ids(fixture):
    corrupted = corrupt(fixture.masked(), sampled(fixture))
    np.testing.assert_array_equal(
        corrupted.corrupted_ids_BL, fixture["corrupted_input_ids"]
    )
    np.testing.assert_array_equal(corrupted.is_fake_BL, fixture["is_fake"])


def test_every_layers_hidden_states_and_embeddings():
    fixture = Fixture(FILES[0])
    core = fixture.pretrainer.core
    mask_BL = fixture["input_mask"].astype("float32")
    bias_B11K = (1 - mask_BL[:, None, None, :]) * -10000
    inputs = {
        "gen": (core.generator.encoder, "masked_input_ids"),
        "disc": (core.discriminator.encoder, "corrupted_input_ids"),
    }
    for network, (encoder, ids) in inputs.items():
        layer_ops, segments = LayerOps(training=False), fixture["segment_ids"]
        x_BLD = encoder.embeddings(fixture[ids], segments, layer_ops=layer_ops)
        x_BLD = encoder.embeddings_project(x_BLD)
        np.testing.assert_allclose(
            x_BLD, fixture[f"{network}_embedding_output"], atol=2e-5
        )
        for block, expected_BLD in zip(
            encoder.blocks, fixture[f"{network}_all_layer_outputs"], strict=True
        ):
            x_BLD = block(x_BLD, bias_B11K, layer_ops=layer_ops)
            np.testing.assert_allclose(x_BLD, expected_BLD, atol=2e-5)


def test_discriminator(fixture):
    logits_BL = fixture.pretrainer.core(
        token_ids=fixture["corrupted_input_ids"],
        segment_ids=fixture["segment_ids"],
        padding_mask=fixture["input_mask"],
    )
    np.testing.assert_allclose(logits_BL, fixture["disc_logits"], atol=2e-5)


def test_losses_and_every_gradient(fixture):
    fixture.check_losses_and_gradients(
        fixture.masked(), fixture.rng(), {"masked_lm": "gen_loss", "disc": "disc_loss"}
    )
