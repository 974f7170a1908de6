"""Read a `pytorch_model.bin` without PyTorch, and without running what is in it.

`torch.save` writes a pickle and the values of the tensors. The unpickler here has a
closed list of operations and of constructors. What is read is never larger than the
file itself, whatever sizes it declares.
"""

import io
import math
import os
import pickle
import pickletools
import struct
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import ml_dtypes
import numpy as np

from electra_tf import compat
from electra_tf.errors import InputError, report_damage

_PythonUnpickler = compat.python_unpickler()
_DTYPES = {
    f"{name}Storage": np.dtype(kind)
    for name, kind in {
        "Double": "<f8", "Float": "<f4", "Half": "<f2", "BFloat16": ml_dtypes.bfloat16,
        "Long": "<i8", "Int": "<i4", "Short": "<i2", "Char": "<i1", "Byte": "<u1",
        "Bool": "?",
    }.items()
}  # fmt: skip
# Of pickles of `torch.save`.
_OPERATIONS = """
PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT
BINUNICODE SHORT_BINUNICODE BINUNICODE8 EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1
TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS MEMOIZE BINPUT LONG_BINPUT BINGET
LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD BINPERSID
"""
# The first object of a file that `torch.save` wrote before version 1.6.
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_MAX_PICKLE = 2**20  # bytes; a tensor takes about 200, an empty list 1, in memory 64
_MAX_AXES = 32
# A table and the output layer that is tied to it have two names for one storage.
_NAMES_OF_A_STORAGE = 2


class _ForbiddenError(Exception):
    """A pickle asks for something that is not a tensor."""


class _Storage(NamedTuple):
    """A flat array of `count` values that tensors are views of."""

    dtype: np.dtype
    key: str
    count: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.count * self.dtype.itemsize


class _Tensor(NamedTuple):
    """A view of a storage; offset and strides count values."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of bytes."""
        return math.prod(self.shape) * self.storage.dtype.itemsize

    def view(self, values: bytes) -> np.ndarray:
        """Return an array of the storage's values; NumPy checks its bounds."""
        dtype = self.storage.dtype
        offset, *strides = (n * dtype.itemsize for n in (self.offset, *self.strides))
        return np.ndarray(self.shape, dtype, values, offset, strides)


def read_torch_file(path: str) -> dict[str, np.ndarray]:
    """Read the state dict in a file of `torch.save`, of any version."""
    try:
        with report_damage(path):
            read = _read_zip if zipfile.is_zipfile(path) else _read_legacy
            tensors, values = read(path)
            return {n: t.view(values[t.storage.key]) for n, t in tensors.items()}
    except _ForbiddenError as error:
        raise InputError(
            f"{path!r} holds more than tensors: its pickle asks for {error}; nothing "
            "of it was run; do not open this file with PyTorch, get the model as "
            "safetensors"
        ) from error


class _Operations(dict):
    """Functions by the number of an operation; another one is an error."""

    def __missing__(self, number: int) -> NoReturn:
        operation = pickletools.code2op.get(chr(number))
        raise _ForbiddenError(
            f"the operation {operation.name if operation else number}"
        )


class _Unpickler(_PythonUnpickler):
    """Builds dicts, lists, tuples, strings, numbers and `_Tensor` alone.

    The base is the unpickler in Python, since the one in C allocates its memo up to the
    largest index, and goes on within an operation behind a frame that ends there.
    """

    dispatch = _Operations(
        (number, _PythonUnpickler.dispatch[number])
        for number in (getattr(pickle, name)[0] for name in _OPERATIONS.split())
    )

    def __init__(self, stream: io.BytesIO):
        super().__init__(stream)
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        found = _DTYPES.get(name) if module == "torch" else None
        found = found or _CONSTRUCTORS.get(f"{module}.{name}")
        if found is None:
            raise _ForbiddenError(f"{module}.{name}")
        return found

    def load_build(self) -> None:
        """Ignore attributes of a parameter, and the metadata of a state dict."""
        self.stack.pop()

    def load_setitem(self) -> None:
        _check_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        _check_keys(self.stack[::2])
        super().load_setitems()

    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems

    def persistent_load(self, pid: Any) -> _Storage:
        _, dtype, key, _, count, *view = pid
        is_valid = isinstance(dtype, np.dtype) and isinstance(key, str)
        if not is_valid or not _are_sizes(count) or view not in ([], [None]):
            raise ValueError("a storage of another type, key or size")
        storage = _Storage(dtype, key, count)
        if self.storages.setdefault(key, storage) != storage:
            raise ValueError(f"two types or sizes of storage {key!r}")
        return storage


def _check_keys(keys: list[Any]) -> None:
    """Reject keys with a slow hash: that of tuples within tuples may take for ever."""
    for key in keys:
        if type(key) not in (str, int):
            raise TypeError(f"a {type(key).__name__} as a key")


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    are_tuples = isinstance(shape, tuple) and isinstance(strides, tuple)
    if (
        not (isinstance(storage, _Storage) and are_tuples)
        or not _are_sizes(offset, *shape, *strides)
        or not len(shape) == len(strides) <= _MAX_AXES
    ):
        raise ValueError("a tensor without storage, offset, shape and strides")
    return _Tensor(storage, offset, shape, strides)


def _are_sizes(*values: Any) -> bool:
    return all(type(value) is int and value >= 0 for value in values)


_CONSTRUCTORS: Mapping[str, Callable] = {
    "collections.OrderedDict": lambda: {},
    "torch._utils._rebuild_parameter": lambda tensor, *_: _tensor(*tensor),
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
}


def _read_zip(path: str) -> tuple[dict[str, _Tensor], dict[str, bytes]]:
    """Return the tensors, and the values of their storages."""
    with zipfile.ZipFile(path) as archive:
        (pickled,) = (n for n in archive.namelist() if n.endswith("/data.pkl"))
        folder = pickled.removesuffix("data.pkl")
        order = f"{folder}byteorder"
        stored = order in archive.namelist()
        if stored and _read_entry(archive, order, 16) != b"little":
            raise ValueError("values of the other byte order")
        data = _read_entry(archive, pickled, _MAX_PICKLE)
        tensors = _tensors(_Unpickler(io.BytesIO(data)).load())
        used = {t.storage.key: t.storage for t in tensors.values()}
        _check_sizes(tensors, used, path)
        return tensors, {
            key: _read_entry(archive, f"{folder}data/{key}", storage.size)
            for key, storage in used.items()
        }


def _read_entry(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    entry = archive.getinfo(name)
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > most:
        sizes = f"{entry.file_size:,} bytes in {entry.compress_size:,}"
        raise ValueError(f"{name!r} of {sizes}, {most:,} uncompressed ones needed")
    return archive.read(entry)


def _read_legacy(path: str) -> tuple[dict[str, _Tensor], dict[str, bytes]]:
    """Read five pickles, then the storages: a count of 8 bytes and the values each."""
    with open(path, "rb") as file:
        pickles, values = io.BytesIO(file.read(_MAX_PICKLE)), {}
        if _Unpickler(pickles).load() != _LEGACY_MAGIC:
            raise ValueError("neither a zip archive nor a pickle of torch.save")
        for _ in ("protocol", "sizes of the machine's types"):
            _Unpickler(pickles).load()
        unpickler = _Unpickler(pickles)
        tensors, declared = _tensors(unpickler.load()), unpickler.storages
        _check_sizes(tensors, declared, path)
        keys = _Unpickler(pickles).load()
        file.seek(pickles.tell())
        for key in keys:
            storage = declared.pop(key)
            (count,) = struct.unpack("<q", file.read(8))
            if count != storage.count:
                raise ValueError(f"storage {storage} of {count:,} values")
            values[key] = file.read(storage.size)
        return tensors, values


def _tensors(value: Any) -> dict[str, _Tensor]:
    """Return the tensors of a state dict, or of the one in a trainer's checkpoint."""
    inner = value.get("state_dict") if isinstance(value, dict) else None
    value = inner if isinstance(inner, dict) else value
    if not isinstance(value, dict) or not all(isinstance(n, str) for n in value):
        raise TypeError(f"a {type(value).__name__}, not a dict of tensors")
    return {name: t for name, t in value.items() if isinstance(t, _Tensor)}


def _check_sizes(
    tensors: Mapping[str, _Tensor], storages: Mapping[str, _Storage], path: str
) -> None:
    """Raise an error for sizes that the file cannot hold, before any is allocated."""
    available = os.path.getsize(path)
    stored, used = (
        sum(one.size for one in values.values()) for values in (storages, tensors)
    )
    if stored > available or used > _NAMES_OF_A_STORAGE * available:
        sizes = f"storages of {stored:,} bytes and tensors of {used:,}"
        raise ValueError(f"{sizes} in a file of {available:,}")
