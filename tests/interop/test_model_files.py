"""A file of a model stands for the model, in each format."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tiny
from conftest import GOLDEN as ALL_GOLDEN

from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.interop.tensor_files import WEIGHTS
from electra_tf.runs.conversion import convert_checkpoint
from electra_tf.training.checkpoint import FILES

GOLDEN = ALL_GOLDEN / "interop"
DISCRIMINATOR = GOLDEN / "huggingface_discriminator"
SHARDS = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of models by format, and one in shards."""
    parent = tmp_path_factory.mktemp("models")
    shutil.copytree(DISCRIMINATOR, parent / "huggingface")
    for name in ("keras_hub", "model_garden"):
        shutil.copytree(GOLDEN / name, parent / name)
    for name in ("electra_tf", "tf1"):
        convert_checkpoint(DISCRIMINATOR, parent / name, name)
    (step,) = (parent / "electra_tf").iterdir()
    step.rename(parent / "step")
    shutil.copytree(DISCRIMINATOR, parent / "shards")
    (parent / "shards" / WEIGHTS[0]).unlink()
    tensors = safetensors.numpy.load_file(DISCRIMINATOR / WEIGHTS[0])
    names = {name: SHARDS[number % 2] for number, name in enumerate(sorted(tensors))}
    for shard in SHARDS:
        part = {name: tensors[name] for name in tensors if names[name] == shard}
        safetensors.numpy.save_file(part, parent / "shards" / shard)
    index = {"metadata": {}, "weight_map": names}
    (parent / "shards" / WEIGHTS[1]).write_text(json.dumps(index))
    return parent


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("huggingface", [WEIGHTS[0], "config.json"]),
        ("shards", [WEIGHTS[1], *SHARDS, "config.json"]),
        ("keras_hub", ["model.weights.h5", "config.json"]),
        ("model_garden", ["checkpoint", "*.index", "*.data-00000-of-00001"]),
        ("tf1", ["checkpoint", "*.index", "*.data-00000-of-00001"]),
        ("step", FILES),
    ],
)
def test_a_file_is_read_as_its_folder(folder, files, models, monkeypatch):
    expected = tiny.networks(str(models / folder)).networks
    monkeypatch.chdir(models / folder)
    for pattern in files:
        (file,) = pathlib.Path().glob(pattern)
        for path in (str(file), str(file.absolute())):
            found = sources.open(path)
            assert found.formats == sources.open(models / folder).formats, path
            assert (found.kind == "checkpoint") == (folder == "step")
        networks = tiny.networks(path).networks
        for one, other in zip(networks, expected, strict=True):
            for name in one.weights:
                np.testing.assert_array_equal(one.weights[name], other.weights[name])
        if folder in ("huggingface", "step", "tf1"):
            shape = tiny.encoder(path).shape
            assert shape == expected[0].shape


def test_a_file_of_weights_is_read_in_place_of_the_preferred_one(tmp_path):
    shutil.copytree(DISCRIMINATOR, tmp_path / "model")
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(b"damaged")
    tiny.networks(str(tmp_path / "model"))
    with pytest.raises(InputError, match=r"pytorch_model\.bin"):
        tiny.networks(str(tmp_path / "model" / "pytorch_model.bin"))


def test_another_file_is_no_model(tmp_path):
    shutil.copytree(DISCRIMINATOR, tmp_path / "model")
    (tmp_path / "model" / "epoch3.bin").write_bytes(b"")
    for name in ("epoch3.bin", "vocab.txt"):
        with pytest.raises(InputError, match=f"{name}', one file of a model"):
            sources.open(tmp_path / "model" / name)


@pytest.mark.parametrize("name", ["../a.safetensors", "/etc/passwd", "..", "gone.bin"])
def test_an_index_names_files_of_its_own_folder(name, models, tmp_path):
    shutil.copytree(models / "shards", tmp_path / "model")
    index = json.dumps({"weight_map": {"electra.x": name}})
    (tmp_path / "model" / WEIGHTS[1]).write_text(index)
    with pytest.raises(InputError, match="index"):
        tiny.networks(str(tmp_path / "model"))
