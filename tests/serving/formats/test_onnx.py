"""ONNX files: the Keras model's numbers, in any number of rows and positions."""

import os
import sys

import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.serving.export_spec import IDS
from electra_tf.serving.formats.onnx import open_onnx, run_onnx, write_onnx
from serving import heads

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("tf2onnx")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_onnx(heads.function(), str(tmp_path_factory.mktemp("onnx")))


def test_it_says_what_keras_says(file):
    model = open_onnx(file)
    for shape in heads.SHAPES:
        ids = heads.request(*shape)
        heads.assert_equal(model(ids), heads.by_keras(ids))
    np.testing.assert_array_equal(run_onnx(file, ids)["logits"], model(ids)["logits"])


def test_the_file_is_onnx_with_named_axes(file):
    assert os.path.basename(file) == "model.onnx"
    model = onnx.load(file)
    onnx.checker.check_model(model, full_check=True)
    axes = {
        value.name: [axis.dim_param for axis in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    assert axes == {name: ["batch", "length"] for name in IDS}
    assert {(of.domain, of.version) for of in model.opset_import} >= {("", 17)}
    assert {node.domain for node in model.graph.node} == {""}


def test_a_task_is_scored_as_with_keras(tmp_path):
    model = heads.models()["classifier"]
    path = write_onnx(heads.of_one_task(model), str(tmp_path))
    texts = ["the of", "in " * 30, "", "and to with"]
    examples = model.examples(texts)
    found = open_onnx(path).outputs_of(examples, 3)
    np.testing.assert_allclose(
        model.decode(texts, examples, found), model.predict(texts), atol=1e-6
    )


def test_it_answers_on_after_what_it_cannot_answer(file):
    model, ids = open_onnx(file), heads.request(2, 7)
    right = model(ids)["logits"]
    strange = {**ids, "token_ids": ids["token_ids"] + 10**6}
    for bad in (strange, heads.request(1, 65)):
        with pytest.raises(InputError, match="cut the rows to the max_length"):
            model(bad)
        np.testing.assert_array_equal(model(ids)["logits"], right)


def test_an_operation_that_onnx_lacks_is_told(tmp_path):
    with pytest.raises(InputError, match="Igamma, for which it has none"):
        write_onnx(heads.out_of_reach(), str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_none_is_told(tmp_path):
    path = tmp_path / "model.onnx"
    with pytest.raises(InputError, match="Export it again"):
        open_onnx(str(path))
    path.write_text("no model")
    with pytest.raises(InputError, match="Export it again"):
        open_onnx(str(path))


def test_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(InputError, match=r"tools/install onnx"):
        write_onnx(heads.function(), str(tmp_path))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"tools/install onnx"):
        open_onnx("model.onnx")
