"""Test `export`: the version that it writes, and that it is complete or absent."""

import json
import os
import pathlib
import re
import resource
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import electra_tf
from electra_tf.errors import InputError
from electra_tf.runs import exporting
from electra_tf.serving import export
from electra_tf.serving.export import ABOUT, ASSETS_EXTRA, WARMUP
from electra_tf.serving.export_options import IDS, RequestLimits
from electra_tf.serving.served_tasks import task_export
from electra_tf.tasks.classifier import TextClassifier
from electra_tf.tasks.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary
from tests import tiny
from tests.conftest import failure
from tests.serving.exports import LABELS, MODELS, exported, graph_operations, model


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finetuned")
    model("classifier").save(folder / "model.keras")
    return folder


@pytest.fixture(scope="module")
def version(finetuned, tmp_path_factory):
    """Return the version that an export wrote, and its log."""
    output, lines = tmp_path_factory.mktemp("served"), []
    spec = exporting.load_exportable(str(finetuned))
    export.export(spec, output / "3", log=lines.append)
    return output / "3", "\n".join(lines)


def test_a_version_is_written_and_validated(version, here, finetuned):
    path, stdout = version
    assert re.search(r"serving_default: logits differs by \S+ from Keras", stdout)
    (files,) = re.findall(r"files in 3: (.*)", stdout)
    assert {*files.split(", ")} == {
        str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()
    }
    assert os.listdir(path.parent) == ["3"]
    before = os.path.getmtime(path / "saved_model.pb")
    again = here(
        "export", f"--model={finetuned}", f"--output={path.parent}", "--version=3"
    )
    assert "--version" in failure(again)
    assert os.path.getmtime(path / "saved_model.pb") == before


def test_a_saved_model_has_the_outputs_of_the_model(version):
    signatures = tf.saved_model.load(str(version[0])).signatures
    assert {
        name: sorted(signature.structured_input_signature[1])
        for name, signature in signatures.items()
    } == {"serving_default": ["text"], "tokens": sorted(IDS), "class_names": []}
    names = signatures["class_names"]()["class_names"].numpy()
    assert [name.decode() for name in names] == list(LABELS)
    texts = ["the file", ""]
    outputs = signatures["serving_default"](text=tf.constant(texts))
    assert set(outputs) == {"probabilities", "logits", "label", "pieces_cut"}
    expected = model("classifier").predict(texts)
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
    softmax = tf.nn.softmax(outputs["logits"])
    np.testing.assert_allclose(softmax, expected, atol=1e-5)
    labels = [LABELS[best].encode() for best in expected.argmax(axis=1)]
    assert outputs["label"].numpy().tolist() == labels


@pytest.mark.runs
def test_a_fresh_process_runs_a_saved_model_without_this_package(version):
    program = (
        "import sys, tensorflow as tf, tensorflow_text;"
        "run = tf.saved_model.load(sys.argv[1]).signatures['serving_default'];"
        "print(run(text=tf.constant(['the file']))['probabilities'].numpy().tolist());"
        "assert 'electra_tf' not in sys.modules"
    )
    command = [sys.executable, "-c", program, str(version[0])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = model("classifier").predict(["the file"])
    printed = json.loads(done.stdout.splitlines()[-1])
    np.testing.assert_allclose(printed, expected, atol=1e-5)


def test_a_saved_model_has_files_for_clients(version):
    extra = version[0] / ASSETS_EXTRA
    about = json.loads((extra / ABOUT).read_text())
    assert (about["kind"], about["labels"]) == ("classifier", list(LABELS))
    assert (extra / "labels.txt").read_text().split() == list(LABELS)
    vocabulary = Vocabulary.read(extra / "vocab.txt")
    tokenizer = Tokenizer(vocabulary, exported("classifier").tokenizer.settings)
    tokenizer.check_identity(about["tokenization"], "the export")
    read = Tokenizer.read(extra / "tokenizer.json")
    assert read.identity() == tokenizer.identity()


def warmup_requests(folder):
    """Yield signature and arrays of each warm-up request."""
    from tensorflow_serving.apis import prediction_log_pb2

    for record in tf.data.TFRecordDataset(str(folder / WARMUP)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        assert request.model_spec.name == "model"
        arrays = {name: tf.make_ndarray(of) for name, of in request.inputs.items()}
        yield request.model_spec.signature_name, arrays


def test_warmup_requests_are_those_of_tf_serving(version):
    lengths = {"serving_default": [], "tokens": []}
    for name, arrays in warmup_requests(version[0]):
        if name == "serving_default":
            (texts,) = arrays.values()
            assert texts.dtype == object
            lengths[name] += [len(text.split()) for text in texts]
        else:
            assert {array.dtype for array in arrays.values()} == {np.dtype(np.int32)}
            lengths[name].append(arrays["token_ids"].shape[1])
    assert all({16, 32} <= set(of) for of in lengths.values())


@pytest.mark.parametrize("kind", ["classifier", "tagger", "answerer"])
def test_only_operations_of_stock_tf_serving(kind):
    function = exported(kind).text["serving_default"]
    operations = {operation for _, operation in graph_operations(function)}
    known = set(tf.raw_ops.__dict__) | {"_Arg", "_Retval"}
    calls = {"PartitionedCall", "StatefulPartitionedCall"}
    assert operations - known - calls == {"WordpieceTokenizeWithOffsets"}
    assert not {"PyFunc", "EagerPyFunc", "StringLower"} & operations
    library = function.get_concrete_function().graph.as_graph_def().library
    assert not any(one.attr["_XlaMustCompile"].b for one in library.function)


@pytest.mark.parametrize(
    ("actual", "expected", "difference"),
    [
        ([0.5, 1.0], [0.25, 1.0], 0.25),
        ([110.0], [100.0], 0.1),  # relative to values above 1
        ([[0.0], [0.0]], [0.0, 0.0], np.inf),
        ([np.nan], [0.0], np.inf),
        (np.zeros([0, 3]), np.zeros([0, 3]), 0),
        (np.array([b"a"], object), np.array([b"a"], object), 0),
        (np.array([b"a"], object), np.array([b"b"], object), np.inf),
    ],
)
def test_max_difference(actual, expected, difference):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert export.max_difference(actual, expected) == pytest.approx(difference)


def test_an_export_with_other_outputs_is_deleted(tmp_path):
    classifier = MODELS["classifier"]()
    served = task_export(classifier)  # with a copy of the weights of the layers
    bias = classifier.encoder.blocks[0].output_dense.bias
    bias.assign(bias + np.arange(16))
    with pytest.raises(InputError, match=r"serving_default: \w+ differs by "):
        export.export(served, tmp_path / "out" / "1", signatures=("text",))
    assert not (tmp_path / "out").exists()


def test_an_export_that_fails_when_it_is_called_is_deleted(tmp_path):
    limits, output = RequestLimits(bytes=10), tmp_path / "out"
    with pytest.raises(InputError, match=r"serving_default must .* at most 10 bytes"):
        electra_tf.export_saved_model(model("classifier"), output, limits=limits)
    assert not output.exists()


def test_warmup_requests_are_within_small_limits(tmp_path):
    classifier = TextClassifier(tiny.start(), LABELS, tiny.settings(data_max_length=64))
    limits = RequestLimits(rows=1, bytes=100)  # 50 words of one letter
    folder = electra_tf.export_saved_model(classifier, tmp_path, limits=limits)
    signatures = tf.saved_model.load(folder).signatures
    lengths = {"serving_default": set(), "tokens": set()}
    for name, arrays in warmup_requests(pathlib.Path(folder)):
        signatures[name](**{key: tf.constant(of) for key, of in arrays.items()})
        [first, *_] = arrays.values()
        lengths[name].add(first.size if first.ndim == 2 else len(first[0].split()))
    assert max(lengths["serving_default"]) == 16
    assert {16, 64} <= lengths["tokens"]


def test_full_disk_leaves_no_export(here, finetuned, tmp_path, monkeypatch):
    write = export.export

    def write_to_a_full_disk(*arguments):
        # A limit of the size of files has the effect of a full disk.
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
        try:
            return write(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    monkeypatch.setattr(export, "export", write_to_a_full_disk)
    output = tmp_path / "served"
    arguments = [f"--model={finetuned}", f"--output={output}", "--signatures=tokens"]
    message = failure(here("export", *arguments))
    assert repr(str(output)) in message
    assert "nothing was exported" in message
    assert not output.exists()


def test_load_exportable_distinguishes_finetuned_models(finetuned, tmp_path):
    for path in (finetuned, finetuned / "model.keras"):
        spec = exporting.load_exportable(str(path))
        assert (spec.kind, spec.metadata["max_length"]) == ("classifier", 32)
    (tmp_path / "trial_1").mkdir()
    for call, message in (
        (lambda: exporting.load_exportable(str(tmp_path)), r"has no model\.keras yet"),
        (
            lambda: exporting.load_exportable(str(finetuned), max_length=64),
            "--max_length=64",
        ),
        (
            lambda: exporting.export_saved_model(
                model("classifier"), tmp_path / "out", max_length=64
            ),
            "max_length=64.*a TextClassifier",
        ),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_invalid_flags(here, finetuned, tmp_path):
    message = failure(here("export"))
    assert "--model" in message
    assert "--output" in message
    output = f"--output={tmp_path}/out"
    assert "checkpoint" in failure(here("export", f"--model={tmp_path}", output))
    brackets = here("export", f"--model={finetuned}", f"--output={tmp_path}/run [1]")
    assert "without [ ]" in failure(brackets)
    result = here("export", f"--model={finetuned}", output, "--output_kind=encoder")
    assert "--output_kind=encoder" in failure(result)
    assert not (tmp_path / "out").exists()
