"""Read and write preset folders of KerasHub's ELECTRA, which has no heads.

Source: keras_hub electra_backbone.py, electra_tokenizer.py, and the files that their
`save_to_preset` writes.
"""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

from electra_tf.config.model import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.interop.hdf5_file import read_hdf5_file
from electra_tf.interop.model import (
    Network,
    PretrainedModel,
    choose_tokenizer,
    explain_left_out,
    shape_of_config,
)
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import KERAS_HUB_VOCABULARY, TOKENIZER
from electra_tf.training.checkpoint import folder_of
from electra_tf.untrusted_files import read_json

WEIGHTS, CONFIG = "model.weights.h5", "config.json"
_METADATA = "metadata.json"
# KerasHub registers both names; earlier versions, of KerasNLP, wrote the second.
_BACKBONE, _KERAS_NLP = "keras_hub>ElectraBackbone", "keras_nlp>ElectraBackbone"
_SIZES = {
    "depth": "num_layers",
    "width": "hidden_dim",
    "embedding": "embedding_dim",
    "heads": "num_heads",
    "feed_forward": "intermediate_dim",
    "vocabulary_size": "vocab_size",
    "max_positions": "max_sequence_length",
    "segments": "num_segments",
    "dropout": "dropout",
}
_FILES = (WEIGHTS, CONFIG, _METADATA)  # that stand for the folder as a path


def accepts(path: str) -> bool:
    """Return whether a path is a preset folder."""
    return os.path.isfile(os.path.join(folder_of(path, _FILES), WEIGHTS))


def read(path: str, vocab: str | None = None) -> PretrainedModel:
    """Read a folder of `ElectraBackbone.save_to_preset`."""
    path = folder_of(path, _FILES)
    file, config_file = os.path.join(path, WEIGHTS), os.path.join(path, CONFIG)
    config = read_json(config_file)
    if config.get("registered_name") not in (_BACKBONE, _KERAS_NLP):
        name = config.get("registered_name")
        raise InputError(f"{path!r} is a preset of {name!r}, not of ElectraBackbone")
    sizes = config.get("config")
    if not isinstance(sizes, dict):
        raise InputError(f"{config_file} has no `config` of a backbone")
    shape = shape_of_config(
        config_file,
        sizes,
        _SIZES,
        segments=2,
        attention_dropout=sizes.get("dropout", 0.1),
    )
    tensors = read_hdf5_file(file)
    network = Network.read("encoder", shape, tensors, "keras_hub", file)
    left_out = explain_left_out(
        tensors.keys() - network.names_in("keras_hub"),
        {f"^{_pooler(network)}": "pooled_dense, which ELECTRA does not have"},
        file,
    )
    tokenizer = choose_tokenizer(vocab, path)
    return PretrainedModel.of_networks([network], tokenizer, path, left_out=left_out)


def write(model: PretrainedModel, path: str) -> None:
    """Write a preset folder for each network, without heads."""
    for network, folder in model.folders(path):
        pathlib.Path(folder, "assets", "tokenizer").mkdir(parents=True, exist_ok=True)
        weights = network.to_format("keras_hub")
        # An identity in place of the pooler, which ELECTRA does not have.
        pooler, width = _pooler(network), network.shape.width
        tensors = {
            **weights,
            f"{pooler}0": np.eye(width, dtype=np.float32),
            f"{pooler}1": np.zeros(width, np.float32),
        }
        with h5py.File(os.path.join(folder, WEIGHTS), "w") as file:
            for name, array in tensors.items():
                file.create_dataset(name, data=array)
        metadata = {
            "keras_version": "3.0.0",
            "keras_hub_version": "0.20.0",
            "parameter_count": sum(array.size for array in weights.values()),
            "date_saved": "",
            "tasks": [],
        }
        files = {CONFIG: _config(network.shape), _METADATA: metadata}
        if model.tokenizer is not None:
            text = model.tokenizer.vocabulary.text
            pathlib.Path(folder, KERAS_HUB_VOCABULARY).write_bytes(text.encode())
            files[TOKENIZER] = _tokenizer(model.tokenizer)
        for name, value in files.items():
            pathlib.Path(folder, name).write_text(json.dumps(value, indent=4))


def _pooler(network: Network) -> str:
    return f"layers/{'dense_1' if network.has_projection else 'dense'}/vars/"


def _config(shape: EncoderConfig) -> dict[str, Any]:
    sizes = {theirs: getattr(shape, ours) for ours, theirs in _SIZES.items()}
    return _serialized("backbone", "float32", sizes)


def _tokenizer(tokenizer: WordPieceTokenizer) -> dict[str, Any]:
    settings = {
        "config_file": TOKENIZER,
        "vocabulary": None,
        "sequence_length": None,
        "lowercase": tokenizer.settings.lower_case,
        "strip_accents": tokenizer.settings.strips_accents,
        "split": True,
        "suffix_indicator": "##",
        "oov_token": "[UNK]",
        "special_tokens": None,
        "special_tokens_in_strings": False,
    }
    return _serialized("tokenizer", "int32", settings)


def _serialized(kind: str, dtype: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return Keras's description of an ELECTRA backbone or tokenizer."""
    policy = {
        "module": "keras",
        "class_name": "DTypePolicy",
        "config": {"name": dtype},
        "registered_name": None,
    }
    name = f"electra_{kind}"
    return {
        "module": f"keras_hub.src.models.electra.{name}",
        "class_name": f"Electra{kind.capitalize()}",
        "config": {"name": name, "trainable": True, "dtype": policy, **config},
        "registered_name": f"keras_hub>Electra{kind.capitalize()}",
    }
