"""Read a `pytorch_model.bin` without PyTorch, and without running what is in it.

`torch.save` writes a pickle, which may call any function. This reader's unpickler
finds seven names and nothing else, and each of them builds a dict or an array.
"""

import collections
import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from electra_tf.errors import InputError

_DTYPES = {
    "DoubleStorage": np.dtype("<f8"),
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ByteStorage": np.dtype("<u1"),
    "BoolStorage": np.dtype("?"),
}
# The first object of a file that `torch.save` wrote before version 1.6.
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


class _Storage(NamedTuple):
    """A flat array that tensors are views of."""

    kind: str
    key: str
    size: int


class _Tensor(NamedTuple):
    """A view of a storage; offset and strides count elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _StorageType(NamedTuple):
    kind: str


def read_torch_file(path: str) -> dict[str, np.ndarray]:
    """Read the state dict in a file of `torch.save`, of any version.

    Args:
        path: The file: a zip archive, or a pickle of before PyTorch 1.6.

    Returns:
        Arrays by name.

    Raises:
        InputError: The file is damaged, or its pickle asks for anything but tensors.
    """
    try:
        if zipfile.is_zipfile(path):
            tensors, data_of = _read_zip(path)
        else:
            tensors, data_of = _read_legacy(path)
        return {
            name: _array(value, data_of)
            for name, value in _state_dict(tensors).items()
            if isinstance(value, _Tensor)
        }
    except _ForbiddenError as error:
        raise InputError(
            "A pytorch_model.bin must hold tensors and nothing else",
            f"{path!r}, whose pickle asks for {error}; nothing of it was run",
            "Do not open this file with PyTorch. Get the model as safetensors",
        ) from error
    except (
        pickle.UnpicklingError, zipfile.BadZipFile, EOFError, KeyError, IndexError,
        OSError, ValueError, TypeError, AttributeError, struct.error, OverflowError,
    ) as error:  # fmt: skip
        raise InputError(
            f"{path!r} must be a whole file of torch.save",
            f"{type(error).__name__}: {error}",
            "Copy or download the model again",
        ) from error


class _ForbiddenError(Exception):
    """A name in a pickle that is not one of tensors."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _BUILDERS:
            return _BUILDERS[module, name]
        if module == "torch" and name in _DTYPES:
            return _StorageType(name)
        raise _ForbiddenError(f"{module}.{name}")

    def persistent_load(self, pid: Sequence[Any]) -> _Storage:
        _, kind, key, _, size, *_ = pid
        if not isinstance(kind, _StorageType):
            raise pickle.UnpicklingError(f"a storage of type {kind!r}")
        return _Storage(kind.kind, str(key), int(size))


def _rebuild_tensor(
    storage: _Storage,
    offset: int,
    shape: Sequence[int],
    strides: Sequence[int],
    *_: Any,
) -> _Tensor:
    return _Tensor(storage, int(offset), tuple(shape), tuple(strides))


def _rebuild_parameter(tensor: _Tensor, *_: Any) -> _Tensor:
    return tensor


_BUILDERS: dict[tuple[str, str], Callable] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
}


def _read_zip(path: str) -> tuple[Any, Callable[[_Storage], bytes]]:
    archive = zipfile.ZipFile(path)
    (pickled,) = (n for n in archive.namelist() if n.endswith("/data.pkl"))
    folder = pickled.removesuffix("data.pkl")
    order = folder + "byteorder"
    if order in archive.namelist() and archive.read(order) != b"little":
        raise ValueError(f"byte order {archive.read(order)!r}")
    tensors = _Unpickler(io.BytesIO(archive.read(pickled))).load()
    return tensors, lambda storage: archive.read(f"{folder}data/{storage.key}")


def _read_legacy(path: str) -> tuple[Any, Callable[[_Storage], bytes]]:
    """Read five pickles, then the storages: a count of 8 bytes and the values each."""
    with open(path, "rb") as file:
        if _Unpickler(file).load() != _LEGACY_MAGIC:
            raise ValueError("neither a zip archive nor a pickle of torch.save")
        _Unpickler(file).load()  # protocol
        _Unpickler(file).load()  # sizes of the machine's types
        unpickler = _LegacyUnpickler(file)
        tensors = unpickler.load()
        keys = _Unpickler(file).load()
        data = {}
        left = os.path.getsize(path) - file.tell()
        for key in map(str, keys):
            (count,) = struct.unpack("<q", file.read(8))
            size = count * _DTYPES[unpickler.kinds[key]].itemsize
            if not 0 <= size <= left:
                raise EOFError(f"storage {key} of {size} bytes, {left} bytes left")
            data[key] = file.read(size)
    return tensors, lambda storage: data[storage.key]


class _LegacyUnpickler(_Unpickler):
    """Also collects the types of the storages, which follow the pickle."""

    def __init__(self, file: Any):
        super().__init__(file)
        self.kinds: dict[str, str] = {}

    def persistent_load(self, pid: Sequence[Any]) -> _Storage:
        storage = super().persistent_load(pid)
        self.kinds[storage.key] = storage.kind
        return storage


def _state_dict(value: Any) -> Mapping[str, Any]:
    inner = value.get("state_dict") if isinstance(value, Mapping) else None
    if isinstance(inner, Mapping):
        return inner
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return value
    raise TypeError(f"a {type(value).__name__}, not a dict of tensors")


def _array(tensor: _Tensor, data_of: Callable[[_Storage], bytes]) -> np.ndarray:
    dtype = _DTYPES[tensor.storage.kind]
    flat = np.frombuffer(data_of(tensor.storage), dtype)
    if min(tensor.offset, *tensor.shape, *tensor.strides, 0) < 0:
        raise ValueError("a negative offset, shape or stride")
    steps = zip(tensor.shape, tensor.strides, strict=True)
    last = tensor.offset + sum((size - 1) * stride for size, stride in steps)
    if 0 not in tensor.shape and last >= flat.size:
        raise ValueError(f"a tensor ends at {last + 1} of {flat.size} values")
    strides = [stride * dtype.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(
        flat[tensor.offset :], tensor.shape, strides, writeable=False
    )
