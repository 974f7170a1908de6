"""Test that LiteRT files have the outputs of the Keras model."""

import os
import sys

import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.serving.formats.litert import open_litert, write_litert
from serving import heads

pytest.importorskip("ai_edge_litert")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_litert(heads.function(), str(tmp_path_factory.mktemp("litert")))


def test_file_names(files):
    names = ["model.float32.tflite", "model.int8.tflite"]
    assert [os.path.basename(path) for path in files] == names


def test_float32_equals_keras(files):
    model = open_litert(files[0])
    for shape in heads.SHAPES:  # the model resizes its tensors
        ids = heads.request(*shape)
        heads.assert_equal(model(ids), heads.keras_outputs(ids))


def test_int8_is_smaller_and_close_to_keras(files):
    sizes = [os.path.getsize(path) for path in files]
    assert sizes[1] < 0.8 * sizes[0]
    model = open_litert(files[1])
    for shape in heads.SHAPES:
        ids = heads.request(*shape)
        outputs, expected = model(ids), heads.keras_outputs(ids)
        for name in ("logits", "tagger_logits", "spans_start_logits_BL", "vectors"):
            assert outputs[name].shape == expected[name].shape
            if outputs[name].size:
                difference = np.abs(outputs[name] - expected[name]).max()
                assert 1e-5 < difference < 0.1, name


def test_outputs_of_equals_keras(tmp_path):
    model = heads.models()["tagger"]
    path, _ = write_litert(heads.task_function(model), str(tmp_path))
    sentences = [["the", "of"], ["in"] * 9, ["and", "to", "with"]]
    examples = model.examples(sentences)
    outputs = open_litert(path).outputs_of(examples, 2)
    expected = model.outputs_of(examples, 2)
    for logits, expected_logits in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(logits, expected_logits, atol=1e-5)
    assert model.decode(sentences, examples, outputs) == model.predict(sentences)


def test_model_runs_after_an_invalid_request(files):
    model, ids = open_litert(files[0]), heads.request(2, 7)
    expected = model(ids)["logits"]
    unknown_ids = {**ids, "token_ids": ids["token_ids"] + 10**6}
    for invalid in (unknown_ids, heads.request(1, 65)):
        with pytest.raises(InputError, match="cut the rows"):
            model(invalid)
        np.testing.assert_array_equal(model(ids)["logits"], expected)


def test_unsupported_operation(tmp_path):
    with pytest.raises(InputError, match="Received: Igamma"):
        write_litert(heads.unsupported_function(), str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_missing_and_invalid_file(tmp_path):
    path = tmp_path / "model.tflite"
    with pytest.raises(InputError, match="--format=litert"):
        open_litert(str(path))
    path.write_text("no model")
    with pytest.raises(InputError, match="--format=litert"):
        open_litert(str(path))


def test_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(InputError, match=r"tools/install litert"):
        open_litert("model.tflite")
