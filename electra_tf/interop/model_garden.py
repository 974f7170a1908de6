"""Read and write object-based checkpoints of TF Model Garden's BERT encoder.

`tfm.nlp.encoders.build_encoder` of type `bert` makes a functional model, and a
checkpoint of it has a path for each of its layers with weights, in order. Model Garden
computes gelu by tanh.

Source: tf-models-official networks/bert_encoder.py, and checkpoints it wrote.
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.interop import tf1
from electra_tf.interop.model import (
    Network,
    PretrainedModel,
    choose_tokenizer,
    explain_left_out,
    shape_of,
)
from electra_tf.interop.names import VALUE, Prefixes
from electra_tf.interop.tensor_bundle import read_bundle, read_shapes
from electra_tf.text.tokenizer_files import VOCABULARY

_PREFIXES = Prefixes("encoder/", "encoder/")
_LAYER = "encoder/layer_with_weights-"
_NOT_READ = {
    "^save_counter": "the number of checkpoints saved",
    "^global_step": "the number of the step",
    "^model/": "a network of Model Garden's pretrainer beside the encoder",
    r"^optimizer/|/\.OPTIMIZER_SLOT/": "a state of the optimizer",
}


def accepts(path: str) -> bool:
    """Return whether a path is a checkpoint with an item `encoder`."""
    prefix = tf1.find_prefix(path)
    return prefix is not None and f"{_LAYER}0/embeddings{VALUE}" in read_shapes(prefix)


def read(path: str, vocab: str | None = None) -> PretrainedModel:
    """Read the item `encoder`; a pair's generator has a folder of its own."""
    prefix = tf1.find_prefix(path) or path
    tensors = read_bundle(prefix)
    shape = shape_of(tensors, "model_garden", prefix, _PREFIXES)
    network = Network.read("encoder", shape, tensors, "model_garden", prefix, _PREFIXES)
    used = network.names_in("model_garden", _PREFIXES)
    pooler = {f"^{_pooler(network)}": "pooler_transform, which ELECTRA does not have"}
    left_out = explain_left_out(tensors.keys() - used, _NOT_READ | pooler, prefix)
    tokenizer = choose_tokenizer(vocab, os.path.dirname(prefix))
    return PretrainedModel.of_networks([network], tokenizer, path, left_out=left_out)


def _pooler(network: Network) -> str:
    """Return the path of the pooler, the layer behind all others."""
    return f"{_LAYER}{4 + network.has_projection + network.shape.depth}/"


def write(model: PretrainedModel, path: str) -> None:
    """Write each network's encoder, with an identity as pooler."""
    for network, folder in model.folders(path):
        width, pooler = network.shape.width, _pooler(network)
        tensors = {
            **network.to_format("model_garden", _PREFIXES),
            f"{pooler}kernel{VALUE}": np.eye(width, dtype=np.float32),
            f"{pooler}bias{VALUE}": np.zeros(width, np.float32),
        }
        _tree(tensors).save(os.path.join(folder, "encoder.ckpt"))
        if model.tokenizer is not None:
            model.tokenizer.save(os.path.join(folder, VOCABULARY))


def _tree(tensors: Mapping[str, np.ndarray]) -> tf.train.Checkpoint:
    """Return objects whose attributes are the paths of the tensors."""
    root = tf.train.Checkpoint()
    for name, array in tensors.items():
        *path, last = name.removesuffix(VALUE).split("/")
        node: Any = root
        for part in path:
            if not hasattr(node, part):
                setattr(node, part, tf.Module())
            node = getattr(node, part)
        setattr(node, last, tf.Variable(array))
    return root
