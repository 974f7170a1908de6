"""A weight format that a layout, a module and a line of the registry declare."""

import dataclasses
import json
import os
import pathlib

import numpy as np
import pytest
import safetensors.numpy

import electra_tf
from electra_tf import sources
from electra_tf.config.model import EncoderConfig
from electra_tf.interop import formats
from electra_tf.interop.model import Network, PretrainedModel, choose_tokenizer
from electra_tf.interop.names import LAYOUTS, Layout
from electra_tf.runs.conversion import convert_checkpoint
from tests.conftest import GOLDEN, failure

SOURCE = GOLDEN / "interop" / "huggingface_discriminator"
FILE, SIZES = "toy.npz", "toy.json"


def accepts(path):
    return os.path.isfile(os.path.join(path, FILE))


def read(path, vocab=None, options=None):
    with np.load(os.path.join(path, FILE)) as file:
        tensors = dict(file)
    sizes = json.loads(pathlib.Path(path, SIZES).read_text())
    shape = EncoderConfig(**sizes)
    network = Network.read("discriminator", shape, tensors, "toy", path)
    tokenizer = choose_tokenizer(vocab, path)
    return PretrainedModel.of_networks([network], tokenizer, path)


def write(model, path):
    os.makedirs(path, exist_ok=True)
    np.savez(os.path.join(path, FILE), **model.main.to_format("toy"))
    sizes = json.dumps(dataclasses.asdict(model.main.shape))
    pathlib.Path(path, SIZES).write_text(sizes)
    model.tokenizer.save(pathlib.Path(path, "vocab.txt"))


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(LAYOUTS, "toy", Layout("tf1", transposed=True))
    monkeypatch.setitem(formats.MODULES, "toy", __name__)


def test_it_is_written_found_and_read(tmp_path):
    convert_checkpoint(SOURCE, tmp_path / "theirs", "toy")
    original = safetensors.numpy.load_file(SOURCE / "model.safetensors")
    with np.load(tmp_path / "theirs" / FILE) as file:
        for theirs, name in (
            ("embeddings_project.weight", "embeddings_project/kernel"),
            (
                "encoder.layer.1.output.dense.weight",
                "encoder/layer_1/output/dense/kernel",
            ),
        ):
            np.testing.assert_array_equal(file[name], original[f"electra.{theirs}"])
    assert sources.open_source(tmp_path / "theirs").format == "toy"
    one, other = map(electra_tf.Encoder.from_preset, (SOURCE, tmp_path / "theirs"))
    for before, after in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(before, after)
    convert_checkpoint(tmp_path / "theirs", tmp_path / "back", "huggingface")
    back = safetensors.numpy.load_file(tmp_path / "back" / "model.safetensors")
    assert back.keys() == original.keys() - {"electra.embeddings.position_ids"}
    for name, array in back.items():
        np.testing.assert_array_equal(array, original[name])


def test_a_head_that_it_lacks_is_refused(here, tmp_path):
    classifier = GOLDEN / "interop" / "huggingface_classifier"
    with pytest.raises(electra_tf.InputError, match="--drop_head"):
        convert_checkpoint(classifier, tmp_path / "out", "toy")
    assert "toy" in formats.names()
    message = failure(here("convert", f"--from={SOURCE}", "--to=x", "--format=tow"))
    assert "--format" in message
