"""Test exports and local servers of pre-trained checkpoints against Keras, by hand."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf import sources
from electra_tf.config.objectives import OBJECTIVE_SETTINGS
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.model.electra import ElectraPair, bert
from electra_tf.runs.exporting import open_servable
from electra_tf.serving.export_options import IDS
from electra_tf.serving.served_encoder import ServedEncoder
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


def test_encoder_has_vectors_and_tokens(electra):
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
    mask_BL = (np.arange(7) < [[7], [4], [1]]).astype(np.int32)
    ids_BL = np.random.default_rng(0).integers(5, 50, (3, 7)) * mask_BL
    ids = dict(zip(IDS, (ids_BL.astype(np.int32), 0 * mask_BL, mask_BL), strict=True))
    outputs = call(served.tokens, ids)
    hidden_BLD = np.array(model.discriminator.encoder(**ids))
    real_BL1 = mask_BL[..., None]
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


def test_a_served_electra_detects_replaced_tokens_and_fills_masks(electra):
    model, folder = electra
    servable = open_servable(folder, "electra")
    assert list(servable.signatures) == ["serving_default", "masked_text"]
    servable.warm_up()
    tokenizer = sources.open_source(folder).encoder.tokenizer
    text = "the file, of"
    ids = [2, *tokenizer.encode(text), 3]
    inputs = np.array([ids]), np.zeros([1, len(ids)], int), np.ones([1, len(ids)], int)
    logits_L = np.array(model.discriminator(*inputs))[0]
    outputs = answers(servable, text, "")
    entries = [tokenizer.vocabulary.tokens[n] for n in ids[1:-1]]
    assert [token.decode() for token in outputs["tokens"][0]] == entries
    expected_L = 1 / (1 + np.exp(-logits_L[1:-1]))
    probabilities_BL = outputs["replaced_probability"]
    np.testing.assert_allclose(probabilities_BL[0], expected_L, atol=1e-5)
    assert not probabilities_BL[1].any()
    two, one = "[MASK] of [MASK]", "the [MASK]"
    outputs = answers(servable, two, one, signature="masked_text")
    proposals_BMK = outputs["proposals"]
    assert proposals_BMK.shape == outputs["probabilities"].shape == (2, 2, 10)
    assert set(proposals_BMK[1, 1].tolist()) == {b""}
    ids = [2, 4, *tokenizer.encode("of"), 4, 3]
    inputs = np.array([ids]), np.zeros([1, len(ids)], int), np.ones([1, len(ids)], int)
    logits_MV = model.generator(*inputs, positions=np.array([[1, len(ids) - 2]]))[0]
    probabilities_MV = np.array(tf.nn.softmax(logits_MV))
    for mask_V, of_K in zip(probabilities_MV, outputs["probabilities"][0], strict=True):
        np.testing.assert_allclose(of_K, np.sort(mask_V)[::-1][:10], atol=1e-6)


def test_models_without_generator_or_discriminator(checkpoint):
    alone = open_servable(checkpoint(uniform_generator=True)[1])
    assert list(alone.signatures) == ["serving_default"]
    assert set(answers(alone, "the file")) == {"tokens", "replaced_probability"}
    masked_lm = open_servable(checkpoint("mlm")[1])
    assert list(masked_lm.signatures) == ["serving_default"]
    assert set(answers(masked_lm, "a [MASK]")) == {"proposals", "probabilities"}


@pytest.mark.parametrize(
    ("signature", "texts", "message"),
    [
        ("serving_default", ["a"] * 4097, "4096 rows. Received: 4097"),
        ("serving_default", [" " * (2**21 + 1)], "2097152 bytes. Received: 2097153"),
        ("serving_default", ["a" + " a" * 15] * 4096, "65536 positions"),
        ("masked_text", ["[MASK] [MASK]"] * 513, "1024 masks. Received: 1026"),
        ("masked_text", ["[MASK]" * 5 + " " * 10**6], "4194304 characters"),
    ],
)
def test_large_requests_to_heads_are_rejected(electra, signature, texts, message):
    servable = open_servable(electra[1])
    with pytest.raises(InputError, match=message):
        answers(servable, *texts, signature=signature)
