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

from electra_tf.config.pretraining import EncoderConfig, TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.interop.network import (
    ForeignNetwork,
    Prefixes,
    from_foreign,
    to_foreign,
)
from electra_tf.interop.pretrained import LeftOut, PretrainedModel, Source
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary

CONFIG, TOKENIZER, WEIGHTS = "config.json", "tokenizer.json", "model.weights.h5"
_VOCABULARY = os.path.join("assets", "tokenizer", "vocabulary.txt")
_BACKBONE = "keras_hub>ElectraBackbone"
_EPSILON = 1e-12  # of KerasHub's layer norms, which have no setting


def accepts(path: str) -> bool:
    """Return whether a path is a preset folder.

    Args:
        path: Any path.
    """
    return os.path.isfile(os.path.join(path, WEIGHTS))


def read(path: str) -> PretrainedModel:
    """Read a preset folder.

    Args:
        path: A folder of `ElectraBackbone.save_to_preset`.

    Returns:
        An encoder.

    Raises:
        InputError: The folder has another class of model, or is damaged.
    """
    config = _read_json(os.path.join(path, CONFIG))
    if config.get("registered_name") != _BACKBONE:
        raise InputError(
            "A KerasHub preset must be of ElectraBackbone",
            f"{path!r}: {config.get('registered_name')!r}",
            "Save the backbone of an ELECTRA model with save_to_preset",
        )
    values = config["config"]
    shape = EncoderConfig(
        depth=values["num_layers"],
        width=values["hidden_dim"],
        embedding=values["embedding_dim"],
        heads=values["num_heads"],
        feed_forward=values["intermediate_dim"],
        vocabulary_size=values["vocab_size"],
        max_positions=values["max_sequence_length"],
        segments=values.get("num_segments", 2),
        dropout=float(values.get("dropout", 0.1)),
        attention_dropout=float(values.get("dropout", 0.1)),
        layer_norm_epsilon=_EPSILON,
    )
    file = os.path.join(path, WEIGHTS)
    tensors = _read_h5(file)
    foreign = ForeignNetwork(
        "keras_hub", "encoder", shape, tensors, Prefixes(), "gelu_tanh", file
    )
    network = from_foreign(foreign)
    left_out: LeftOut = {}
    pooler = _pooler(foreign.has_projection)
    for name in sorted(tensors.keys() - {theirs for _, _, theirs in foreign.rows()}):
        if not name.startswith(pooler):
            raise InputError(
                "Every tensor of a preset must be known", f"{file}: {name!r}",
                "Save the backbone alone",
            )  # fmt: skip
        left_out[name] = "pooled_dense, which ELECTRA has not"
    source = Source(network, foreign, left_out)
    return PretrainedModel.of_sources([source], _read_tokenizer(path), path)


def _read_h5(path: str) -> dict[str, np.ndarray]:
    tensors: dict[str, np.ndarray] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            tensors[name] = item[()]

    try:
        with h5py.File(path) as file:
            # Follows hard links only: no link leads to another file.
            file.visititems(visit)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise InputError(
            f"{path!r} must be a whole HDF5 file", str(error), "Copy or save it again"
        ) from error
    for name, array in tensors.items():
        if not np.isfinite(array).all():
            raise InputError(
                "Weights must be finite numbers",
                f"{path}: {name!r} has NaN or infinite values",
                "Use weights from before training diverged",
            )
    return tensors


def _read_tokenizer(folder: str) -> Tokenizer | None:
    path = os.path.join(folder, _VOCABULARY)
    if not os.path.isfile(path):
        return None
    stored = _read_json(os.path.join(folder, TOKENIZER)).get("config", {})
    settings = TokenizationConfig(
        lower_case=bool(stored.get("lowercase", False)),
        strip_accents="always" if stored.get("strip_accents") else "lowered",
    )
    return Tokenizer(Vocabulary.read(path), settings)


def write(model: PretrainedModel, path: str) -> list[ForeignNetwork]:
    """Write a preset folder for each network, without heads.

    Args:
        model: One network or a pair, whose generator goes to the folder `generator`.
        path: A folder.

    Returns:
        The networks as they were written, read again from the files.
    """
    written = []
    for number, network in enumerate(model.networks):
        folder = os.path.join(path, "generator") if number else path
        pathlib.Path(folder, "assets", "tokenizer").mkdir(parents=True, exist_ok=True)
        foreign = to_foreign(network.without_head(), "keras_hub", Prefixes())
        _write_h5(foreign, os.path.join(folder, WEIGHTS))
        count = sum(array.size for array in foreign.tensors.values())
        _write_json(os.path.join(folder, CONFIG), _config(network.shape))
        _write_json(
            os.path.join(folder, "metadata.json"),
            {"keras_version": "3.0.0", "keras_hub_version": "0.20.0",
             "parameter_count": count, "date_saved": "", "tasks": []},
        )  # fmt: skip
        if model.tokenizer is not None:
            text = model.tokenizer.vocabulary.text
            pathlib.Path(folder, _VOCABULARY).write_bytes(text.encode())
            _write_json(os.path.join(folder, TOKENIZER), _tokenizer(model.tokenizer))
        written += [source.foreign for source in read(folder).sources]
    return written


def _pooler(has_projection: bool) -> str:
    return f"layers/{'dense_1' if has_projection else 'dense'}/vars/"


def _write_h5(foreign: ForeignNetwork, path: str) -> None:
    """Write the weights, and an identity as `pooled_dense`, which ELECTRA has not."""
    pooler, width = _pooler(foreign.has_projection), foreign.shape.width
    identity = {
        f"{pooler}0": np.eye(width, dtype=np.float32),
        f"{pooler}1": np.zeros(width, np.float32),
    }
    with h5py.File(path, "w") as file:
        for name, array in {**foreign.tensors, **identity}.items():
            file.create_dataset(name, data=array)


def _config(shape: EncoderConfig) -> dict[str, Any]:
    return {
        "module": "keras_hub.src.models.electra.electra_backbone",
        "class_name": "ElectraBackbone",
        "config": {
            "name": "electra_backbone",
            "trainable": True,
            "dtype": _dtype("float32"),
            "vocab_size": shape.vocabulary_size,
            "num_layers": shape.depth,
            "num_heads": shape.heads,
            "hidden_dim": shape.width,
            "embedding_dim": shape.embedding,
            "intermediate_dim": shape.feed_forward,
            "dropout": shape.dropout,
            "max_sequence_length": shape.max_positions,
            "num_segments": shape.segments,
        },
        "registered_name": _BACKBONE,
    }


def _tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    settings = tokenizer.settings
    return {
        "module": "keras_hub.src.models.electra.electra_tokenizer",
        "class_name": "ElectraTokenizer",
        "config": {
            "name": "electra_tokenizer",
            "trainable": True,
            "dtype": _dtype("int32"),
            "config_file": TOKENIZER,
            "vocabulary": None,
            "sequence_length": None,
            "lowercase": settings.lower_case,
            "strip_accents": settings.strips_accents,
            "split": True,
            "suffix_indicator": "##",
            "oov_token": "[UNK]",
            "special_tokens": None,
            "special_tokens_in_strings": False,
        },
        "registered_name": "keras_hub>ElectraTokenizer",
    }


def _dtype(name: str) -> dict[str, Any]:
    return {
        "module": "keras",
        "class_name": "DTypePolicy",
        "config": {"name": name},
        "registered_name": None,
    }


def _read_json(path: str) -> Mapping[str, Any]:
    try:
        return json.loads(pathlib.Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path!r} must be a JSON object", str(error), "Copy or save it again"
        ) from error


def _write_json(path: str, value: Mapping[str, Any]) -> None:
    pathlib.Path(path).write_text(json.dumps(value, indent=4), encoding="utf-8")
