"""Read files of tensors that come from elsewhere, as NumPy arrays.

Nothing in a file is executed, and a tensor that is damaged, out of bounds or not finite
is an error that names the file and the tensor.
"""

import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import safetensors

from electra_tf.errors import InputError, format_list, report_damage
from electra_tf.interop.network import is_float
from electra_tf.interop.torch_file import read_torch_file
from electra_tf.untrusted_files import parse_small_json, read_small_file

SAFETENSORS, TORCH = "model.safetensors", "pytorch_model.bin"
_INDEX = ".index.json"
SHARD = re.compile(r"(model|pytorch_model)-\d+-of-\d+\.(safetensors|bin)")
WEIGHTS = (SAFETENSORS, SAFETENSORS + _INDEX, TORCH, TORCH + _INDEX)
"""Files of weights of a Hugging Face folder; the first that exists is read."""
_MAX_HEADER = 1 << 25  # bytes
_REMEDY = "Copy or download the model again"
_DTYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8,
    "BOOL": np.bool_,
}  # fmt: skip


def find_weights(folder: str | os.PathLike) -> str | None:
    """Return the file of weights of a Hugging Face folder, or None.

    safetensors are preferred to a pickle, a single file to an index of shards.
    """
    for name in WEIGHTS:
        if pathlib.Path(folder, name).is_file():
            return os.path.join(folder, name)
    return None


def read_tensors(path: str) -> dict[str, np.ndarray]:
    """Read a file of safetensors or of `torch.save`, or the shards of an index.

    Arrays of safetensors are views of the file, read when used.
    """
    is_index = path.endswith(_INDEX)
    weight_map = _weight_map(path) if is_index else {}
    files = _shards(path, set(weight_map.values())) if is_index else [path]
    tensors: dict[str, np.ndarray] = {}
    for file in files:
        reader = read_torch_file if file.endswith(".bin") else read_safetensors
        for name, array in reader(file).items():
            if name in tensors:
                raise _error(f"{name!r} must be in one shard", f"{path}: in two")
            check_finite(array, name, file)
            tensors[name] = array
    if missing := sorted(weight_map.keys() - tensors.keys()):
        raise _error(
            f"The shards of {path!r} must have the tensors it lists",
            f"no {format_list(missing)}",
        )
    return tensors


def read_safetensors(path: str) -> dict[str, np.ndarray]:
    """Return the tensors of a file as views that take no memory of their own."""
    required = f"{path!r} must be a whole safetensors file"
    with report_damage(required, _REMEDY, safetensors.SafetensorError):
        with safetensors.safe_open(path, framework="numpy"):
            pass  # checks that header and data fit together
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > _MAX_HEADER:
                raise ValueError(f"a header of {size:,} bytes")
            header = parse_small_json(file.read(size), path)
        header.pop("__metadata__", None)
        if not any(0 not in entry["shape"] for entry in header.values()):
            return {n: np.zeros(e["shape"], np.float32) for n, e in header.items()}
        data = np.memmap(path, np.uint8, "r", 8 + size)
        return {name: _view(data, name, entry) for name, entry in header.items()}


def _view(data: np.ndarray, name: str, entry: Mapping[str, Any]) -> np.ndarray:
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"{name!r} has the dtype {entry['dtype']}")
    start, end = entry["data_offsets"]
    return (
        np.asarray(data[start:end])
        .view(_DTYPES[entry["dtype"]])
        .reshape(entry["shape"])
    )


def _shards(index: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the files that an index names, which must lie beside it."""
    folder = os.path.dirname(index)
    for name in sorted(names):
        if name != os.path.basename(name) or name in ("", ".", ".."):
            raise _error(f"{index!r} must name files of its own folder", repr(name))
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            raise _error(f"{index!r} must name files that exist", repr(name))
        yield path


def _weight_map(index: str) -> Mapping[str, str]:
    with report_damage(f"{index!r} must be a JSON index", _REMEDY):
        content = read_small_file(index, _MAX_HEADER)
        weight_map = parse_small_json(content, index)["weight_map"]
        if all(isinstance(name, str) for name in weight_map.values()):
            return weight_map
        raise TypeError("weight_map holds values that are no names of files")


def check_finite(array: np.ndarray, name: str, path: str) -> None:
    """Raise an error if numbers of a file's tensor are NaN or infinite."""
    if is_float(array) and not np.isfinite(array).all():
        bad = int(array.size - np.isfinite(array).sum())
        raise InputError(
            "Weights must be finite numbers",
            f"{path}: {name!r} with {bad:,} of {array.size:,} values NaN or infinite",
            "Use a checkpoint from before training diverged",
        )


def _error(required: str, received: str) -> InputError:
    return InputError(required, received, _REMEDY)
