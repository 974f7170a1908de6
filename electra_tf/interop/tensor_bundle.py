"""Read the files of TensorFlow checkpoints.

A checkpoint is an index, a table of `BundleEntryProto` by name in LevelDB's format, and
data files. TensorFlow ends the process at an index of negative sizes and allocates any
size, so this reader maps the values itself, from an index whose sizes it checks.

Sources: TensorFlow tensor_bundle.proto and core/lib/io/table_format.txt.
"""

import functools
import math
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from electra_tf import compat
from electra_tf.errors import report_damage
from electra_tf.untrusted_files import masked_crc, read_small_file

BundleEntryProto, BundleHeaderProto = compat.bundle_messages()
_FOOTER = 48  # bytes: two handles and a magic number
_MAX_INDEX, _MAX_NAMES = 2**24, 2**25  # bytes
_MAX_AXES, _MAX_VALUES = 16, 2**60
_DTYPES = (
    tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int64, tf.int32, tf.int16,
    tf.int8, tf.uint8, tf.bool, tf.string,
)  # fmt: skip


def read_shapes(prefix: str) -> dict[str, tuple[int, ...]]:
    """Return the shape of each numeric tensor of a checkpoint."""
    return {name: _shape(entry) for name, entry in _entries(prefix)[1].items()}


def read_bundle(prefix: str) -> dict[str, np.ndarray]:
    """Return the tensors of a checkpoint, but strings, as views of its data files."""
    shards, entries = _entries(prefix)
    with report_damage(f"{prefix}.data"):
        contents = {
            shard: np.memmap(f"{prefix}.data-{shard:05d}-of-{shards:05d}", mode="r")
            for shard in {entry.shard_id for entry in entries.values() if entry.size}
        }
        needed = sum(entry.size for entry in entries.values())
        available = sum(content.size for content in contents.values())
        if needed > available:
            raise ValueError(f"{needed:,} bytes in files of {available:,}")
        empty, tensors = np.zeros(0, np.uint8), {}
        for name, entry in entries.items():
            content = contents.get(entry.shard_id, empty)
            data = np.asarray(content[entry.offset : entry.offset + entry.size])
            if masked_crc(data) != entry.crc32c.to_bytes(4, "little"):
                raise ValueError(f"{name!r} has another checksum")
            values = data.view(tf.as_dtype(entry.dtype).as_numpy_dtype)
            tensors[name] = values.reshape(_shape(entry))
        return tensors


def _entries(prefix: str) -> tuple[int, dict[str, BundleEntryProto]]:
    """Return the number of data files, and the numeric tensors, whose sizes fit."""
    path = f"{prefix}.index"
    with report_damage(path, DecodeError):
        return _parse_index(read_small_file(path, _MAX_INDEX))


@functools.lru_cache(maxsize=1)  # each format asks for the names, then one reads
def _parse_index(content: bytes) -> tuple[int, dict[str, BundleEntryProto]]:
    (first, value), *items = _table(content)
    header, entries = BundleHeaderProto.FromString(value), {}
    if first or header.endianness != BundleHeaderProto.LITTLE:
        raise ValueError("no header, or values of the other byte order")
    for key, value in items:
        name, entry = key.decode(), BundleEntryProto.FromString(value)
        _check_entry(name, entry)
        if not name or name in entries:
            raise ValueError(f"a second entry {name!r}")
        entries[name] = entry
    strings = tf.string.as_datatype_enum
    numeric = {n: entry for n, entry in entries.items() if entry.dtype != strings}
    return header.num_shards, numeric


def _check_entry(name: str, entry: BundleEntryProto) -> None:
    shape, dtype = _shape(entry), tf.as_dtype(entry.dtype)
    bytes_each = 1 if dtype == tf.string else np.dtype(dtype.as_numpy_dtype).itemsize
    if (
        dtype not in _DTYPES
        or entry.slices
        or entry.shape.unknown_rank
        or len(shape) > _MAX_AXES
        or min((*shape, entry.offset, entry.shard_id)) < 0
        or math.prod(max(1, axis) for axis in shape) > _MAX_VALUES
        or (size := math.prod(shape) * bytes_each) > entry.size
        or (size < entry.size and dtype != tf.string)
    ):
        raise ValueError(
            f"{name!r} of {dtype.name} and shape {shape} has {entry.size} bytes"
        )


def _shape(entry: BundleEntryProto) -> tuple[int, ...]:
    return tuple(axis.size for axis in entry.shape.dim)


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a LevelDB table."""
    size = 0
    (*_, offset, length), _ = _numbers(data[-_FOOTER:], 0, 4)
    for _, value in _block(data, offset, length):
        handle, _ = _numbers(value, 0, 2)
        for key, entry in _block(data, *handle):
            size += len(key) + len(entry)
            if size > _MAX_NAMES:  # keys share their starts, and blocks may repeat
                raise ValueError(f"names and shapes of more than {_MAX_NAMES:,} bytes")
            yield key, entry


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block. A key repeats the start of the last one.

    A byte for the compression and a checksum are behind it. At its end there is a list
    of places of whole keys, which this reader does not need.
    """
    end = offset + size
    block, kind = data[offset:end], data[end : end + 1]
    if kind != b"\0" or size < 4:
        raise ValueError("a compressed or truncated block")
    if masked_crc(block + kind) != data[end + 1 : end + 5]:
        raise ValueError("a block of another checksum")
    restarts = int.from_bytes(block[-4:], "little")
    stop, at, key = len(block) - 4 * (restarts + 1), 0, b""
    if stop < 0:
        raise ValueError("a block of more places than bytes")
    while at < stop:
        (shared, added, length), at = _numbers(block, at, 3)
        if shared > len(key) or at + added + length > stop:
            raise ValueError("an entry that ends outside of its block")
        key = key[:shared] + block[at : at + added]
        at += added + length
        yield key, block[at - length : at]


def _numbers(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """Return numbers of 7 bits a byte, lowest first, and the place behind them."""
    numbers = []
    for _ in range(count):
        value, shift, byte = 0, 0, 128
        while byte >= 128:
            if at >= len(data) or shift > 63:
                raise ValueError("a number without an end")
            byte, at = data[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
        numbers.append(value)
    return numbers, at
