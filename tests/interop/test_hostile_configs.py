"""Configs and tensors that do not fit an encoder."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
from hostile_files import GOLDEN, refused

from electra_tf.interop.conversion import read_model


def hostile_config(source, folder, changes):
    shutil.copytree(source, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    values = config.get("config", config)
    for name, value in changes.items():
        if value is None:
            del values[name]
        else:
            values[name] = value
    path.write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": -1},
        {"num_hidden_layers": "two"},
        {"num_hidden_layers": True},
        {"hidden_size": 10**6, "num_attention_heads": 10},
        {"num_attention_heads": 7},
        {"num_attention_heads": 0},
        {"layer_norm_eps": "small"},
        {"layer_norm_eps": -1.0},
        {"hidden_dropout_prob": [0.1]},
        {"intermediate_size": 10**30},
        {"hidden_size": {}},
        {"hidden_size": None},
    ],
)
def test_huggingface_configs_of_impossible_sizes_are_refused(changes, tmp_path):
    source = GOLDEN / "huggingface_discriminator"
    folder = hostile_config(source, tmp_path / "model", changes)
    refused(read_model, folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_layers": 10**9},
        {"num_layers": 2.5},
        {"hidden_dim": 10**6},
        {"num_heads": 5},
        {"num_heads": 6},
        {"vocab_size": None},
        {"dropout": "a"},
    ],
)
def test_keras_hub_configs_of_impossible_sizes_are_refused(changes, tmp_path):
    folder = hostile_config(GOLDEN / "keras_hub", tmp_path / "model", changes)
    refused(read_model, folder)


@pytest.mark.parametrize(
    "text", ["[]", "{", "[" * 200_000, '{"model_type": "electra"}']
)
def test_damaged_configs_are_refused(text, tmp_path):
    for name in ("huggingface_discriminator", "keras_hub"):
        folder = tmp_path / name
        shutil.copytree(GOLDEN / name, folder)
        (folder / "config.json").write_text(text)
        refused(read_model, folder)


@pytest.mark.parametrize("shape", [(), (5,), (0, 20), (2, 3, 4)])
def test_tables_of_another_rank_are_refused(shape, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(GOLDEN / "huggingface_discriminator", folder)
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    name = "electra.embeddings.word_embeddings.weight"
    tensors[name] = np.zeros(shape, np.float32)
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    refused(read_model, folder, name)


def test_weights_of_integers_are_refused(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(GOLDEN / "huggingface_discriminator", folder)
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    name = "electra.embeddings_project.weight"
    tensors[name] = tensors[name].astype(np.int8)
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    refused(read_model, folder, name, "int8")
