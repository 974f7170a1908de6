"""Test that LiteRT and ONNX files have the outputs of the SavedModel's functions."""

import os
import re
import sys

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

import electra_tf
from electra_tf.errors import InputError
from electra_tf.serving import export
from electra_tf.serving.export import ASSETS_EXTRA, max_difference
from electra_tf.serving.export_options import FORMATS_OF_IDS, IDS, check_export
from electra_tf.serving.formats import litert, onnx
from tests.serving.exports import exported, model

HEADS = ("tagger", "answerer", "separate_spans", "pooled_pairs", "regressor")
SHAPES = [(1, 5), (3, 17), (1, 32), (3, 32), (1, 5)]


def ids_of(rows, length):
    """Return random ids. Every row is one position shorter than the previous one."""
    rng = np.random.default_rng([rows, length])
    real_BL = np.arange(length) < length - np.arange(rows)[:, None]
    ids_BL = rng.integers(5, 1000, (rows, length)) * real_BL
    arrays = ids_BL, real_BL & (np.arange(length) >= 2), real_BL
    return {name: ids.astype(np.int32) for name, ids in zip(IDS, arrays, strict=True)}


def outputs_of(ids, name="tokens"):
    """Return the outputs of all heads, with names that begin with the head's."""
    outputs = {}
    for head in HEADS:
        function = getattr(exported(head), name)
        tensors = function(*(ids[key] for key in IDS)).items()
        outputs |= {f"{head}_{key}": tensor for key, tensor in tensors}
    return outputs


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the files of a function with all heads, which is converted once."""
    pytest.importorskip("ai_edge_litert")
    pytest.importorskip("tf2onnx")
    outputs_of(ids_of(1, 5))  # models must be built outside the function
    spec = [tf.TensorSpec([None, None], tf.int32, name=name) for name in IDS]

    @tf.function(input_signature=spec)
    def function(*ids):
        return outputs_of(dict(zip(IDS, ids, strict=True)), "unchunked")

    folder = str(tmp_path_factory.mktemp("formats"))
    return litert.write(function, folder) + onnx.write(function, folder)


@pytest.mark.tools
@pytest.mark.parametrize("kind", ["litert", "onnx"])
def test_outputs_equal_those_of_the_saved_model(files, kind):
    path = {"litert": files[0], "onnx": files[2]}[kind]
    run = {"litert": litert.load, "onnx": onnx.load}[kind](path)
    for shape in SHAPES:  # LiteRT resizes its tensors
        ids = ids_of(*shape)
        outputs = run(ids)
        expected = {name: tensor.numpy() for name, tensor in outputs_of(ids).items()}
        assert outputs.keys() == {n for n in expected if expected[n].dtype != object}
        for name, array in outputs.items():
            assert array.dtype == expected[name].dtype
            assert max_difference(array, expected[name]) <= 1e-5, name


@pytest.mark.parametrize("kind", ["litert", "onnx"])
def test_int8_is_smaller_and_close(files, kind):
    number = {"litert": 0, "onnx": 2}[kind]
    sizes = [os.path.getsize(path) for path in files[number : number + 2]]
    assert sizes[1] < 0.95 * sizes[0]
    ids = ids_of(3, 32)
    run = {"litert": litert.load, "onnx": onnx.load}[kind](files[number + 1])
    outputs, expected = run(ids), outputs_of(ids)
    for name in "tagger_logits", "separate_spans_start_logits", "pooled_pairs_logits":
        assert 1e-5 < np.abs(outputs[name] - expected[name]).max() < 0.1, name


def test_onnx_file_is_valid_with_named_axes(files):
    onnx_library = pytest.importorskip("onnx")
    model = onnx_library.load(files[2])
    onnx_library.checker.check_model(model, full_check=True)
    axes = {
        value.name: [axis.dim_param for axis in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    assert axes == {name: ["batch", "length"] for name in IDS}
    assert {(opset.domain, opset.version) for opset in model.opset_import} >= {("", 17)}
    assert {node.domain for node in model.graph.node} == {""}


PAIRS = [("the file", "a list of values"), ("The user's FILES", "caf\u00e9")]


def ids_of_library(path):
    """Return the ids of `PAIRS` by the library `tokenizers`."""
    fast = tokenizers.Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    fast.enable_padding()
    rows = fast.encode_batch(PAIRS)
    arrays = [[getattr(row, n) for row in rows] for n in ("ids", "type_ids")]
    arrays.append([row.attention_mask for row in rows])
    return dict(zip(IDS, np.array(arrays, np.int32), strict=True))


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("litert", {*litert.LITERT_FILES}),
        ("onnx", {*onnx.ONNX_FILES}),
        ("savedmodel", None),
    ],
)
def test_a_model_writes_its_export(name, files, tmp_path, capfd, caplog):
    classifier, path = model("pairs"), str(tmp_path / "out")
    assert type(classifier) is electra_tf.TextClassifier  # sets `export`
    assert classifier.export(path, format=name, verbose=True) == path
    printed = capfd.readouterr()
    differences = re.findall(r"(\S+) differs by \S+ from Keras", printed.out)
    assert "logits" in differences
    if files:  # each output of a file once, for all requests
        named = re.findall(r"(\S+: \S+) differs", printed.out)
        assert len(named) == len({*named})
        assert {*files} <= {
            *re.findall(r"files in out: (.*)", printed.out)[0].split(", ")
        }
    assert "NoneType" not in printed.err
    assert not [record for record in caplog.records if record.name == "root"]
    expected = classifier.predict(PAIRS)
    if name == "savedmodel":
        run = tf.saved_model.load(path).signatures["serving_default"]
        first, second = map(tf.constant, zip(*PAIRS, strict=True))
        outputs = run(text=first, text_b=second)
        files_of_tokenizer = os.path.join(path, ASSETS_EXTRA)
        assert ids_of_library(files_of_tokenizer)["token_ids"].any()
    else:
        common = {"vocab.txt", "vocab.txt.settings.json", "about.json", "labels.txt"}
        assert {*os.listdir(path)} == common | files | {"tokenizer.json"}
        run = {"litert": litert.load, "onnx": onnx.load}[name]
        outputs = run(os.path.join(path, min(files, key=lambda name: "int8" in name)))(
            ids_of_library(path)
        )
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("out", {}, "filepath 'out' exists; pass another, or delete it"),
        ("model.onnx", {"format": "onnx"}, "a local folder"),
        ("s3://bucket/out", {}, "a local folder"),
        ("run [1]", {}, r"without \[ \]"),
        ("a*b\\c", {}, r"without \* \\"),
        ("new", {"format": "openvino"}, "saved_model, litert, onnx"),
    ],
)
def test_exports_that_are_errors(path, options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.makedirs("out/inner")
    with pytest.raises(InputError, match=words):
        model("pairs").export(path, **options)
    assert os.listdir() == ["out"]


@pytest.mark.parametrize("export_format", ["litert", "onnx"])
def test_missing_extra(export_format, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        InputError, match=rf"pip install 'electra_tf\[{export_format}\]'"
    ):
        check_export("out", export_format)


def write(function, folder):
    """Write a function of ids, as the module of a toy format does."""
    path, module = os.path.join(folder, "toy"), tf.Module()
    module.tracked = function.get_concrete_function().variables
    tf.saved_model.save(module, path, function)
    return [path]


def load(path):
    function = tf.saved_model.load(path).signatures["serving_default"]
    tensors = {name: tf.int32 for name in IDS}

    def run(request):
        outputs = function(**{n: tf.constant(request[n], tensors[n]) for n in IDS})
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    return run


def test_a_toy_format_is_a_module_and_a_line_of_the_registry(tmp_path, monkeypatch):
    monkeypatch.setitem(FORMATS_OF_IDS, "toy", ("numpy",))
    module = sys.modules[__name__]
    monkeypatch.setitem(sys.modules, "electra_tf.serving.formats.toy", module)
    lines = []
    spec = exported("classifier")
    export.export(spec, tmp_path / "1", "toy", log=lines.append)
    assert any("toy: logits differs by" in line for line in lines)
    assert (tmp_path / "1" / "toy" / "saved_model.pb").exists()
    monkeypatch.setitem(FORMATS_OF_IDS, "toy", ("no_such_package",))
    with pytest.raises(InputError, match=r"electra_tf\[toy\]"):
        check_export(tmp_path / "2", "toy")
