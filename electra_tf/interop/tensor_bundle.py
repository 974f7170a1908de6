"""Read and write TensorFlow checkpoints.

A checkpoint is an index, a table of `BundleEntryProto` by name in LevelDB's format, and
data files. They are read without TensorFlow's reader, which ends the process at some
damaged indexes.

Sources: TensorFlow tensor_bundle.proto and core/lib/io/table_format.txt.
"""

import glob
import math
import os
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import google_crc32c
import ml_dtypes
import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2

from electra_tf.errors import InputError
from electra_tf.text.json_file import read_small_file

_MAGIC = 0xDB4775248B80FB57
_FOOTER, _TRAILER = 48, 5  # bytes: two handles and the magic; a type and a checksum
_CHUNK = 2**20
_MAX_INDEX, _MAX_ENTRIES = 2**24, 2**26  # bytes
_MAX_KEY = 2**12  # bytes
_SHARD = 32 * 2**20  # bytes, after which a shard of a new checkpoint ends
_MAX_AXES = 16
_DTYPES = {
    types_pb2.DT_FLOAT: np.dtype("<f4"),
    types_pb2.DT_DOUBLE: np.dtype("<f8"),
    types_pb2.DT_HALF: np.dtype("<f2"),
    types_pb2.DT_BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    types_pb2.DT_INT64: np.dtype("<i8"),
    types_pb2.DT_INT32: np.dtype("<i4"),
    types_pb2.DT_INT16: np.dtype("<i2"),
    types_pb2.DT_INT8: np.dtype("<i1"),
    types_pb2.DT_UINT8: np.dtype("<u1"),
    types_pb2.DT_BOOL: np.dtype("?"),
}


class _Entry(NamedTuple):
    """Place of a tensor."""

    file: str
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype
    checksum: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_shapes(prefix: str) -> dict[str, tuple[int, ...]]:
    """Return the shape of each numeric tensor of a checkpoint."""
    return {name: entry.shape for name, entry in _entries(prefix).items()}


def read_bundle(prefix: str) -> dict[str, np.ndarray]:
    """Return the numeric tensors of a checkpoint as views of its data files.

    Strings are left out; the graph of objects of a TensorFlow 2 checkpoint is one.
    """
    entries = _entries(prefix)
    _check_sizes(entries, prefix)
    tensors = {}
    for name, entry in entries.items():
        if not entry.size:
            tensors[name] = np.zeros(entry.shape, entry.dtype)
            continue
        _check_data(name, entry)
        tensors[name] = np.memmap(
            entry.file, entry.dtype, "r", entry.offset, entry.shape or (1,)
        ).reshape(entry.shape)
    return tensors


def write_bundle(prefix: str, tensors: Mapping[str, np.ndarray | bytes]) -> None:
    """Write a checkpoint in shards of some tensors each.

    TensorFlow copies its arguments, so memory grows by the size of a shard.

    Args:
        prefix: Of its files.
        tensors: By name; bytes are a string.
    """
    shards: list[list[str]] = [[]]
    size = 0
    for name in sorted(tensors):
        if size > _SHARD:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += memoryview(tensors[name]).nbytes
    folder = f"{prefix}.unfinished"
    parts = [f"{folder}/{number}" for number in range(len(shards))]
    for part, names in zip(parts, shards, strict=True):
        tf.raw_ops.SaveV2(
            prefix=part,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tensors[name] for name in names],
        )
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=parts, destination_prefix=prefix, delete_old_dirs=True
    )


def _check_sizes(entries: Mapping[str, _Entry], prefix: str) -> None:
    sizes = {name: entry.size for name, entry in entries.items()}
    files = glob.glob(f"{glob.escape(prefix)}.data-*")
    available = sum(map(os.path.getsize, files))
    if sum(sizes.values()) > available:
        largest = max(sizes, key=sizes.__getitem__)
        raise _error(
            "The tensors of a checkpoint must not be larger than its files",
            f"{prefix}: {sum(sizes.values()):,} bytes in files of {available:,}, "
            f"{sizes[largest]:,} of them of {largest!r}",
        )


def _check_data(name: str, entry: _Entry) -> None:
    """Raise an error if a tensor's bytes are not there, or not those written."""
    checksum, left = 0, entry.size
    try:
        with open(entry.file, "rb") as file:
            file.seek(entry.offset)
            while left and (chunk := file.read(min(left, _CHUNK))):
                checksum = google_crc32c.extend(checksum, chunk)
                left -= len(chunk)
    except (OSError, OverflowError) as error:
        raise _error(f"{entry.file} must hold {name!r}", str(error)) from error
    if left or _masked(checksum) != entry.checksum:
        why = f"{left:,} bytes missing" if left else "another checksum"
        raise _error(
            "A tensor's bytes must be those that were written",
            f"{entry.file}: {name!r}, {why}",
        )


def _entries(prefix: str) -> dict[str, _Entry]:
    """Return the numeric tensors that the index lists."""
    path = f"{prefix}.index"
    try:
        table = dict(_table(read_small_file(path, _MAX_INDEX)))
        header = tensor_bundle_pb2.BundleHeaderProto.FromString(table.pop(b""))
        if header.endianness != tensor_bundle_pb2.BundleHeaderProto.LITTLE:
            raise ValueError("big-endian numbers")
        found = (_entry(k, v, prefix, header.num_shards) for k, v in table.items())
        return {name: entry for name, entry in found if entry is not None}
    except InputError:
        raise
    except (OSError, ValueError, KeyError, DecodeError, struct.error) as error:
        raise _error(
            f"{path!r} must be the whole index of a TensorFlow checkpoint", str(error)
        ) from error


def _entry(
    key: bytes, value: bytes, prefix: str, shards: int
) -> tuple[str, _Entry | None]:
    name = key.decode()
    proto = tensor_bundle_pb2.BundleEntryProto.FromString(value)
    if proto.dtype == types_pb2.DT_STRING:
        return name, None
    if proto.dtype not in _DTYPES or proto.slices:
        kind = "slices" if proto.slices else f"the data type {proto.dtype}"
        raise ValueError(f"{name!r} has {kind}")
    shape = tuple(axis.size for axis in proto.shape.dim)
    file = f"{prefix}.data-{proto.shard_id:05d}-of-{shards:05d}"
    entry = _Entry(file, proto.offset, shape, _DTYPES[proto.dtype], proto.crc32c)
    impossible = proto.shape.unknown_rank or len(shape) > _MAX_AXES
    if impossible or min((*shape, proto.offset)) < 0 or proto.size != entry.size:
        raise ValueError(f"{name!r} of shape {shape} has {proto.size} bytes")
    return name, entry


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a LevelDB table."""
    footer = data[-_FOOTER:]
    if len(footer) < _FOOTER or struct.unpack("<Q", footer[-8:])[0] != _MAGIC:
        raise ValueError("no table ends here")
    _, at = _handle(footer, 0)
    index, _ = _handle(footer, at)
    size = 0
    for _, value in _block(data, *index):
        handle, _ = _handle(value, 0)
        for entry in _block(data, *handle):
            size += sum(map(len, entry))
            if size > _MAX_ENTRIES:  # keys share their starts, and blocks may repeat
                raise ValueError(
                    f"names and shapes of more than {_MAX_ENTRIES:,} bytes"
                )
            yield entry


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block. A key repeats the start of the last one."""
    end = offset + size
    kind, checksum = struct.unpack("<BI", data[end : end + _TRAILER])
    if kind != 0:
        raise ValueError("a compressed block")
    if _masked(google_crc32c.value(data[offset : end + 1])) != checksum:
        raise ValueError("a block with another checksum")
    block = data[offset:end]
    (restarts,) = struct.unpack("<I", block[-4:])
    stop, at, key = len(block) - 4 * (restarts + 1), 0, b""
    while at < stop:
        shared, at = _varint(block, at)
        added, at = _varint(block, at)
        length, at = _varint(block, at)
        if shared > len(key) or at + added + length > stop:
            raise ValueError("an entry that ends outside of its block")
        if shared + added > _MAX_KEY:
            raise ValueError(f"a name of more than {_MAX_KEY:,} bytes")
        key = key[:shared] + block[at : at + added]
        at += added + length
        yield key, block[at - length : at]


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return (offset, size), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, lowest first, and the place behind it."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number without an end")


def _masked(checksum: int) -> int:
    """Return a CRC-32C as TensorFlow stores it."""
    rotated = (checksum >> 15 | checksum << 17) & 0xFFFFFFFF
    return (rotated + 0xA282EAD8) & 0xFFFFFFFF


def _error(required: str, received: str) -> InputError:
    return InputError(
        required, received, "Copy or download the .index and .data files again"
    )
