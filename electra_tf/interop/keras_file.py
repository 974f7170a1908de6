"""Read a fine-tuned model of this package from its .keras file, without Keras.

The file is a zip of a config and of weights in HDF5. The config decides the size of
each array, which is compared with the file before it is read.
"""

import contextlib
import dataclasses
import json
import math
import os
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import numpy as np
import pydantic

from electra_tf.config.data import TokenizationConfig
from electra_tf.config.model import EncoderConfig
from electra_tf.errors import InputError, report_damage
from electra_tf.interop.network import COUNTS, Network
from electra_tf.interop.pretrained import PretrainedModel
from electra_tf.interop.task_heads import MODEL, TaskHead, kind_of
from electra_tf.text.json_file import read_json
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary

CONFIG, WEIGHTS = "config.json", "model.weights.h5"
ORIGIN = "source.json"
"""File beside a converted model: config and dtypes of the other library."""
SETTINGS = "config.yaml"
"""Beside a model that finetune wrote; its first line names the task."""
TRAINING_ROWS = "training_rows.npy"
"""Beside it: a hash of the texts of each training example."""
# The released code's names of tasks.
_TF1_NAMES = {
    "sst2": "sst",
    "stsb": "sts",
    "chunking": "chunk",
    "squad1": "squadv1",
    "squad2": "squad",
}
_MAX_LINE = 1 << 20  # characters of the first line of the settings
_MAX_CONFIG = 2**24  # bytes; most of them are the vocabulary
_MAX_DEPTH = 10_000
_MAX_RATIO = 20  # of the size of all parts and the size of the file
_FLOAT = 4  # bytes
_VARIABLES = {
    **{"kernel": 0, "bias": 1, "gamma": 0, "beta": 1},
    **{"word_embeddings": 0, "segment_embeddings": 1, "position_embeddings": 2},
}
_REMEDY = "Copy it again, or train it again"


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
        with open(_beside(path, SETTINGS), encoding="utf-8") as file:
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
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    return os.path.join(folder, name)


def report_damaged_model(
    path: str, *kinds: type[Exception]
) -> contextlib.AbstractContextManager[None]:
    """Return a context that raises an InputError where a .keras file is damaged."""
    required = f"{path} must be a complete model that finetune wrote"
    return report_damage(required, _REMEDY, *kinds)


def too_large(path: str, needed: int, stored: int) -> InputError:
    """Return the error of a config that implies more weights than the file has."""
    return InputError(
        f"{path} must have the weights of the model in its {CONFIG}",
        f"{stored:,} bytes for a model of {needed:,}",
        _REMEDY,
    )


def read_config(path: str) -> dict[str, Any]:
    """Return the config of a .keras file, if the file has the weights of its model."""
    with report_damaged_model(path):
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist()}
            stored = sum(info.compress_size for info in archive.infolist())
            if sum(sizes.values()) > _MAX_RATIO * stored + _MAX_CONFIG:
                raise ValueError("it expands to more than 20 times its size")
            if sizes[CONFIG] > _MAX_CONFIG:
                raise ValueError(f"{CONFIG} of {sizes[CONFIG]:,} bytes")
            config = json.loads(archive.read(CONFIG))
        needed = _model_bytes(config)
    if needed > sizes[WEIGHTS]:
        raise too_large(path, needed, sizes[WEIGHTS])
    return config


def class_name(config: Mapping[str, Any]) -> str:
    """Return the registered name of a model's class, or its own name."""
    return str(config.get("registered_name") or config["class_name"])


def _model_bytes(config: dict[str, Any]) -> int:
    """Return the bytes of a model of texts; 0 for a model of another kind."""
    shape = config["config"].get("shape")
    if config["class_name"] is None or not isinstance(shape, dict):
        return 0
    head = _head(config["class_name"], config["config"])
    return _FLOAT * sum(map(math.prod, _shapes(_shape(shape), head).values()))


def read(path: str) -> PretrainedModel:
    """Read a fine-tuned model of this package as a network.

    A model of a user's own class is read without its head.
    """
    file = model_file(path)
    config = read_config(file)
    name = class_name(config).removeprefix("electra_tf>")
    arguments, task = config["config"], stored_task(path) or ""
    with report_damaged_model(file):
        head, shape = _head(name, arguments), _shape(arguments["shape"])
        tokenizer = saved_tokenizer(arguments)
        weights = dict(_weights(file, _shapes(shape, head)))
    if head is not None:
        head = dataclasses.replace(head, name=_TF1_NAMES.get(task, task))
    origin = os.path.join(os.path.dirname(file), ORIGIN)
    known = read_json(origin) if os.path.isfile(origin) else {}
    role = head.role if head else "encoder"
    network = Network(role, shape, weights, head, source=path).to_ours(
        config=known.get("config", {}), dtypes=known.get("dtypes", {})
    )
    return PretrainedModel.of_networks(
        [network],
        tokenizer,
        path,
        left_out={} if head else {f"task_specific/{name}": "no head of this package"},
        run={"facts": {"Task": task} if task else {}},
    )


def saved_tokenizer(arguments: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer in the config of a saved model."""
    settings = TokenizationConfig.complete(arguments["tokenization"])
    vocabulary = Vocabulary.parse(arguments["vocabulary"], "the saved model")
    return Tokenizer(vocabulary, TokenizationConfig(**settings))


def _head(name: str, arguments: Mapping[str, Any]) -> TaskHead | None:
    """Return the head of a class of this package; None: another class."""
    kind = kind_of(name)
    return kind and TaskHead.of_model(kind, arguments)


def _shape(sizes: Any) -> EncoderConfig:
    try:
        shape = EncoderConfig(**sizes)
    except pydantic.ValidationError as error:
        raise ValueError(f"shape: {error.errors()[0]['msg']}") from error
    if shape.depth > _MAX_DEPTH:
        raise ValueError(f"a depth of {shape.depth}")
    counts = {name: getattr(shape, name) for name in COUNTS}
    if min(counts.values()) < 1 or shape.width % shape.heads:
        raise ValueError(f"shape: {counts} are not the sizes of an encoder")
    return shape


def _shapes(shape: EncoderConfig, head: TaskHead | None) -> dict[str, tuple[int, ...]]:
    return Network(head.role if head else "encoder", shape, {}, head).shapes


def _weights(
    path: str, shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, np.ndarray]]:
    with open_weights(path) as file:
        for name, shape in shapes.items():
            dataset = read_item(file, *_place(name))
            if dataset.shape != shape:
                raise ValueError(f"{name} of {dataset.shape}, not {shape}")
            yield name, np.asarray(dataset[()], np.float32)


@contextlib.contextmanager
def extracted_weights(path: str) -> Iterator[str]:
    """Extract the HDF5 file in a .keras file, and yield its path.

    HDF5 reads back and forth, and a step back within an archive reads its part again.
    """
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
        yield archive.extract(WEIGHTS, folder)


@contextlib.contextmanager
def open_weights(path: str) -> Iterator[h5py.File]:
    """Open the weights of a .keras file."""
    with extracted_weights(path) as part, h5py.File(part, "r") as file:
        yield file


def _place(name: str) -> list[str]:
    """Return the names of a weight's groups and dataset."""
    path, variable = name.rsplit("/", 1)
    path = re.sub(r"/output$", "/output_dense", path)
    path = re.sub(r"/layer_(\d+)", r"/blocks/block_\1", path).replace(
        "block_0/", "block/"
    )
    return [*path.split("/"), "vars", str(_VARIABLES[variable])]


def read_item(group: h5py.Group, *names: str) -> Any:
    """Return a group or a dataset that lies in the file itself."""
    for name in names:
        item = group[name]
        is_link = not isinstance(group.get(name, getlink=True), h5py.HardLink)
        is_outside = getattr(item, "is_virtual", False) or getattr(
            item, "external", None
        )
        if is_link or is_outside:
            raise ValueError(f"{name} in another file")
        group = item
    return group
