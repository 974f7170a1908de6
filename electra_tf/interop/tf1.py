"""Read pre-trained TensorFlow 1 checkpoints of google-research/electra, and BERT's.

Slots of optimizers, averages of weights and states of training are left out.

Source: google-research/electra model/modeling.py and model/optimization.py.
"""

import glob
import os
import re
from collections.abc import Collection, Mapping

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError, format_list
from electra_tf.interop.model import (
    Network,
    PretrainedModel,
    Role,
    choose_tokenizer,
    explain_left_out,
    shape_of,
)
from electra_tf.interop.names import Prefixes
from electra_tf.interop.tensor_bundle import read_bundle, read_shapes
from electra_tf.training.checkpoint import folder_of

_STEP = "global_step"
_NOT_READ = {
    "^task_specific/": "a task's head; only the encoder is read",
    "^generator_predictions/temperature": "a constant of the released checkpoints",
    "^cls/": "a head of BERT; only its encoder is read",
    "^bert/pooler/": "BERT's pooler, which ELECTRA does not have",
    "^beta[12]_power": "a state of TensorFlow's Adam",
    f"^{_STEP}": "the number of the step",
}
_SCOPES = (
    "electra/", "generator/", "bert/", "discriminator_predictions/",
    "generator_predictions/",
)  # fmt: skip
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
    tensors = read_bundle(prefix)
    networks, used = [], set()
    for role, prefixes in _networks(tensors, prefix):
        shape = shape_of(tensors, "tf1", prefix, prefixes)
        network = Network.read(role, shape, tensors, "tf1", prefix, prefixes)
        networks.append(network)
        used |= network.names_in("tf1", prefixes)
    return PretrainedModel.of_networks(
        networks,
        choose_tokenizer(vocab, os.path.dirname(prefix)),
        prefix,
        step=_step(tensors),
        left_out=_left_out(tensors, used, prefix),
    )


def _step(tensors: Mapping[str, np.ndarray]) -> int:
    """Return the number of the step, also of shape [1]; 0: there is none."""
    step = tensors.get(_STEP, np.zeros(0))
    return int(step.item()) if step.size == 1 and step.dtype.kind in "iu" else 0


def _left_out(
    tensors: Mapping[str, np.ndarray], used: Collection[str], source: str
) -> dict[str, str]:
    """Return why tensors are not read; reject unknown weights of the networks."""
    others = tensors.keys() - used
    # TensorFlow names slots and averages `VARIABLE/SLOT`.
    slots = {name for name in others if name.rpartition("/")[0] in tensors}
    known = "|".join(_NOT_READ)
    ours = {n for n in others if re.search(known, n) or n.startswith(_SCOPES)} - slots
    left_out = explain_left_out(ours, _NOT_READ, source)
    if rest := sorted(others - ours):
        shown = f"{len(rest):,} other tensors, such as {rest[0]}"
        left_out[shown] = "states of training, or of no such network"
    return left_out


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
