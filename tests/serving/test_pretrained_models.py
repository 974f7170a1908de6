"""Test exports and local servers of pre-trained checkpoints against Keras, by hand."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf import sources
from electra_tf.config.objectives import OBJECTIVE_SETTINGS
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.model.electra import ElectraPair, bert
from electra_tf.runs.exporting import open_servable
from electra_tf.serving.export_options import IDS
from electra_tf.serving.served_encoder import (
    NUM_PROPOSALS,
    ServedDetector,
    ServedEncoder,
    ServedMaskedLM,
)
from electra_tf.text.vocab import MASK
from tests.serving.exports import assert_equals_keras, call
from tests.tiny import pretraining_settings, save_checkpoint


@pytest.fixture(scope="module")
def checkpoint(vocabulary, tmp_path_factory):
    """Return a function that writes a checkpoint; returns its model and its folder."""

    def write(name="electra", **objective):
        base = pretraining_settings(name, "embeddings", len(vocabulary))
        settings = PretrainingConfig(
            records=base.records,
            model=base.model,
            tokenization=base.tokenization,
            objective=OBJECTIVE_SETTINGS[name](**objective),
        )
        generator = not settings.objective.uniform_generator
        model = (
            bert(settings.model, 3)
            if name == "mlm"
            else ElectraPair(settings.model, 3, generator)
        )
        model.build()
        folder = tmp_path_factory.mktemp(name)
        save_checkpoint(folder, settings, {w.path: w.numpy() for w in model.weights})
        return model, str(folder)

    return write


@pytest.fixture(scope="module")
def electra(checkpoint):
    return checkpoint()


@pytest.fixture(scope="module")
def ids(vocabulary):
    """Return ids with two masks in the first row, one in the second, none after."""
    rng = np.random.default_rng(0)
    mask_BL = (np.arange(7) < [[7], [4], [1]]).astype(np.int32)
    ids_BL = rng.integers(5, 50, (3, 7)).astype(np.int32) * mask_BL
    ids_BL[0, [2, 5]] = ids_BL[1, 3] = vocabulary.ids[MASK]
    arrays = ids_BL, np.zeros_like(ids_BL), mask_BL
    return dict(zip(IDS, arrays, strict=True))


def test_encoder_has_vectors_and_tokens(electra, ids):
    model, folder = electra
    served = ServedEncoder(sources.open_source(folder))
    assert_equals_keras(served)
    text = served.text["serving_default"](tf.constant(["the file", ""]))
    vectors = {"token_vectors", "sentence_vector", "mean_vector"}
    assert set(text) == {*vectors, "tokens", "pieces_cut"}
    assert text["pieces_cut"].numpy().tolist() == [0, 0]
    tokens = text["tokens"].numpy().tolist()
    assert tokens[1][:2] == [b"[CLS]", b"[SEP]"]
    assert set(tokens[1][2:]) <= {b""}
    assert tokens[0][0] == b"[CLS]"
    outputs = call(served.tokens, ids)
    hidden_BLD = np.array(model.discriminator.encoder(**ids))
    real_BL1 = ids["padding_mask"][..., None]
    mean_BD = (hidden_BLD * real_BL1).sum(1) / real_BL1.sum(1)
    for name, expected in (
        ("token_vectors", hidden_BLD * real_BL1),
        ("sentence_vector", hidden_BLD[:, 0]),
        ("mean_vector", mean_BD),
    ):
        np.testing.assert_allclose(outputs[name], expected, atol=1e-5)


def answers(servable, *texts, signature="serving_default"):
    """Return the outputs of a signature of texts."""
    return servable.signatures[signature]({"text": np.array(texts, object)})


def test_a_served_electra_detects_replaced_tokens(electra, ids):
    model, folder = electra
    servable = open_servable(folder, "electra")
    names = ["serving_default", "tokens", "masked_text", "masked_tokens"]
    assert list(servable.signatures) == names
    servable.warm_up()
    outputs = servable.signatures["tokens"](ids)
    mask_BL, logits_BL = ids["padding_mask"], np.array(model.discriminator(**ids))
    np.testing.assert_allclose(
        outputs["replaced_probability"], mask_BL / (1 + np.exp(-logits_BL)), atol=1e-5
    )
    np.testing.assert_allclose(
        outputs["replaced_logits"], mask_BL * logits_BL, atol=1e-5
    )
    outputs = answers(servable, "the file, of", "")
    assert outputs["tokens"][1, :2].tolist() == [b"[CLS]", b"[SEP]"]
    assert set(outputs["tokens"][1, 2:].tolist()) == {b""}
    assert not outputs["replaced_probability"][1, 2:].any()


def test_a_served_generator_fills_masks(electra, ids):
    model, folder = electra
    servable = open_servable(folder)
    outputs = servable.signatures["masked_tokens"](ids)
    np.testing.assert_array_equal(outputs["positions"], [[2, 5], [3, -1], [-1, -1]])
    positions_BM = np.array([[2, 5], [3, 3], [0, 0]])
    logits_BMV = model.generator(**ids, positions=positions_BM)
    probabilities_BMV = np.array(tf.nn.softmax(logits_BMV))
    for row, mask in ((0, 0), (0, 1), (1, 0)):
        of_V = probabilities_BMV[row, mask]
        best_K = np.argsort(-of_V, kind="stable")[:NUM_PROPOSALS]
        np.testing.assert_array_equal(outputs["ids"][row, mask], best_K)
        received = outputs["probabilities"][row, mask]
        np.testing.assert_allclose(received, of_V[best_K], atol=1e-6)
    for row, mask in ((1, 1), (2, 0), (2, 1)):
        np.testing.assert_array_equal(outputs["ids"][row, mask], -1)
        assert not outputs["probabilities"][row, mask].any()
    outputs = answers(servable, "the [MASK]", "none", signature="masked_text")
    assert outputs["proposals"].shape == outputs["ids"].shape == (2, 1, NUM_PROPOSALS)
    assert outputs["positions"][1].tolist() == [-1]
    assert set(outputs["proposals"][1].ravel().tolist()) == {b""}
    long = answers(servable, *["[MASK]"] * 1000, "the " * 400, signature="masked_text")
    assert long["pieces_cut"].tolist() == [0] * 1000 + [400 - 30]


@pytest.mark.parametrize("served", [ServedDetector, ServedMaskedLM])
def test_heads_compute_from_texts_what_keras_computes(electra, served):
    model, folder = electra
    half = model.discriminator if served is ServedDetector else model.generator
    assert_equals_keras(served(sources.open_source(folder), model=half))


def test_models_without_generator_or_discriminator(checkpoint):
    alone = open_servable(checkpoint(uniform_generator=True)[1])
    assert list(alone.signatures) == ["serving_default", "tokens"]
    expected = {"replaced_logits", "replaced_probability", "tokens", "pieces_cut"}
    assert set(answers(alone, "the file")) == expected
    masked_lm = open_servable(checkpoint("mlm")[1])
    assert list(masked_lm.signatures) == ["serving_default", "tokens"]
    assert {"proposals", "probabilities"} < set(answers(masked_lm, "a [MASK]"))


@pytest.mark.parametrize(
    ("signature", "texts", "message"),
    [
        ("serving_default", ["a"] * 4097, "at most 4096 rows"),
        ("masked_text", ["[MASK] [MASK]"] * 513, "at most 1024 masks"),
    ],
)
def test_large_requests_to_heads_are_rejected(electra, signature, texts, message):
    servable = open_servable(electra[1])
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        answers(servable, *texts, signature=signature)
