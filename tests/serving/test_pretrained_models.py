"""Test exports of pre-trained checkpoints against Keras."""

import pytest
import tensorflow as tf
from tiny import pretraining_settings as settings_of
from tiny import save_checkpoint as save

from electra_tf import sources
from electra_tf.config.pretraining import ObjectiveConfig
from electra_tf.model.electra import Electra, bert
from electra_tf.serving.pretrained_models import NUM_PROPOSALS, pretrained_export
from electra_tf.serving.validate import TOLERANCE, max_difference


@pytest.fixture(scope="module")
def checkpoint(vocabulary, tmp_path_factory):
    """Return a function that writes a checkpoint with random weights."""

    def write_checkpoint(name="electra", sharing="embeddings", **objective):
        settings = settings_of(name, sharing, len(vocabulary))
        settings = type(settings)(
            **{
                "records": settings.records,
                "model": settings.model,
                "tokenization": settings.tokenization,
                "objective": ObjectiveConfig(name=name, **objective),
            }
        )
        generator = not settings.objective.uniform_generator
        model = (
            bert(settings.model, 3)
            if name == "mlm"
            else Electra(settings.model, 3, generator)
        )
        model.build()
        folder = tmp_path_factory.mktemp(name)
        save(folder, settings, {w.path: w.numpy() for w in model.weights})
        return sources.open(folder)

    return write_checkpoint


def check(spec):
    for signature in (*spec.text.values(), *spec.tokens.values()):
        for request in signature.requests:
            outputs = signature.function(*map(tf.constant, request.values()))
            rows = len(next(iter(request.values())))
            assert {tensor.shape[0] for tensor in outputs.values()} == {rows}
            for name, expected in signature.expected(request).items():
                assert max_difference(outputs[name].numpy(), expected) < TOLERANCE, name


def test_encoder_has_vectors_and_tokens(checkpoint):
    spec = pretrained_export(checkpoint(), "encoder")
    check(spec)
    text = spec.text["serving_default"].function(tf.constant(["the file", ""]))
    vectors = {"token_vectors", "sentence_vector", "mean_vector"}
    assert set(text) == {*vectors, "tokens", "pieces_cut"}
    assert text["pieces_cut"].numpy().tolist() == [0, 0]
    tokens = text["tokens"].numpy().tolist()
    assert tokens[1][:2] == [b"[CLS]", b"[SEP]"]
    assert set(tokens[1][2:]) <= {b""}
    assert tokens[0][0] == b"[CLS]"


@pytest.mark.parametrize("sharing", ["embeddings", "none", "all"])
def test_electra_detects_replaced_tokens_and_fills_masks(checkpoint, sharing):
    spec = pretrained_export(checkpoint(sharing=sharing), "electra")
    assert list(spec.text) == ["serving_default", "masked_text"]
    assert list(spec.tokens) == ["tokens", "masked_tokens"]
    check(spec)
    text = spec.text["masked_text"].function(tf.constant(["the [MASK]", "none"]))
    assert text["proposals"].shape == text["ids"].shape == (2, 1, NUM_PROPOSALS)
    assert text["positions"].numpy().tolist()[1] == [-1]
    assert set(text["proposals"].numpy()[1].ravel().tolist()) == {b""}
    assert text["probabilities"].numpy()[0, 0, 0] > 0


def test_masked_texts_make_no_matrix_of_rows_times_the_longest_text(checkpoint):
    text = pretrained_export(checkpoint(), "electra").text["masked_text"].function
    names = [op.name for op in text.get_concrete_function().graph.get_operations()]
    assert not [name for name in names if "Repeat/" in name]
    outputs = text(tf.constant(["[MASK]"] * 1000 + ["the " * 400_000]))
    assert outputs["pieces_cut"].numpy().tolist() == [0] * 1000 + [400_000 - 30]


def test_models_without_generator_or_discriminator(checkpoint):
    spec = pretrained_export(checkpoint(uniform_generator=True), "electra")
    assert list(spec.text) == ["serving_default"]
    outputs = spec.text["serving_default"].function(tf.constant(["the file"]))
    expected = {"replaced_logits", "replaced_probability", "tokens", "pieces_cut"}
    assert set(outputs) == expected
    mlm = pretrained_export(checkpoint("mlm"), "electra")
    assert (list(mlm.text), list(mlm.tokens)) == (["serving_default"], ["tokens"])
    check(mlm)
    outputs = mlm.text["serving_default"].function(tf.constant(["a [MASK]"]))
    assert "proposals" in outputs


def test_requests_of_texts_and_ids_have_the_same_rows(checkpoint):
    spec = pretrained_export(checkpoint(), "encoder")
    texts = spec.text["serving_default"].requests[1]["text"]
    ids = spec.tokens["tokens"].requests[1]["token_ids"]
    assert texts.dtype == object
    assert len(texts) == len(ids)
    assert ids.shape[1] == 32  # the longest probe text is truncated
