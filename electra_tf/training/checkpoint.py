"""Write, find and verify checkpoints, and restore training from them.

A checkpoint is a self-contained folder:

    step_00001000/
      weights.safetensors     all trained weights by path
      optimizer.safetensors   the optimizer's slots by slot and path
      config.yaml             the resolved config, valid as --config
      ...                     more files of the caller: the vocabulary, the metric
                              sums since the last log line
      checkpoint.json         written last: step, sizes and checksums of the files

The folder gets its final name after all files are written, so a killed process leaves
either a complete checkpoint or none. Random numbers and the input position are
functions of (seed, step) and need no file.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Protocol

import numpy as np
import safetensors.numpy

from electra_tf import durable_files
from electra_tf.config import loader
from electra_tf.config.pretraining import EncoderConfig, PretrainingConfig
from electra_tf.errors import InputError

WEIGHTS, SLOTS = "weights.safetensors", "optimizer.safetensors"
CONFIG, MANIFEST = "config.yaml", "checkpoint.json"
CHECKPOINTS = "checkpoints"  # subfolder of a run directory
_FORMAT = 1
_DAMAGED = (
    "Copy the folder again, or pass --fallback to pretrain (or delete the folder) to "
    "resume from an earlier checkpoint"
)
_NAME = re.compile(r"step_(\d+)")
_UNFINISHED, _DELETED = ".unfinished", ".deleted"
_CHECKSUM = "sha256"  # of the rest of the manifest; earlier versions have none
_FIELDS = {"format", "step", "files", "details", _CHECKSUM}
_CHUNK = 2**22  # bytes read at a time
_MAX_MANIFEST = 2**24  # bytes
# Weight files of Hugging Face Transformers, whole or in shards.
_HUGGING_FACE = re.compile(
    r"(model(-\d+-of-\d+)?\.safetensors|pytorch_model(-\d+-of-\d+)?\.bin"
    r"|tf_model\.h5|flax_model\.msgpack)(\.index\.json)?"
)


class Mirror(Protocol):
    """Copy of the checkpoints, for example in an object store."""

    def publish(self, path: str) -> None:
        """Copy a new checkpoint."""

    def delete(self, path: str) -> None:
        """Delete the copy of an old checkpoint."""


Arrays = Mapping[str, Any]
"""NumPy arrays, or objects with shape, dtype, nbytes and values to be read once."""
# In the order of the format's files, whose large items come first and are so aligned.
_SAFETENSORS_DTYPES = {
    "uint64": "U64", "int64": "I64", "float64": "F64", "float32": "F32",
    "uint32": "U32", "int32": "I32", "bfloat16": "BF16", "float16": "F16",
    "uint16": "U16", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Checkpoint folder whose files are verified."""

    path: str
    step: int
    """Number of completed updates, and the number of the next batch."""
    metadata: Mapping[str, object]
    """Metadata of the run, such as the fingerprint of its data."""

    def weights(self) -> dict[str, np.ndarray]:
        """Return all weights by path."""
        return _load(pathlib.Path(self.path, WEIGHTS))

    def slots(self) -> dict[str, np.ndarray]:
        """Return the optimizer's slots by slot and path, `m/electra/...`."""
        return _load(pathlib.Path(self.path, SLOTS))

    def config(self) -> PretrainingConfig:
        """Return the settings of the run.

        Raises:
            InputError: They are damaged, or describe a larger model than the weights.
        """
        try:
            text = self.read(CONFIG).decode()
        except (UnicodeDecodeError, OSError) as error:
            raise InputError(
                f"{self.path} must have {CONFIG} in UTF-8", str(error), _DAMAGED
            ) from error
        config = loader.parse_config(text, self.path)
        # The working copy of a remote run has old checkpoints without weights.
        weights = pathlib.Path(self.path, WEIGHTS)
        stored = weights.stat().st_size if weights.exists() else math.inf
        shapes = config.model.encoder, config.model.generator
        needed = sum(map(_least_bytes, shapes))
        if needed > stored:
            raise InputError(
                f"{self.path}/{WEIGHTS} must have the weights of the model in {CONFIG}",
                f"{stored:,} bytes for a model of more than {needed:,}",
                _DAMAGED,
            )
        return config

    def read(self, name: str) -> bytes:
        """Return the bytes of one file."""
        return pathlib.Path(self.path, name).read_bytes()


def open_checkpoint(path: str) -> Checkpoint:
    """Open a checkpoint and verify its files.

    Args:
        path: A checkpoint folder, or a run directory to open its newest checkpoint.

    Returns:
        The checkpoint.

    Raises:
        InputError: No checkpoint, or a file with a wrong size or checksum.
    """
    if not os.path.exists(os.path.join(path, MANIFEST)):
        paths = saved_steps(os.path.join(path, CHECKPOINTS)) or saved_steps(path)
        if not paths and (kind := foreign_weights(path)):
            raise InputError(
                "A checkpoint must be a folder that electra_tf.pretrain wrote",
                f"{path!r}, {kind}",
                "Convert it with electra_tf.convert, and pass the result",
            )
        if not paths:
            raise InputError(
                f"A checkpoint must be a folder with {MANIFEST}, or a run directory "
                "with checkpoints",
                f"{path!r}, which is neither",
                "Pass the --model_dir of a pretrain run, or one of its checkpoints/*",
            )
        path = paths[max(paths)]
    manifest = parse_manifest(_read_manifest(pathlib.Path(path, MANIFEST)), path)
    for name, (size, sha256) in manifest["files"].items():
        _verify_file(pathlib.Path(path, name), size, sha256)
    return Checkpoint(path, manifest["step"], manifest["details"])


def newest_intact(folder: str) -> tuple[Checkpoint, dict[str, InputError]]:
    """Open the newest checkpoint whose files are intact.

    Args:
        folder: A run directory with one checkpoint or more.

    Returns:
        The checkpoint, and the errors of newer ones by their paths.

    Raises:
        InputError: All are damaged.
    """
    paths, damaged = saved_steps(os.path.join(folder, CHECKPOINTS)), {}
    for step in sorted(paths, reverse=True):
        try:
            return open_checkpoint(paths[step]), damaged
        except InputError as error:
            damaged[paths[step]] = error
    raise InputError(
        "A run to resume must have a checkpoint that is not damaged",
        "; ".join(map(str, damaged.values()))[:1000],
        "Copy the run again, or start a new one in another --model_dir",
    )


def is_checkpoint(path: str) -> bool:
    """Return whether a path is a checkpoint, or a run directory with checkpoints.

    Args:
        path: Any path.

    Returns:
        True also for a checkpoint with damaged files.
    """
    folders = path, os.path.join(path, CHECKPOINTS)
    has_manifest = pathlib.Path(path, MANIFEST).exists()
    return has_manifest or any(map(saved_steps, folders))


def foreign_weights(path: str) -> str | None:
    """Describe weights that another library wrote.

    Args:
        path: A file, a folder, or the prefix of a TensorFlow checkpoint's files.

    Returns:
        Kind of the weights with names of their files, or None for anything else.
    """
    target = pathlib.Path(path)
    folder = target if target.is_dir() else target.parent
    stem = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", target.name)
    if target.is_dir():
        indices = sorted(file.name for file in target.glob("*.index"))
    else:
        indices = [f"{stem}.index"] if (folder / f"{stem}.index").is_file() else []
    if indices:
        return f"a TensorFlow checkpoint ({indices[-1]})"
    if target.is_dir() or _HUGGING_FACE.fullmatch(target.name):
        names = [file.name for file in folder.glob("*")]
        weights = sorted(name for name in names if _HUGGING_FACE.fullmatch(name))
        if weights:
            shown = [*["config.json"] * ("config.json" in names), weights[0]]
            return f"a Hugging Face model ({', '.join(shown)})"
    return None


def saved_steps(folder: str) -> dict[int, str]:
    """Return the paths of all complete checkpoints in a folder, by step."""
    paths = {}
    for manifest in pathlib.Path(folder).glob(f"step_*/{MANIFEST}"):
        if match := _NAME.fullmatch(manifest.parent.name):
            paths[int(match[1])] = str(manifest.parent)
    return paths


def steps_at_shares(shares: Sequence[float], steps: int) -> set[int]:
    """Return the first steps at which given shares of training are completed.

    Args:
        shares: Shares between 0 and 1.
        steps: Number of updates of the whole training.

    Returns:
        Numbers of steps, from 1 to `steps`.
    """
    # 0.07 * 100 is slightly above 7 in float64 and would be rounded up to 8.
    return {math.ceil(round(share * steps, 6)) or 1 for share in shares}


class CheckpointManager:
    """Writer of checkpoints to a run directory, which also deletes old ones.

    Args:
        folder: `checkpoints/` of the run directory.
        keep: Number of newest checkpoints to keep.
        keep_at: Shares of training whose checkpoints are never deleted.
        steps: Number of updates of the whole training.
        keep_steps: More steps whose checkpoints are never deleted.
        remedy: Remedy of the error if a checkpoint cannot be written.
        mirror: Gets each new checkpoint, and loses each deleted one.
    """

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
            elif _NAME.fullmatch(path.name) and not (path / MANIFEST).exists():
                aside = self.set_aside(path, "without_manifest")
                lines.append(f"{path} has no {MANIFEST}; it is now {aside}")
        return lines

    def set_aside(self, path: str | os.PathLike, kind: str) -> str:
        """Rename a folder that is no checkpoint to resume from.

        Args:
            path: The folder, or a link to it, which is renamed itself.
            kind: Added to its name.

        Returns:
            Its new path.
        """
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
        """Write a checkpoint atomically, unless the step is saved already.

        Args:
            step: Number of completed updates.
            weights: Weights by path.
            slots: Optimizer slots by slot and path.
            files: Other files by name, including the config.
            metadata: Metadata of the run, serializable as JSON.

        Returns:
            The folder of the checkpoint.
        """
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
            manifest = _manifest(step, sums, metadata)
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


def _delete(path: pathlib.Path) -> None:
    """Delete a folder, or a link to a folder, which keeps its files."""
    path.unlink() if path.is_symlink() else shutil.rmtree(path)


class VariableArray:
    """Array of a variable that is copied when it is read, not before.

    Args:
        variable: A Keras or TensorFlow variable.
    """

    def __init__(self, variable: Any):
        self._variable = variable
        self.shape = tuple(variable.shape)
        self.dtype = np.dtype(getattr(variable.dtype, "name", variable.dtype))

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the current values."""
        return np.asarray(self._variable, dtype)


def training_state(
    trainer: Any,
) -> tuple[dict[str, VariableArray], dict[str, VariableArray]]:
    """Return the weights and optimizer slots of a trainer, to be read one by one.

    Args:
        trainer: Model with `trainable_variables` and an `optimizer`.

    Returns:
        Weights by path, and slots by slot and path. They change with the variables.
    """
    variables = trainer.trainable_variables
    weights = {v.path: VariableArray(v) for v in variables}
    slots = {
        f"{slot}/{variable.path}": VariableArray(values)
        for slot, per_variable in trainer.optimizer.slots().items()
        for variable, values in zip(variables, per_variable, strict=True)
        if values is not None
    }
    return weights, slots


def restore(trainer: Any, checkpoint: Checkpoint) -> None:
    """Restore weights, optimizer slots and step from a checkpoint.

    Args:
        trainer: Model with a built optimizer.
        checkpoint: Checkpoint of the same model and optimizer.
    """
    restore_weights(trainer, checkpoint)
    slots, expected = checkpoint.slots(), {}
    for slot, per_variable in trainer.optimizer.slots().items():
        for variable, values in zip(
            trainer.trainable_variables, per_variable, strict=True
        ):
            if values is not None:
                expected[f"{slot}/{variable.path}"] = values
    assign(expected, slots, checkpoint.path)
    trainer.optimizer.iterations.assign(checkpoint.step)


def restore_weights(trainer: Any, checkpoint: Checkpoint) -> None:
    """Restore only the weights from a checkpoint.

    Args:
        trainer: Model with the same variables.
        checkpoint: Checkpoint to read.
    """
    expected = {v.path: v for v in trainer.trainable_variables}
    assign(expected, checkpoint.weights(), checkpoint.path)


def assign(
    variables: Mapping[str, Any], arrays: Mapping[str, np.ndarray], source: str
) -> None:
    """Assign arrays to variables of the same names, all or none.

    Args:
        variables: Variables by name.
        arrays: Arrays by name.
        source: Origin of the arrays, for the error message.

    Raises:
        InputError: Names or shapes differ; the message lists them.
    """
    problems = [f"missing {name}" for name in variables.keys() - arrays.keys()]
    problems += [f"surplus {name}" for name in arrays.keys() - variables.keys()]
    problems += [
        f"{name} has shape {arrays[name].shape}, not {tuple(variable.shape)}"
        for name, variable in variables.items()
        if name in arrays and tuple(variable.shape) != arrays[name].shape
    ]
    if problems:
        shown = sorted(problems)
        more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
        raise InputError(
            "A checkpoint must have the weights of the configured model",
            f"{source}: {'; '.join(shown[:8])}{more}",
            "Use the config.yaml of the checkpoint folder",
        )
    for name, variable in variables.items():
        variable.assign(arrays[name])


def _manifest(
    step: int, sums: Mapping[str, list], metadata: Mapping[str, object]
) -> bytes:
    content = {"format": _FORMAT, "step": step, "files": sums, "details": metadata}
    return json.dumps({**content, _CHECKSUM: _checksum(content)}, indent=1).encode()


def _checksum(manifest: Mapping[str, object]) -> str:
    """Return the SHA-256 of a manifest's content, without its checksum."""
    content = {name: manifest[name] for name in manifest if name != _CHECKSUM}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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


def _least_bytes(shape: EncoderConfig) -> int:
    """Return a lower bound of the bytes of an encoder's weights.

    A model need not store its generator, so this counts half of each float32.
    """
    rows = shape.vocabulary_size + shape.max_positions + shape.segments
    layer = 4 * shape.width * shape.width + 2 * shape.width * shape.feed_forward
    return 2 * (rows * shape.embedding + shape.depth * layer)


def _load(path: pathlib.Path) -> Arrays:
    try:
        return safetensors.numpy.load_file(path)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise InputError(
            f"{path} must be a whole safetensors file",
            f"{type(error).__name__}: {error}"[:300],
            _DAMAGED,
        ) from error


def _read_manifest(path: pathlib.Path) -> bytes:
    size = path.stat().st_size
    if not path.is_file() or size > _MAX_MANIFEST:
        raise InputError(
            f"{path} must be a regular file of at most {_MAX_MANIFEST:,} bytes",
            f"{size:,} bytes" if path.is_file() else "another kind of file",
            _DAMAGED,
        )
    return path.read_bytes()


def _check_own_checksum(manifest: dict) -> None:
    if surplus := manifest.keys() - _FIELDS:
        raise ValueError(f"the fields {sorted(surplus)}"[:200])
    expected = _checksum(manifest)
    if manifest.get(_CHECKSUM, expected) != expected:
        raise ValueError("another checksum than that of its content")


def parse_manifest(content: bytes, path: str) -> dict[str, Any]:
    """Parse and check the manifest of a checkpoint.

    Args:
        content: Content of its `checkpoint.json`.
        path: The checkpoint, for messages.

    Returns:
        `step`, `details`, and `files`: size and SHA-256 by name.

    Raises:
        InputError: It is damaged, or of another format.
    """
    try:
        manifest = json.loads(content)
        format_number = manifest["format"]
        _ = manifest["details"].items()
        if type(manifest["step"]) is not int or manifest["step"] < 0:
            raise ValueError(f"step {manifest['step']!r:.40}")
        for name, (size, _sum) in manifest["files"].items():
            if name != os.path.basename(name) or name in ("", ".", ".."):
                raise ValueError(f"the name {name!r:.60} of a file elsewhere")
            if type(size) is not int:
                raise ValueError(f"the size {size!r:.40}")
        if format_number == _FORMAT:
            _check_own_checksum(manifest)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise InputError(
            f"{path}/{MANIFEST} must be an undamaged manifest",
            f"{type(error).__name__}: {error}",
            _DAMAGED,
        ) from error
    if format_number != _FORMAT:
        raise InputError(
            f"The format of a checkpoint must be {_FORMAT}",
            f"{path}: format {format_number}",
            "Use the version of electra_tf that wrote it",
        )
    return manifest


def _verify_file(path: pathlib.Path, size: int, sha256: str) -> None:
    found = path.stat().st_size if path.exists() else None
    if found is None:
        received = "no such file"
    elif not path.is_file():
        received = "no regular file"
    elif found != size:
        received = f"{found} bytes"
    elif _sha256(path) != sha256:
        received = "the same size, but another checksum"
    else:
        return
    raise InputError(
        f"{path} must have the {size} bytes and the checksum in {MANIFEST}",
        received,
        _DAMAGED,
    )


def _sha256(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
