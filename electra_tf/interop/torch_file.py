"""Read a `pytorch_model.bin` without PyTorch, and without running what is in it.

`torch.save` writes a pickle and the values of the tensors. The unpickler here has a
closed list of operations and of constructors. What is read is never larger than the
file itself, whatever sizes it declares.
"""

import io
import os
import pickle
import pickletools
import struct
import zipfile
from collections.abc import Callable, Mapping
from typing import IO, Any, ClassVar, NoReturn

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
# A table and the output layer that is tied to it have two names for one storage.
_NAMES_OF_A_STORAGE = 2


class _Array:
    """A storage or a tensor. In a pickle nothing can iterate over it or change it."""

    def __init__(self, values: np.ndarray):
        self.values = values


def read_torch_file(path: str) -> dict[str, np.ndarray]:
    """Read the state dict in a file of `torch.save`, of any version."""
    with report_damage(path):
        return (_read_zip if zipfile.is_zipfile(path) else _read_legacy)(path)


class _Unpickler(_PythonUnpickler):
    """Builds dicts, lists, tuples, strings, numbers and `_Array` alone.

    The base is the unpickler in Python, since the one in C allocates its memo up to the
    largest index, and goes on within an operation behind a frame that ends there.
    """

    dispatch: ClassVar[dict[int, Callable]] = {
        ord(op.code): (
            _PythonUnpickler.dispatch[ord(op.code)]
            if op.name in _OPERATIONS.split()
            else lambda self, name=op.name: self.refuse(f"the operation {name}")
        )
        for op in pickletools.opcodes
    }

    def __init__(self, stream: io.BytesIO, path: str):
        super().__init__(stream)
        self.storages: dict[str, _Array] = {}  # by key, without their values
        self._path, self._size = path, os.path.getsize(path)
        self._left = self._size  # bytes of the file that no storage has

    def refuse(self, what: str) -> NoReturn:
        raise InputError(
            f"{self._path!r} holds more than tensors: its pickle asks for {what}; "
            "nothing of it was run; do not open this file with PyTorch, get the model "
            "as safetensors"
        )

    def find_class(self, module: str, name: str) -> Any:
        found = _DTYPES.get(name) if module == "torch" else None
        found = found or _CONSTRUCTORS.get(f"{module}.{name}")
        return found or self.refuse(f"{module}.{name}")

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

    def persistent_load(self, pid: Any) -> _Array:
        """Return a storage, a flat array. All are not larger than the file."""
        _, dtype, key, _, count, *view = pid
        is_valid = isinstance(dtype, np.dtype) and isinstance(key, str)
        if not is_valid or not _are_sizes(count) or view not in ([], [None]):
            raise ValueError("a storage of another type, key or size")
        if key not in self.storages:
            self._left -= count * dtype.itemsize
            if self._left < 0:
                raise ValueError(f"storages of more than {self._size:,} bytes")
            self.storages[key] = _Array(np.zeros(count, dtype))
        values = self.storages[key].values
        if (values.dtype, values.size) != (dtype, count):
            raise ValueError(f"two types or sizes of storage {key!r}")
        return self.storages[key]

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the tensors of a state dict, or of the one in a trainer's checkpoint.

        Views of a storage take no memory, but those who use them may copy them.
        """
        value = self.load()
        inner = value.get("state_dict") if isinstance(value, dict) else None
        value = inner if isinstance(inner, dict) else value
        if not isinstance(value, dict) or not all(isinstance(n, str) for n in value):
            raise TypeError(f"a {type(value).__name__}, not a dict of tensors")
        found = {n: a.values for n, a in value.items() if isinstance(a, _Array)}
        used = sum(tensor.nbytes for tensor in found.values())
        if used > _NAMES_OF_A_STORAGE * self._size:
            raise ValueError(f"tensors of {used:,} bytes in a file of {self._size:,}")
        return found


def _check_keys(keys: list[Any]) -> None:
    """Reject keys with a slow hash: that of tuples within tuples may take for ever."""
    for key in keys:
        if type(key) not in (str, int):
            raise TypeError(f"a {type(key).__name__} as a key")


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Array:
    """Return a view of a storage, whose bounds NumPy checks."""
    are_tuples = isinstance(shape, tuple) and isinstance(strides, tuple)
    if not (are_tuples and _are_sizes(offset, *shape, *strides)):
        raise ValueError("a tensor without offset, shape and strides")
    values = storage.values
    offset, *strides = (values.itemsize * number for number in (offset, *strides))
    return _Array(np.ndarray(shape, values.dtype, values, offset, strides))


def _are_sizes(*values: Any) -> bool:
    return all(type(value) is int and value >= 0 for value in values)


_CONSTRUCTORS: Mapping[str, Callable] = {
    "collections.OrderedDict": lambda: {},
    "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
}


def _read_zip(path: str) -> dict[str, np.ndarray]:
    """Read a pickle, and a file for each storage."""
    with zipfile.ZipFile(path) as archive:
        (pickled,) = (n for n in archive.namelist() if n.endswith("/data.pkl"))
        folder = pickled.removesuffix("data.pkl")
        order = f"{folder}byteorder"
        stored = order in archive.namelist()
        if stored and archive.read(_stored(archive, order, 16)) != b"little":
            raise ValueError("values of the other byte order")
        data = archive.read(_stored(archive, pickled, _MAX_PICKLE))
        unpickler = _Unpickler(io.BytesIO(data), path)
        tensors = unpickler.tensors()
        used = {id(tensor.base) for tensor in tensors.values()}
        for key, storage in unpickler.storages.items():
            if id(storage.values) in used:  # others are the optimizer's
                entry = _stored(archive, f"{folder}data/{key}", storage.values.nbytes)
                with archive.open(entry) as file:
                    _fill(storage.values, file)
        return tensors


def _stored(archive: zipfile.ZipFile, name: str, most: int) -> zipfile.ZipInfo:
    """Return an entry of at most so many bytes, which must not be compressed."""
    entry = archive.getinfo(name)
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > most:
        sizes = f"{entry.file_size:,} bytes in {entry.compress_size:,}"
        raise ValueError(f"{name!r} of {sizes}, {most:,} uncompressed ones needed")
    return entry


def _read_legacy(path: str) -> dict[str, np.ndarray]:
    """Read five pickles, then the storages: a count of 8 bytes and the values each."""
    with open(path, "rb") as file:
        pickles = io.BytesIO(file.read(_MAX_PICKLE))
        if _Unpickler(pickles, path).load() != _LEGACY_MAGIC:
            raise ValueError("neither a zip archive nor a pickle of torch.save")
        for _ in ("protocol", "sizes of the machine's types"):
            _Unpickler(pickles, path).load()
        unpickler = _Unpickler(pickles, path)
        tensors, storages = unpickler.tensors(), unpickler.storages
        keys = _Unpickler(pickles, path).load()
        _check_keys(keys)
        if {*keys} != storages.keys():
            raise ValueError("other storages than those of the tensors")
        file.seek(pickles.tell())
        for key in keys:
            values = storages[key].values
            (count,) = struct.unpack("<q", file.read(8))
            if count != values.size:
                raise ValueError(f"storage {key!r} of {count:,} values")
            _fill(values, file)
        return tensors


def _fill(values: np.ndarray, file: IO[bytes]) -> None:
    if file.readinto(values.view(np.uint8)) != values.nbytes:
        raise ValueError(f"fewer than {values.nbytes:,} bytes of a storage")
