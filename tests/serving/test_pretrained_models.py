"""Test exports of pre-trained checkpoints against Keras and by hand."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from electra_tf import sources
from electra_tf.config.objectives import OBJECTIVES
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.model.electra import ElectraPair, bert
from electra_tf.serving.export_options import IDS
from electra_tf.serving.served_checkpoints import (
    MAX_MASKS,
    NUM_PROPOSALS,
    pretrained_export,
    top_proposals,
)
from electra_tf.text.vocab import MASK
from tests.serving.exports import assert_equals_keras, call, graph_operations
from tests.tiny import pretraining_settings, save_checkpoint


@pytest.fixture(scope="module")
def checkpoint(vocabulary, tmp_path_factory):
    """Return a function that writes a checkpoint; returns its model and its source."""
    written = {}

    def write(name="electra", sharing="embeddings", **objective):
        key = name, sharing, *objective
        if key not in written:
            base = pretraining_settings(name, sharing, len(vocabulary))
            settings = PretrainingConfig(
                records=base.records,
                model=base.model,
                tokenization=base.tokenization,
                objective=OBJECTIVES[name](**objective),
            )
            generator = not settings.objective.uniform_generator
            model = (
                bert(settings.model, 3)
                if name == "mlm"
                else ElectraPair(settings.model, 3, generator)
            )
            model.build()
            folder = tmp_path_factory.mktemp(name)
            save_checkpoint(
                folder, settings, {w.path: w.numpy() for w in model.weights}
            )
            written[key] = model, sources.open_source(folder)
        return written[key]

    return write


@pytest.fixture(scope="module")
def electra(checkpoint):
    """Return a function of the sharing that returns a model and its export."""

    @functools.cache
    def exported(sharing):
        model, source = checkpoint(sharing=sharing)
        return model, pretrained_export(source, "electra")

    return exported


@pytest.fixture(scope="module")
def ids(vocabulary):
    """Return ids with two masks in the first row, one in the second, none after."""
    rng = np.random.default_rng(0)
    mask_BL = (np.arange(7) < [[7], [4], [1]]).astype(np.int32)
    ids_BL = rng.integers(5, 50, (3, 7)).astype(np.int32) * mask_BL
    ids_BL[0, [2, 5]] = ids_BL[1, 3] = vocabulary.ids[MASK]
    arrays = ids_BL, np.zeros_like(ids_BL), mask_BL
    return dict(zip(IDS, arrays, strict=True))


def test_encoder_has_vectors_and_tokens(checkpoint, ids):
    model, source = checkpoint()
    spec = pretrained_export(source, "encoder")
    assert_equals_keras(spec)
    text = spec.text["serving_default"].function(tf.constant(["the file", ""]))
    vectors = {"token_vectors", "sentence_vector", "mean_vector"}
    assert set(text) == {*vectors, "tokens", "pieces_cut"}
    assert text["pieces_cut"].numpy().tolist() == [0, 0]
    tokens = text["tokens"].numpy().tolist()
    assert tokens[1][:2] == [b"[CLS]", b"[SEP]"]
    assert set(tokens[1][2:]) <= {b""}
    assert tokens[0][0] == b"[CLS]"
    outputs = call(spec.tokens["tokens"], ids)
    hidden_BLD = np.array(model.discriminator.encoder(**ids))
    real_BL1 = ids["padding_mask"][..., None]
    mean_BD = (hidden_BLD * real_BL1).sum(1) / real_BL1.sum(1)
    for name, expected in (
        ("token_vectors", hidden_BLD * real_BL1),
        ("sentence_vector", hidden_BLD[:, 0]),
        ("mean_vector", mean_BD),
    ):
        np.testing.assert_allclose(outputs[name], expected, atol=1e-5)


@pytest.mark.parametrize("sharing", ["embeddings", "all"])
def test_electra_detects_replaced_tokens_and_fills_masks(electra, ids, sharing):
    model, spec = electra(sharing)
    assert list(spec.text) == ["serving_default", "masked_text"]
    assert list(spec.tokens) == ["tokens", "masked_tokens"]
    numbers = sum(int(np.prod(v.shape)) for v in spec.module.variables)
    assert numbers == model.count_params()
    outputs = call(spec.tokens["tokens"], ids)
    logits_BL = np.array(model.discriminator(**ids))
    probability_BL = ids["padding_mask"] / (1 + np.exp(-logits_BL))
    np.testing.assert_allclose(
        outputs["replaced_probability"], probability_BL, atol=1e-5
    )
    if sharing == "all":
        return
    assert_equals_keras(spec)
    text = spec.text["masked_text"].function(tf.constant(["the [MASK]", "none"]))
    assert text["proposals"].shape == text["ids"].shape == (2, 1, NUM_PROPOSALS)
    assert text["positions"].numpy().tolist()[1] == [-1]
    assert set(text["proposals"].numpy()[1].ravel().tolist()) == {b""}
    assert text["probabilities"].numpy()[0, 0, 0] > 0


def test_proposals_equal_those_of_the_generator(electra, ids):
    model, spec = electra("embeddings")
    outputs = call(spec.tokens["masked_tokens"], ids)
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


def test_top_proposals_limits_masks():
    ids_BL = tf.fill([MAX_MASKS + 1, 1], 4)
    logits_BLV = tf.zeros([MAX_MASKS + 1, 1, 5])
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 1024 masks"):
        top_proposals(ids_BL, logits_BLV, 4, lambda x_XD: x_XD, 2)
    outputs = top_proposals(ids_BL[1:], logits_BLV[1:], 4, lambda x_XD: x_XD, 2)
    assert outputs["ids"].shape == (MAX_MASKS, 1, 2)


def test_masked_texts_make_no_matrix_of_rows_times_the_longest_text(electra):
    text = electra("embeddings")[1].text["masked_text"].function
    assert not [name for name, _ in graph_operations(text) if "Repeat/" in name]
    outputs = text(tf.constant(["[MASK]"] * 1000 + ["the " * 400_000]))
    assert outputs["pieces_cut"].numpy().tolist() == [0] * 1000 + [400_000 - 30]


def test_models_without_generator_or_discriminator(checkpoint):
    spec = pretrained_export(checkpoint(uniform_generator=True)[1], "electra")
    assert list(spec.text) == ["serving_default"]
    outputs = spec.text["serving_default"].function(tf.constant(["the file"]))
    expected = {"replaced_logits", "replaced_probability", "tokens", "pieces_cut"}
    assert set(outputs) == expected
    mlm = pretrained_export(checkpoint("mlm")[1], "electra")
    assert (list(mlm.text), list(mlm.tokens)) == (["serving_default"], ["tokens"])
    assert_equals_keras(mlm)
    outputs = mlm.text["serving_default"].function(tf.constant(["a [MASK]"]))
    assert "proposals" in outputs
