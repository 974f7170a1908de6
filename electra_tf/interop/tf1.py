"""Read pre-trained TensorFlow 1 checkpoints of google-research/electra, and BERT's.

Source: google-research/electra model/modeling.py and model/optimization.py.
"""

import glob
import os
import re
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError, format_list
from electra_tf.interop.network import Network, Prefixes, Role, read_shape, table_shape
from electra_tf.interop.pretrained import (
    PretrainedModel,
    choose_tokenizer,
    explain_left_out,
)
from electra_tf.interop.tensor_bundle import read_bundle, read_shapes
from electra_tf.interop.tensor_files import check_finite
from electra_tf.training.checkpoint import folder_of

_STEP = "global_step"
_NOT_READ = {
    "^task_specific/": "a task's head; only the encoder is read",
    "^generator_predictions/temperature": "a constant of the released checkpoints",
    "^cls/": "a head of BERT; only its encoder is read",
    "^bert/pooler/": "BERT's pooler, which ELECTRA has not",
    "^beta[12]_power": "a state of TensorFlow's Adam",
    f"^{_STEP}": "the number of the step",
}
_IS_SLOT = re.compile("/adam_[mv]$")
_WORDS = "embeddings/word_embeddings"


def find_prefix(path: str) -> str | None:
    """Return the prefix of a TensorFlow 1 checkpoint's files, or None."""
    path = folder_of(path, ("checkpoint",))
    if os.path.isdir(path):
        path = _newest(path) or path
    path = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    return path if os.path.isfile(f"{path}.index") else None


def _newest(folder: str) -> str | None:
    """Return the prefix that a folder's `checkpoint` file names, or the only one.

    Of a path in the file only the last part counts: a folder names files of its own.
    """
    try:
        state = tf.train.get_checkpoint_state(folder)
    except UnicodeDecodeError:
        state = None
    if state is not None:
        name = os.path.basename(state.model_checkpoint_path)
        if os.path.isfile(os.path.join(folder, f"{name}.index")):
            return os.path.join(folder, name)
    found = glob.glob(f"{glob.escape(folder)}/*.index")
    return found[0] if len(found) == 1 else None


def accepts(path: str) -> bool:
    """Return whether a path is a checkpoint of ELECTRA or BERT by TensorFlow 1."""
    prefix = find_prefix(path)
    return prefix is not None and any(
        name.endswith(f"/{_WORDS}") for name in read_shapes(prefix)
    )


def read(path: str, vocab: str | None = None) -> PretrainedModel:
    """Read the networks of a checkpoint, beside which is `vocab.txt`."""
    prefix = find_prefix(path) or path
    tensors = read_checkpoint(prefix)
    networks = [
        _read_network(tensors, role, prefixes, prefix)
        for role, prefixes in _networks(tensors, prefix)
    ]
    used = set().union(*(network.origin.names for network in networks))
    slots = {name for name in tensors if _IS_SLOT.search(name)}
    left_out = explain_left_out(tensors.keys() - used - slots, _NOT_READ, prefix)
    if slots:
        left_out[f"{len(slots):,} slots of Adam"] = "another optimizer begins anew"
    return PretrainedModel.of_networks(
        networks,
        choose_tokenizer(vocab, os.path.dirname(prefix)),
        prefix,
        step=int(tensors[_STEP]) if _STEP in tensors else 0,
        left_out=left_out,
    )


def read_checkpoint(prefix: str) -> dict[str, np.ndarray]:
    """Return the tensors of a TensorFlow checkpoint, as views of its files."""
    tensors = read_bundle(prefix)
    for name, array in tensors.items():
        check_finite(array, name, prefix)
    return tensors


def _networks(
    tensors: Mapping[str, np.ndarray], source: str
) -> list[tuple[Role, Prefixes]]:
    """Return role and prefixes of each network in a checkpoint."""
    if f"bert/{_WORDS}" in tensors:
        return [("encoder", Prefixes("bert/", "bert/"))]
    if f"electra/{_WORDS}" not in tensors:
        raise InputError(
            f"{source} has neither electra/{_WORDS} nor bert/{_WORDS}, but "
            f"{format_list(sorted(tensors), 3)}"
        )
    found: list[tuple[Role, Prefixes]] = []
    has_head = "discriminator_predictions/dense/kernel" in tensors
    has_generator = "generator_predictions/dense/kernel" in tensors
    if has_head or not has_generator:
        role = "discriminator" if has_head else "encoder"
        found.append((role, Prefixes("electra/", "electra/")))
    if has_generator:
        own = "generator/encoder/layer_0/output/dense/kernel" in tensors
        body = "generator/" if own else "electra/"
        tables = "generator/" if f"generator/{_WORDS}" in tensors else "electra/"
        found.append(("generator", Prefixes(body, tables)))
    return found


def _read_network(
    tensors: Mapping[str, np.ndarray],
    role: Role,
    prefixes: Prefixes,
    source: str,
) -> Network:
    def size(name: str) -> tuple[int, ...]:
        return table_shape(tensors, name, source)

    pattern = rf"{prefixes.encoder}encoder/layer_(\d{{1,9}})/"
    layers = (int(m[1]) for name in tensors if (m := re.match(pattern, name)))
    rows, embedding = size(prefixes.embeddings + _WORDS)
    tables = f"{prefixes.embeddings}embeddings/"
    width, inner = size(f"{prefixes.encoder}encoder/layer_0/intermediate/dense/kernel")
    shape = read_shape(
        source,
        depth=max(layers) + 1,
        width=width,
        embedding=embedding,
        heads=max(1, width // 64),
        feed_forward=inner,
        vocabulary_size=rows,
        max_positions=size(f"{tables}position_embeddings")[0],
        segments=size(f"{tables}token_type_embeddings")[0],
    )
    network = Network(role, shape, tensors, None, "tf1", prefixes, source=source)
    return network.to_ours()
