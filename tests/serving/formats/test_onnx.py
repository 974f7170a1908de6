"""Test that ONNX files have the outputs of the Keras model."""

import os
import sys

import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.serving.export_spec import IDS
from electra_tf.serving.formats.onnx import open_onnx, write_onnx
from serving import heads

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("tf2onnx")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_onnx(heads.function(), str(tmp_path_factory.mktemp("onnx")))


def test_model_equals_keras(file):
    model = open_onnx(file)
    for shape in heads.SHAPES:
        ids = heads.request(*shape)
        heads.assert_equal(model(ids), heads.keras_outputs(ids))


def test_file_is_valid_with_named_axes(file):
    assert os.path.basename(file) == "model.onnx"
    model = onnx.load(file)
    onnx.checker.check_model(model, full_check=True)
    axes = {
        value.name: [axis.dim_param for axis in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    assert axes == {name: ["batch", "length"] for name in IDS}
    assert {(opset.domain, opset.version) for opset in model.opset_import} >= {("", 17)}
    assert {node.domain for node in model.graph.node} == {""}


def test_outputs_of_equals_keras(tmp_path):
    model = heads.models()["classifier"]
    path = write_onnx(heads.task_function(model), str(tmp_path))
    texts = ["the of", "in " * 30, "", "and to with"]
    examples = model.examples(texts)
    outputs = open_onnx(path).outputs_of(examples, 3)
    np.testing.assert_allclose(
        model.decode(texts, examples, outputs), model.predict(texts), atol=1e-6
    )


def test_model_runs_after_an_invalid_request(file):
    model, ids = open_onnx(file), heads.request(2, 7)
    expected = model(ids)["logits"]
    unknown_ids = {**ids, "token_ids": ids["token_ids"] + 10**6}
    for invalid in (unknown_ids, heads.request(1, 65)):
        with pytest.raises(InputError, match="cut the rows"):
            model(invalid)
        np.testing.assert_array_equal(model(ids)["logits"], expected)


def test_unsupported_operation(tmp_path):
    with pytest.raises(InputError, match="Received: Igamma"):
        write_onnx(heads.unsupported_function(), str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_missing_and_invalid_file(tmp_path):
    path = tmp_path / "model.onnx"
    with pytest.raises(InputError, match="--format=onnx"):
        open_onnx(str(path))
    path.write_text("no model")
    with pytest.raises(InputError, match="--format=onnx"):
        open_onnx(str(path))


def test_missing_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(InputError, match=r"tools/install onnx"):
        write_onnx(heads.function(), str(tmp_path))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"tools/install onnx"):
        open_onnx("model.onnx")
