"""Read a fine-tuned model of this package from its .keras file, without Keras.

The file is a zip of a config and of weights in HDF5, which Keras writes.
"""

import contextlib
import dataclasses
import io
import json
import math
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import numpy as np

from electra_tf.config.data import TokenizationConfig
from electra_tf.errors import InputError, report_damage
from electra_tf.interop import MODEL
from electra_tf.interop.hdf5_file import is_stored_in
from electra_tf.interop.heads import TaskHead, role_of
from electra_tf.interop.model import (
    Network,
    PretrainedModel,
    read_shape,
)
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import Vocabulary

_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
FINETUNING_CONFIG = "config.yaml"  # beside a model of finetune; line 1 names the task
TRAINING_ROWS = "training_rows.npy"  # beside it: hashes of the training examples
_MAX_LINE = 1 << 20  # characters of the first line of the settings
_MAX_DEPTH = 10_000  # layers of a config, each of which takes memory
_BYTES = 4  # of a float
_VARIABLES = {
    **{"kernel": 0, "bias": 1, "gamma": 0, "beta": 1},
    **{"word_embeddings": 0, "segment_embeddings": 1, "position_embeddings": 2},
}


def model_file(path: str) -> str:
    """Return the .keras file of a path, which is the file or its folder."""
    return os.path.join(path, MODEL) if os.path.isdir(path) else path


def accepts(path: str) -> bool:
    """Return whether a path is an output of finetune, or a .keras file."""
    file = model_file(path)
    return file.endswith(".keras") and os.path.isfile(file)


def stored_task(path: str) -> str | None:
    """Return the name of the task that a model was trained on; None: unknown."""
    try:
        with open(_beside(path, FINETUNING_CONFIG), encoding="utf-8") as file:
            return json.loads(file.readline(_MAX_LINE).strip("#"))["task"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def training_rows(path: str) -> np.ndarray | None:
    """Return the hashes of the texts that a model was trained on; None: unknown."""
    try:
        rows = np.load(_beside(path, TRAINING_ROWS), mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    return rows if isinstance(rows, np.ndarray) and rows.dtype == np.uint64 else None


def _beside(path: str, name: str) -> str:
    return os.path.join(os.path.dirname(model_file(path)), name)


def checked_config(path: str) -> dict[str, Any]:
    """Return the config of a file, if its weights are as many as those of its model."""
    with zipfile.ZipFile(path) as archive:
        # Keras does not compress; what is read is never larger than the file.
        if sum(e.file_size for e in archive.infolist()) > os.path.getsize(path):
            raise ValueError("entries of more bytes than the file has")
        config = json.loads(archive.read(_CONFIG))
        stored = archive.getinfo(_WEIGHTS).file_size
    # Keras models of other classes have no `shape` to count weights by.
    if isinstance(config["config"].get("shape"), dict):
        shapes = _network(config, path).shapes
        needed = _BYTES * sum(map(math.prod, shapes.values()))
        if needed > stored:
            raise ValueError(f"{stored:,} bytes for a model of {needed:,}")
    return config


@contextlib.contextmanager
def report_damaged_model(path: str) -> Iterator[None]:
    """Raise an InputError where a .keras file is damaged, or of unknown classes."""
    with report_damage(path, Exception):  # Keras raises errors of many classes
        try:
            yield
        except (TypeError, ValueError) as error:
            if "Could not locate" not in str(error):
                raise
            raise InputError(
                f"{path} has a class that is not known; if it is your own, import its "
                f"module first: {error!s:.300}"
            ) from error


def read(path: str, _vocab: str | None = None) -> PretrainedModel:
    """Read a fine-tuned model as a network, without the head of a user's own class."""
    file = model_file(path)
    with report_damaged_model(file):
        config = checked_config(file)
        network = _network(config, file)
        tokenizer = saved_tokenizer(config["config"])
        weights = dict(_weights(file, network.shapes))
    network = dataclasses.replace(network, weights=weights)
    lost = {f"task_specific/{_class_name(config)}": "no head of this package"}
    return PretrainedModel.of_networks(
        [network], tokenizer, path, left_out={} if network.head else lost
    )


def saved_tokenizer(arguments: Mapping[str, Any]) -> WordPieceTokenizer:
    """Return the tokenizer in the config of a saved model."""
    settings = TokenizationConfig.complete(arguments["tokenization"])
    vocabulary = Vocabulary.parse(arguments["vocabulary"], "the saved model")
    return WordPieceTokenizer(vocabulary, TokenizationConfig(**settings))


def _class_name(config: Mapping[str, Any]) -> str:
    name = config.get("registered_name") or config["class_name"]
    return str(name).removeprefix("electra_tf>")


def _network(config: Mapping[str, Any], path: str) -> Network:
    """Return the network of a saved model's config, without weights."""
    arguments, role = config["config"], role_of(_class_name(config))
    head = role and TaskHead.of_model(role, arguments)
    shape = read_shape(path, **arguments["shape"])
    if shape.depth > _MAX_DEPTH:
        raise InputError(
            f"{path} must have the sizes of an encoder, not depth {shape.depth}"
        )
    return Network(head.role if head else "encoder", shape, {}, head)


def _weights(
    path: str, shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, np.ndarray]]:
    with zipfile.ZipFile(path) as archive:
        # HDF5 reads back and forth, which is slow within an archive.
        content = io.BytesIO(archive.read(_WEIGHTS))
    with h5py.File(content, "r") as file:
        for name, shape in shapes.items():
            dataset = file[_place(name)]
            if dataset.shape != shape or not is_stored_in(dataset, file):
                raise ValueError(f"{name} of {dataset.shape}, not {shape} in the file")
            yield name, np.asarray(dataset[()], np.float32)


def _place(name: str) -> str:
    """Return the path of a weight in the file."""
    path, variable = name.rsplit("/", 1)
    path = re.sub(r"/output$", "/output_dense", path)
    path = re.sub(r"/layer_(\d+)", r"/blocks/block_\1", path)
    return f"{path.replace('block_0/', 'block/')}/vars/{_VARIABLES[variable]}"
