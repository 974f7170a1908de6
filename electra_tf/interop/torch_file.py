"""Read a `pytorch_model.bin` without PyTorch, and without running what is in it.

`torch.save` writes a pickle, which `torch_pickle.py` interprets, and the values of the
tensors. What is read is never larger than the file itself, whatever sizes it declares.
"""

import io
import math
import os
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from electra_tf.errors import InputError
from electra_tf.interop.torch_pickle import (
    DTYPES,
    ForbiddenError,
    Storage,
    Tensor,
    interpret,
)

# The first object of a file that `torch.save` wrote before version 1.6.
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_MAX_PICKLE = 2**20  # bytes; a tensor takes about 200
# A table and the output layer that is tied to it have two names for one storage.
_NAMES_OF_A_STORAGE = 2
_REMEDY = "Get the model as safetensors, or save it again with torch.save"


def read_torch_file(path: str) -> dict[str, np.ndarray]:
    """Read the state dict in a file of `torch.save`, of any version."""
    try:
        read = _read_zip if zipfile.is_zipfile(path) else _read_legacy
        tensors, storages = read(path)
        return {name: _view(tensor, storages) for name, tensor in tensors.items()}
    except InputError:
        raise
    except ForbiddenError as error:
        raise InputError(
            "A pytorch_model.bin must hold tensors and nothing else",
            f"{path!r}, whose pickle asks for {error}; nothing of it was run",
            "Do not open this file with PyTorch. Get the model as safetensors",
        ) from error
    except (
        zipfile.BadZipFile, EOFError, KeyError, IndexError, OSError, ValueError,
        TypeError, NotImplementedError, RuntimeError, struct.error,
    ) as error:  # fmt: skip
        raise InputError(
            f"{path!r} must be a whole file of torch.save",
            f"{type(error).__name__}: {error}",
            "Copy or download the model again",
        ) from error


def _read_zip(path: str) -> tuple[dict[str, Tensor], dict[str, np.ndarray]]:
    with zipfile.ZipFile(path) as archive:
        (pickled,) = (n for n in archive.namelist() if n.endswith("/data.pkl"))
        folder = pickled.removesuffix("data.pkl")
        order = f"{folder}byteorder"
        if order in archive.namelist():
            name = _read_entry(archive, order, path, 16)
            if name != b"little":
                raise ValueError(f"byte order {name!r}")
        data = _read_entry(archive, pickled, path, _MAX_PICKLE)
        values, _ = interpret(io.BytesIO(data))
        tensors = _tensors(values)
        used = {t.storage.key: t.storage for t in tensors.values()}
        _check_sizes(tensors, used, path)
        storages = {
            key: np.frombuffer(
                _read_entry(archive, f"{folder}data/{key}", path, _size(storage)),
                DTYPES[storage.kind],
            )
            for key, storage in used.items()
        }
    return tensors, storages


def _read_entry(archive: zipfile.ZipFile, name: str, path: str, most: int) -> bytes:
    entry = archive.getinfo(name)
    if entry.compress_type != zipfile.ZIP_STORED:
        raise InputError(
            "torch.save's archive must be uncompressed",
            f"{path}: {name!r}, {entry.file_size:,} bytes in {entry.compress_size:,}",
            _REMEDY,
        )
    if entry.file_size > most:
        raise InputError(
            "An entry of torch.save's archive must not be larger than needed",
            f"{path}: {name!r}, {entry.file_size:,} bytes, more than {most:,}",
            _REMEDY,
        )
    return archive.read(entry)


def _read_legacy(path: str) -> tuple[dict[str, Tensor], dict[str, np.ndarray]]:
    """Read five pickles, then the storages: a count of 8 bytes and the values each."""
    with open(path, "rb") as file:
        pickles = io.BytesIO(file.read(_MAX_PICKLE))
        if interpret(pickles)[0] != _LEGACY_MAGIC:
            raise ValueError("neither a zip archive nor a pickle of torch.save")
        interpret(pickles)  # protocol
        interpret(pickles)  # sizes of the machine's types
        values, declared = interpret(pickles)
        tensors = _tensors(values)
        _check_sizes(tensors, declared, path)
        keys, _ = interpret(pickles)
        file.seek(pickles.tell())
        storages = {}
        for key in keys:
            storage = declared.pop(key)
            (count,) = struct.unpack("<q", file.read(8))
            data = file.read(_size(storage))
            if count != storage.size or len(data) < _size(storage):
                raise EOFError(f"storage {key} of {count:,} values, {len(data)} bytes")
            storages[key] = np.frombuffer(data, DTYPES[storage.kind])
    return tensors, storages


def _tensors(value: Any) -> dict[str, Tensor]:
    """Return the tensors of a state dict, or of the one in a trainer's checkpoint."""
    inner = value.get("state_dict") if isinstance(value, Mapping) else None
    value = inner if isinstance(inner, Mapping) else value
    if not isinstance(value, Mapping) or not all(isinstance(n, str) for n in value):
        raise TypeError(f"a {type(value).__name__}, not a dict of tensors")
    return {name: t for name, t in value.items() if isinstance(t, Tensor)}


def _check_sizes(
    tensors: Mapping[str, Tensor], storages: Mapping[str, Storage], path: str
) -> None:
    """Raise an error for sizes that the file cannot hold, before any is allocated."""
    for name, (storage, offset, shape, strides) in tensors.items():
        steps = zip(shape, strides, strict=True)
        end = offset + sum((size - 1) * stride for size, stride in steps) + 1
        count = math.prod(shape)
        if count and (end > storage.size or count > storage.size):
            raise InputError(
                "A tensor must not be larger than its storage",
                f"{path}: {name!r} of shape {shape} and strides {strides}, which needs "
                f"{max(end, count):,} of {storage.size:,} values",
                _REMEDY,
            )
    available = os.path.getsize(path)
    stored = sum(map(_size, storages.values()))
    used = sum(
        math.prod(t.shape) * DTYPES[t.storage.kind].itemsize for t in tensors.values()
    )
    if stored > available or used > _NAMES_OF_A_STORAGE * available:
        raise InputError(
            "The tensors of a file must not be larger than the file",
            f"{path}: storages of {stored:,} bytes and tensors of {used:,} in a file "
            f"of {available:,}",
            _REMEDY,
        )


def _size(storage: Storage) -> int:
    return storage.size * DTYPES[storage.kind].itemsize


def _view(tensor: Tensor, storages: Mapping[str, np.ndarray]) -> np.ndarray:
    flat = storages[tensor.storage.key]
    if flat.size != tensor.storage.size:
        raise EOFError(
            f"storage {tensor.storage.key} of {tensor.storage.size:,} values has "
            f"{flat.size:,}"
        )
    strides = [stride * flat.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(
        flat[tensor.offset :], tensor.shape, strides, writeable=False
    )
