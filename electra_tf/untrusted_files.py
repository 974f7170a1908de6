"""Read files that may come from strangers: small ones, JSON and safetensors."""

import json
import os
import pathlib
import struct
from typing import Any

import google_crc32c
import ml_dtypes
import numpy as np
import safetensors

from electra_tf.errors import InputError, report_damage

_MAX_BYTES = 1 << 25  # the tokenizer.json of the largest vocabularies; of headers
_MAX_VALUES = 6_000_000  # parsed, a value may take 20 times its bytes
_DTYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8,
    "BOOL": np.bool_,
}  # fmt: skip


def read_json(path: str | os.PathLike) -> dict[str, Any]:
    """Return the object in a JSON file."""
    with report_damage(os.fspath(path)):
        value = _parse_small_json(read_small_file(path, _MAX_BYTES))
        if isinstance(value, dict):
            return value
        raise ValueError(f"a JSON {type(value).__name__}, not an object")


def _parse_small_json(content: bytes) -> Any:
    """Parse JSON, whose number of values is checked before it takes memory."""
    if sum(map(content.count, (b"[", b"{", b","))) > _MAX_VALUES:
        raise ValueError(f"more than {_MAX_VALUES:,} values")
    return parse_json(content)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError for any that is invalid."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("too many brackets within brackets") from error


def read_small_file(path: str | os.PathLike, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes."""
    path = pathlib.Path(path)
    if path.exists() and not path.is_file():  # a pipe may have no end
        raise OSError(f"{str(path)!r} is no regular file")
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        size = path.stat().st_size
        raise InputError(f"{path} has {size:,} bytes; at most {limit:,} are read")
    return content


def read_safetensors(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Return the tensors of a file as views that take no memory of their own."""
    with report_damage(os.fspath(path), safetensors.SafetensorError):
        # `safe_open` checks that header and data fit together. It takes a file that may
        # not be read for a missing one.
        with open(path, "rb") as file, safetensors.safe_open(path, framework="numpy"):
            size = int.from_bytes(file.read(8), "little")
            if size > _MAX_BYTES:
                raise ValueError(f"a header of {size:,} bytes")
            header = _parse_small_json(file.read(size))
        header.pop("__metadata__", None)
        if not any(0 not in entry["shape"] for entry in header.values()):
            return {n: np.zeros(e["shape"], np.float32) for n, e in header.items()}
        data = np.memmap(path, np.uint8, "r", 8 + size)
        return {name: _view(data, name, entry) for name, entry in header.items()}


def _view(data: np.ndarray, name: str, entry: dict[str, Any]) -> np.ndarray:
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"{name!r} has the dtype {entry['dtype']}")
    start, end = entry["data_offsets"]
    values = np.asarray(data[start:end]).view(_DTYPES[entry["dtype"]])
    return values.reshape(entry["shape"])


def masked_crc(data: bytes | np.ndarray) -> bytes:
    """Return the checksum of TensorFlow's files for some bytes."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
