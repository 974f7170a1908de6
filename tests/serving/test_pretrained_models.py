"""What is served of a pre-trained checkpoint is what Keras says."""

import pytest
import tensorflow as tf
from tasks.test_pretrained import save, settings_of

from electra_tf.config.pretraining import ObjectiveConfig
from electra_tf.model.electra import Electra, bert
from electra_tf.serving.export_spec import strings
from electra_tf.serving.pretrained_models import PROPOSALS, pretrained_export
from electra_tf.serving.validate import TOLERANCE, difference


@pytest.fixture(scope="module")
def checkpoint(vocabulary, tmp_path_factory):
    """Makes a checkpoint with the weights of a seed."""

    def made(name="electra", sharing="embeddings", **objective):
        settings = settings_of(name, sharing, len(vocabulary))
        settings = type(settings)(
            **{
                **{part: getattr(settings, part) for part in ("records", "model")},
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
        return str(folder)

    return made


def check(exportable):
    for signature in (*exportable.text.values(), *exportable.tokens.values()):
        for request in signature.requests:
            outputs = signature.function(*map(tf.constant, request.values()))
            rows = len(next(iter(request.values())))
            assert {of.shape[0] for of in outputs.values()} == {rows}
            for name, right in signature.expected(request).items():
                assert difference(outputs[name].numpy(), right) < TOLERANCE, name


def test_the_encoder_tells_vectors_and_its_tokens(checkpoint):
    found = pretrained_export(checkpoint(), "encoder")
    check(found)
    text = found.text["serving_default"].function(tf.constant(["the file", ""]))
    vectors = {"token_vectors", "sentence_vector", "mean_vector"}
    assert set(text) == {*vectors, "tokens", "pieces_cut"}
    assert text["pieces_cut"].numpy().tolist() == [0, 0]
    tokens = text["tokens"].numpy().tolist()
    assert tokens[1][:2] == [b"[CLS]", b"[SEP]"]
    assert set(tokens[1][2:]) <= {b""}
    assert tokens[0][0] == b"[CLS]"


@pytest.mark.parametrize("sharing", ["embeddings", "none", "all"])
def test_the_pair_judges_and_proposes(checkpoint, sharing):
    found = pretrained_export(checkpoint(sharing=sharing), "electra")
    assert list(found.text) == ["serving_default", "masked_text"]
    assert list(found.tokens) == ["tokens", "masked_tokens"]
    check(found)
    text = found.text["masked_text"].function(tf.constant(["the [MASK]", "none"]))
    assert text["proposals"].shape == text["ids"].shape == (2, 1, PROPOSALS)
    assert text["positions"].numpy().tolist()[1] == [-1]
    assert set(text["proposals"].numpy()[1].ravel().tolist()) == {b""}
    assert text["probabilities"].numpy()[0, 0, 0] > 0


def test_what_is_not_there_is_not_served(checkpoint):
    lonely = pretrained_export(checkpoint(uniform_generator=True), "electra")
    assert list(lonely.text) == ["serving_default"]
    replaced = {"replaced_logits", "replaced_probability", "tokens", "pieces_cut"}
    served = lonely.text["serving_default"].function(tf.constant(["the file"]))
    assert set(served) == replaced
    mlm = pretrained_export(checkpoint("mlm"), "electra")
    assert (list(mlm.text), list(mlm.tokens)) == (["serving_default"], ["tokens"])
    check(mlm)
    served = mlm.text["serving_default"].function(tf.constant(["a [MASK]"]))
    assert "proposals" in served


def test_requests_are_tokenised_outside_the_graph(checkpoint):
    found = pretrained_export(checkpoint(), "encoder")
    texts = found.text["serving_default"].requests[1]["text"]
    ids = found.tokens["tokens"].requests[1]["token_ids"]
    assert len(texts) == len(ids)
    assert (strings(["x"]).dtype, texts.dtype) == (object, object)
    assert ids.shape[1] == 32  # the longest sample does not fit
