"""Read files of tensors that come from elsewhere, as NumPy arrays.

Nothing in a file is executed, and a tensor that is damaged or out of bounds is an error
that names the file and the tensor.
"""

import os
import re
from collections.abc import Mapping

import numpy as np

from electra_tf.errors import InputError, format_list, report_damage
from electra_tf.interop.torch_file import read_torch_file
from electra_tf.untrusted_files import read_json, read_safetensors

SAFETENSORS, TORCH = "model.safetensors", "pytorch_model.bin"
_INDEX = ".index.json"
SHARD = re.compile(r"(model|pytorch_model)-\d+-of-\d+\.(safetensors|bin)")
WEIGHTS = (SAFETENSORS, SAFETENSORS + _INDEX, TORCH, TORCH + _INDEX)
"""Files of weights of a Hugging Face folder; the first that exists is read."""


def find_weights(folder: str | os.PathLike) -> str | None:
    """Return the file of weights of a Hugging Face folder, or None."""
    paths = (os.path.join(folder, name) for name in WEIGHTS)
    return next(filter(os.path.isfile, paths), None)


def read_tensors(path: str) -> dict[str, np.ndarray]:
    """Read safetensors, as views, a file of `torch.save`, or the shards of an index."""
    weight_map = _weight_map(path) if path.endswith(_INDEX) else {}
    folder, shards = os.path.dirname(path), sorted(set(weight_map.values()))
    tensors: dict[str, np.ndarray] = {}
    for file in [os.path.join(folder, name) for name in shards] or [path]:
        reader = read_torch_file if file.endswith(".bin") else read_safetensors
        for name, array in reader(file).items():
            if name in tensors:
                raise InputError(f"{path}: {name!r} is in two shards")
            tensors[name] = array
    if missing := sorted(weight_map.keys() - tensors.keys()):
        raise InputError(f"{path} lists {format_list(missing)}, which no shard has")
    return tensors


def _weight_map(index: str) -> Mapping[str, str]:
    """Return the shard of each tensor, a file beside the index."""
    with report_damage(index):
        weight_map = read_json(index)["weight_map"]
        for name in weight_map.values():
            path = os.path.join(os.path.dirname(index), name)
            if name != os.path.basename(name) or not os.path.isfile(path):
                raise ValueError(f"{name!r} is no file beside it")
        return weight_map
