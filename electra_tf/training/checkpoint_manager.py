"""Write checkpoints to a run directory, and delete old ones.

A checkpoint gets its final name after all files are written, so a killed process leaves
either a complete checkpoint or none.
"""

import hashlib
import itertools
import json
import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Protocol

import numpy as np

from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.training.checkpoint import (
    NAME,
    SLOTS,
    WEIGHTS,
    Arrays,
    Checkpoint,
    open_checkpoint,
    saved_steps,
    steps_at_shares,
)
from electra_tf.training.checkpoint_manifest import MANIFEST, format_manifest

_UNFINISHED, _DELETED = ".unfinished", ".deleted"
# In the order of the format's files, whose large items come first and are so aligned.
_SAFETENSORS_DTYPES = {
    "uint64": "U64", "int64": "I64", "float64": "F64", "float32": "F32",
    "uint32": "U32", "int32": "I32", "bfloat16": "BF16", "float16": "F16",
    "uint16": "U16", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


class Mirror(Protocol):
    """Copy of the checkpoints, for example in an object store."""

    def publish(self, path: str) -> None:
        """Copy a new checkpoint."""

    def delete(self, path: str) -> None:
        """Delete the copy of an old checkpoint."""


class CheckpointManager:
    """Writer of checkpoints to a run directory, which also deletes old ones."""

    def __init__(
        self,
        folder: str,
        keep: int,
        keep_at: Sequence[float],
        steps: int,
        keep_steps: Set[int] = frozenset(),
        remedy: str = "Free space or lower training.keep",
        mirror: Mirror | None = None,
    ):
        self.folder, self._keep, self._remedy = folder, keep, remedy
        self._mirror = mirror
        self._permanent_steps = steps_at_shares(keep_at, steps) | keep_steps

    def clean(self) -> list[str]:
        """Delete unfinished and partly deleted checkpoints of a killed run.

        Other folders named as a checkpoint are renamed: they may hold weights that
        somebody needs.

        Returns:
            A line for each renamed folder.
        """
        lines = []
        for path in sorted(pathlib.Path(self.folder).glob("step_*")):
            if path.name.endswith((_UNFINISHED, _DELETED)):
                _delete(path)
            elif NAME.fullmatch(path.name) and not (path / MANIFEST).exists():
                aside = self.set_aside(path, "without_manifest")
                lines.append(f"{path} has no {MANIFEST}; it is now {aside}")
        return lines

    def set_aside(self, path: str | os.PathLike, kind: str) -> str:
        """Rename a folder that is no checkpoint to resume from."""
        names = (f"{os.fspath(path)}.{kind}{n or ''}" for n in itertools.count())
        aside = next(name for name in names if not os.path.lexists(name))
        os.rename(path, aside)
        return aside

    def newest(self) -> Checkpoint | None:
        """Return the checkpoint to resume from, or None."""
        paths = saved_steps(self.folder)
        return open_checkpoint(paths[max(paths)]) if paths else None

    def read(self, step: int, name: str) -> bytes | None:
        """Return a file of a step's checkpoint, or None if it does not exist."""
        path = self._path(step) / name
        return path.read_bytes() if path.exists() else None

    def _path(self, step: int) -> pathlib.Path:
        return pathlib.Path(self.folder, f"step_{step:08d}")

    def save(
        self,
        step: int,
        weights: Arrays,
        slots: Arrays,
        files: Mapping[str, bytes],
        metadata: Mapping[str, object],
    ) -> str:
        """Write a checkpoint atomically, unless the step is saved already."""
        path = self._path(step)
        if (path / MANIFEST).exists():
            return str(path)
        unfinished = path.with_name(path.name + _UNFINISHED)
        content = {
            WEIGHTS: weights,
            SLOTS: slots,
            **files,
        }
        sums = {}
        try:
            unfinished.mkdir(parents=True)
            for name, data in content.items():
                parts = [data] if isinstance(data, bytes) else safetensors_parts(data)
                sums[name] = _write_file(unfinished / name, parts)
            manifest = format_manifest(step, sums, metadata)
            _write_file(unfinished / MANIFEST, [manifest])
            durable_files.publish(unfinished, path)
        except OSError as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise InputError(
                f"{self.folder} must have room for a checkpoint of "
                f"{sum(map(_size, content.values())):,} bytes",
                str(error),
                f"{self._remedy}, then run the same command again; earlier "
                "checkpoints are unchanged",
            ) from error
        if self._mirror is not None:
            self._mirror.publish(str(path))
        self._delete_old()
        return str(path)

    def _delete_old(self) -> None:
        paths = saved_steps(self.folder)
        for step in sorted(paths)[: -self._keep]:
            if step not in self._permanent_steps:
                if self._mirror is not None:
                    self._mirror.delete(paths[step])
                # Another name first, so that a killed process leaves no damaged
                # checkpoint.
                deleted = pathlib.Path(f"{paths[step]}{_DELETED}")
                os.rename(paths[step], deleted)
                _delete(deleted)


def safetensors_parts(
    tensors: Arrays, metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a safetensors file, so that no second copy exists in memory.

    Args:
        tensors: Arrays by name, of any layout in memory.
        metadata: Of the file's header.

    Returns:
        The header, then the data of one tensor at a time.
    """
    order = list(_SAFETENSORS_DTYPES)
    names = sorted(tensors, key=lambda n: (order.index(tensors[n].dtype.name), n))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        array, start = tensors[name], end
        end += array.nbytes
        header[name] = {
            "dtype": _SAFETENSORS_DTYPES[array.dtype.name],
            "shape": array.shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        array = np.ascontiguousarray(tensors[name])
        yield array.reshape(-1).view(np.uint8).data


def _delete(path: pathlib.Path) -> None:
    """Delete a folder, or a link to a folder, which keeps its files."""
    path.unlink() if path.is_symlink() else shutil.rmtree(path)


def _size(content: bytes | Arrays) -> int:
    if isinstance(content, bytes):
        return len(content)
    return sum(array.nbytes for array in content.values())


def _write_file(path: pathlib.Path, parts: Iterable[bytes | memoryview]) -> list:
    """Write a file and return its size and SHA-256."""
    size, digest = 0, hashlib.sha256()
    with path.open("wb") as file:
        for part in parts:
            file.write(part)
            digest.update(part)
            size += len(part)
    return [size, digest.hexdigest()]
