"""Interpret the pickle of a `torch.save` without Python's unpickler.

A pickle is a program for a stack machine that may call any function, and that may make
Python's own unpickler allocate any amount of memory. This machine knows the operations
that build numbers, strings, lists and dicts, and the five calls that build tensors.
"""

import collections
import io
import pickletools
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

DTYPES = {
    "DoubleStorage": np.dtype("<f8"),
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("<i1"),
    "ByteStorage": np.dtype("<u1"),
    "BoolStorage": np.dtype("?"),
}


class ForbiddenError(Exception):
    """A pickle asks for something that is not a tensor."""


class Storage(NamedTuple):
    """A flat array that tensors are views of."""

    kind: str
    """A key of `DTYPES`."""
    key: str
    size: int
    """Number of values."""


class Tensor(NamedTuple):
    """A view of a storage; offset and strides count values."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _StorageType(NamedTuple):
    kind: str


class _Call(NamedTuple):
    name: str


_OUTER = object()  # on the stack in place of a mark
_ORDERED_DICT = _Call("collections.OrderedDict")
_PARAMETER = _Call("torch._utils._rebuild_parameter")
_TENSORS = (
    _Call("torch._utils._rebuild_tensor"),
    _Call("torch._utils._rebuild_tensor_v2"),
)
_CALLS = {call.name: call for call in (_ORDERED_DICT, _PARAMETER, *_TENSORS)}


def interpret(file: io.BytesIO) -> tuple[Any, dict[str, Storage]]:
    """Return the value of the pickle that a file goes on with, and its storages.

    Args:
        file: Bytes; is left behind the pickle.

    Returns:
        Dicts, lists, tuples, strings, numbers, and `Tensor`; the storages by key.
    """
    machine = _Machine()
    for opcode, argument, _ in pickletools.genops(file):
        machine.run(opcode.name, argument)
    return machine.pop(), machine.storages


class _Machine:
    """A stack, a memo, and the storages met so far."""

    def __init__(self):
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, Storage] = {}
        self.operations: dict[str, Callable[[], Any]] = {
            "EMPTY_DICT": lambda: self.stack.append({}),
            "EMPTY_LIST": lambda: self.stack.append([]),
            "EMPTY_TUPLE": lambda: self.stack.append(()),
            "MARK": lambda: self.stack.append(_OUTER),
            "NONE": lambda: self.stack.append(None),
            "NEWTRUE": lambda: self.stack.append(True),
            "NEWFALSE": lambda: self.stack.append(False),
            "TUPLE": lambda: self.stack.append(tuple(self.pop_to_mark())),
            "TUPLE1": lambda: self.make_tuple(1),
            "TUPLE2": lambda: self.make_tuple(2),
            "TUPLE3": lambda: self.make_tuple(3),
            "APPEND": lambda: self.append([self.pop()]),
            "APPENDS": lambda: self.append(self.pop_to_mark()),
            "SETITEM": lambda: self.set_items([self.pop(), self.pop()][::-1]),
            "SETITEMS": lambda: self.set_items(self.pop_to_mark()),
            "MEMOIZE": lambda: self.memo.update({len(self.memo): self.stack[-1]}),
            "STACK_GLOBAL": lambda: self.find([self.pop(), self.pop()][::-1]),
            "REDUCE": self.reduce,
            "BINPERSID": self.make_storage,
            "BUILD": self.pop,  # sets attributes, of which tensors need none
        }

    def run(self, name: str, argument: Any) -> None:
        if name in _CONSTANTS:
            self.stack.append(argument)
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            if argument not in self.memo:
                raise ValueError(f"nothing is stored as {argument}")
            self.stack.append(self.memo[argument])
        elif name == "GLOBAL":
            self.find(argument.split(" "))
        elif name in self.operations:
            self.operations[name]()
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ForbiddenError(f"the operation {name}")

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _OUTER:
            raise ValueError("an operation lacks an argument")
        return value

    def pop_to_mark(self) -> list[Any]:
        values = []
        while (value := self.stack.pop()) is not _OUTER:
            values.append(value)
        return values[::-1]

    def make_tuple(self, size: int) -> None:
        values = [self.pop() for _ in range(size)]
        self.stack.append(tuple(values[::-1]))

    def append(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise ValueError(f"a {type(target).__name__} in place of a list")
        target.extend(values)

    def set_items(self, values: list[Any]) -> None:
        target, keys = self.stack[-1], values[::2]
        if not isinstance(target, dict) or len(values) % 2:
            raise ValueError(f"a {type(target).__name__} in place of a dict")
        if not all(isinstance(key, str | int) for key in keys):
            raise ValueError("a key of a dict that is neither a string nor a number")
        target.update(zip(keys, values[1::2], strict=True))

    def find(self, names: list[str]) -> None:
        if not all(isinstance(name, str) for name in names) or len(names) != 2:
            raise ValueError("a global without a module and a name")
        module, name = names
        full = f"{module}.{name}"
        if full in _CALLS:
            self.stack.append(_CALLS[full])
        elif module == "torch" and name in DTYPES:
            self.stack.append(_StorageType(name))
        else:
            raise ForbiddenError(full)

    def make_storage(self) -> None:
        values = self.pop()
        if not isinstance(values, tuple) or len(values) not in (5, 6):
            raise ValueError("a storage without type, key and size")
        _, kind, key, _, size, *view = values
        if not (
            isinstance(kind, _StorageType)
            and isinstance(key, str)
            and _is_size(size)
            and view in ([], [None])
        ):
            raise ValueError("a storage of another type, key or size")
        storage = Storage(kind.kind, key, size)
        if self.storages.setdefault(key, storage) != storage:
            raise ValueError(f"two types or sizes of storage {key!r}")
        self.stack.append(storage)

    def reduce(self) -> None:
        arguments, call = self.pop(), self.pop()
        if not isinstance(arguments, tuple) or not isinstance(call, _Call):
            raise ValueError("a call of a value that is no function")
        if call in _TENSORS:
            self.stack.append(_tensor(*arguments[:4]))
        elif call == _PARAMETER and isinstance(arguments[0], Tensor):
            self.stack.append(arguments[0])
        elif call == _ORDERED_DICT and not arguments:
            self.stack.append(collections.OrderedDict())
        else:
            raise ValueError(f"arguments that {call.name} does not take")


_CONSTANTS = (
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINFLOAT",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINUNICODE8",
)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> Tensor:
    sizes = (shape, strides)
    if not (
        isinstance(storage, Storage)
        and _is_size(offset)
        and all(isinstance(one, tuple) and all(map(_is_size, one)) for one in sizes)
        and len(shape) == len(strides)
    ):
        raise ValueError("a tensor without storage, offset, shape and strides")
    return Tensor(storage, offset, shape, strides)


def _is_size(value: Any) -> bool:
    return type(value) is int and value >= 0
