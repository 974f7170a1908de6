"""Test the heads of pre-trained models by hand and against Keras."""

import numpy as np
import pytest
import tensorflow as tf
import tiny

from electra_tf.config.pretraining import ModelConfig
from electra_tf.model.electra import Electra
from electra_tf.model.transformer import Encoder
from electra_tf.serving.inference_encoder import InferenceEncoder
from electra_tf.serving.pretrained_heads import (
    MAX_MASKS,
    FillMask,
    HiddenStates,
    ReplacedTokenDetection,
    top_proposals,
)

MASKED = 4


@pytest.fixture(scope="module")
def ids():
    rng = np.random.default_rng(0)
    mask_BL = (np.arange(7) < [[7], [4], [1]]).astype(np.int32)
    ids_BL = rng.integers(5, 50, (3, 7)).astype(np.int32) * mask_BL
    ids_BL[0, [2, 5]] = ids_BL[1, 3] = MASKED
    return {
        "token_ids": ids_BL,
        "segment_ids": np.zeros_like(ids_BL),
        "padding_mask": mask_BL,
    }


@pytest.fixture(scope="module")
def electra():
    shape = {"depth": 1, "width": 16, "heads": 2, "feed_forward": 32, "embedding": 8}
    model = Electra(ModelConfig(**shape, vocabulary_size=50, max_positions=16))
    model.build()
    return model


def test_top_proposals_by_hand():
    ids_BL = tf.constant([[1, 4, 4], [4, 2, 0], [1, 2, 3]])
    logits_BLV = np.zeros((3, 3, 5), np.float32)
    logits_BLV[0, 1, 3], logits_BLV[0, 2, 1] = 2.0, 3.0
    logits_BLV[1, 0, [0, 2]] = 1.0, 4.0
    outputs = top_proposals(ids_BL, tf.constant(logits_BLV), 4, lambda x_XD: x_XD, 2)
    np.testing.assert_array_equal(outputs["positions"], [[1, 2], [0, -1], [-1, -1]])
    ids_BMK = outputs["ids"].numpy()
    assert ids_BMK[0, :, 0].tolist() == [3, 1]
    assert ids_BMK[1].tolist() == [[2, 0], [-1, -1]]
    np.testing.assert_array_equal(ids_BMK[2], -1)
    powers = np.exp([1.0, 4.0, 0, 0, 0])
    expected = [powers[1] / powers.sum(), powers[0] / powers.sum()]
    np.testing.assert_allclose(outputs["probabilities"][1, 0], expected, rtol=1e-5)
    assert not outputs["probabilities"][2].numpy().any()


def test_top_proposals_limits_masks():
    ids_BL = tf.fill([MAX_MASKS + 1, 1], 4)
    logits_BLV = tf.zeros([MAX_MASKS + 1, 1, 5])
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 1024 masks"):
        top_proposals(ids_BL, logits_BLV, 4, lambda x_XD: x_XD, 2)
    outputs = top_proposals(ids_BL[1:], logits_BLV[1:], 4, lambda x_XD: x_XD, 2)
    assert outputs["ids"].shape == (MAX_MASKS, 1, 2)


def test_hidden_states_ignore_padding(ids):
    encoder = Encoder(tiny.start().shape)
    encoder.build()
    head = HiddenStates(encoder)
    hidden_BLD = np.array(encoder(**ids))
    for outputs in (head(ids), head.expected(ids)):
        vectors_BLD = np.array(outputs["token_vectors"])
        np.testing.assert_allclose(
            outputs["sentence_vector"], hidden_BLD[:, 0], atol=1e-5
        )
        mean_D = hidden_BLD[1, :4].mean(axis=0)
        np.testing.assert_allclose(outputs["mean_vector"][1], mean_D, atol=1e-5)
        assert not vectors_BLD[1, 4:].any()
        np.testing.assert_allclose(vectors_BLD[1, :4], hidden_BLD[1, :4], atol=1e-5)


def test_replaced_token_detection_equals_the_discriminator(ids, electra):
    discriminator = electra.discriminator
    encoder = InferenceEncoder(discriminator.encoder)
    head = ReplacedTokenDetection(discriminator, encoder)
    logits_BL = np.array(discriminator(**ids)) * ids["padding_mask"]
    probs_BL = ids["padding_mask"] / (1 + np.exp(-logits_BL))
    for outputs in (head(ids), head.expected(ids)):
        np.testing.assert_allclose(outputs["replaced_logits"], logits_BL, atol=1e-5)
        np.testing.assert_allclose(outputs["replaced_probability"], probs_BL, atol=1e-5)


def test_fill_mask_equals_the_generator(ids, electra):
    generator = electra.generator
    head = FillMask(generator, InferenceEncoder(generator.encoder), MASKED, 3)
    positions_BM = np.array([[2, 5], [3, 3], [0, 0]])
    logits_BMV = np.array(generator(**ids, positions=positions_BM))
    probs_BMV = np.array(tf.nn.softmax(logits_BMV))
    for outputs in (head(ids), head.expected(ids)):
        np.testing.assert_array_equal(outputs["positions"], [[2, 5], [3, -1], [-1, -1]])
        for row, mask in ((0, 0), (0, 1), (1, 0)):
            best_K = np.argsort(-probs_BMV[row, mask], kind="stable")[:3]
            np.testing.assert_array_equal(outputs["ids"][row, mask], best_K)
            np.testing.assert_allclose(
                outputs["probabilities"][row, mask],
                probs_BMV[row, mask, best_K],
                atol=1e-6,
            )


def test_heads_contain_each_variable_once(electra):
    discriminator, generator = electra.discriminator, electra.generator
    encoders = [InferenceEncoder(m.encoder) for m in (discriminator, generator)]
    for head, model in (
        (ReplacedTokenDetection(discriminator, encoders[0]), discriminator),
        (FillMask(generator, encoders[1], MASKED, 3), generator),
    ):
        numbers = sum(int(np.prod(v.shape)) for v in head.variables)
        assert numbers == sum(int(np.prod(w.shape)) for w in model.weights)
