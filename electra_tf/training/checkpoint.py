"""Write, find and verify checkpoints, and restore training from them.

A checkpoint is a self-contained folder:

    step_00001000/
      weights.safetensors     all trained weights by path
      optimizer.safetensors   the optimizer's slots by slot and path
      config.yaml             the resolved experiment, itself a --config
      ...                     files that the caller adds: the vocabulary, the
                              metric sums since the last log line
      checkpoint.json         written last: step, sizes and checksums of the others

The folder gets its final name after all files are written, so a killed process leaves
either a complete checkpoint or none. Random numbers and the input position are
functions of (seed, step) and need no file.
"""

import dataclasses
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import safetensors.numpy

from electra_tf.errors import InputError

WEIGHTS, SLOTS = "weights.safetensors", "optimizer.safetensors"
CONFIG, MANIFEST = "config.yaml", "checkpoint.json"
CHECKPOINTS = "checkpoints"  # the folder of them within a run's
_FORMAT = 1
_NAME = re.compile(r"step_(\d+)")
_UNFINISHED = ".unfinished"
# Files of weights that Hugging Face's libraries write, whole or in shards.
_TRANSFORMERS = re.compile(
    r"(model(-\d+-of-\d+)?\.safetensors|pytorch_model(-\d+-of-\d+)?\.bin"
    r"|tf_model\.h5|flax_model\.msgpack)(\.index\.json)?"
)

Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder whose files were verified."""

    path: str
    step: int
    """Number of completed updates, and the number of the next batch."""
    metadata: Mapping[str, object]
    """Metadata of the run, such as the fingerprint of its data."""

    def weights(self) -> dict[str, np.ndarray]:
        """Return all weights by path."""
        return safetensors.numpy.load(self.read(WEIGHTS))

    def slots(self) -> dict[str, np.ndarray]:
        """Return the optimizer's slots by slot and path, `m/electra/...`."""
        return safetensors.numpy.load(self.read(SLOTS))

    def read(self, name: str) -> bytes:
        """Return the bytes of one file."""
        return pathlib.Path(self.path, name).read_bytes()


def open_checkpoint(path: str) -> Checkpoint:
    """Find a checkpoint and verify its files.

    Args:
        path: A checkpoint folder, or a run directory: its newest checkpoint.

    Returns:
        The checkpoint.

    Raises:
        InputError: No checkpoint, or a file with a wrong size or checksum.
    """
    if not pathlib.Path(path, MANIFEST).exists():
        found = saved_steps(os.path.join(path, CHECKPOINTS)) or saved_steps(path)
        if not found and (kind := foreign_weights(path)):
            raise InputError(
                "A checkpoint must be a folder that electra_tf.pretrain wrote; weights "
                "of other libraries are not read",
                f"{path!r}, {kind}",
                "Pre-train with electra_tf.pretrain, or name a checkpoint folder that "
                "it wrote",
            )
        if not found:
            raise InputError(
                "A checkpoint is a folder with a checkpoint.json, or a run's folder "
                "with checkpoints",
                f"{path!r}, which is neither",
                "Name the model_dir of a run of pretrain, or one of its checkpoints/*",
            )
        path = found[max(found)]
    manifest = _parse(pathlib.Path(path, MANIFEST).read_bytes(), path)
    for name, (size, sha256) in manifest["files"].items():
        _check(pathlib.Path(path, name), size, sha256)
    return Checkpoint(path, manifest["step"], manifest["details"])


def is_checkpoint(path: str) -> bool:
    """Return whether a path is a checkpoint, or a run directory with checkpoints.

    Args:
        path: Any path.

    Returns:
        True also for a checkpoint with damaged files.
    """
    folders = path, os.path.join(path, CHECKPOINTS)
    whole = pathlib.Path(path, MANIFEST).exists()
    return whole or any(map(saved_steps, folders))


def foreign_weights(path: str) -> str | None:
    """Recognise weights that another library wrote.

    Args:
        path: A file, a folder, or the prefix of a TensorFlow checkpoint's files.

    Returns:
        The kind of weights, with the names of their files; None for anything else.
    """
    place = pathlib.Path(path)
    folder = place if place.is_dir() else place.parent
    stem = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", place.name)
    if place.is_dir():
        indices = sorted(found.name for found in place.glob("*.index"))
    else:
        indices = [f"{stem}.index"] if (folder / f"{stem}.index").is_file() else []
    if indices:
        return f"a TensorFlow checkpoint ({indices[-1]})"
    if place.is_dir() or _TRANSFORMERS.fullmatch(place.name):
        names = [found.name for found in folder.glob("*")]
        weights = sorted(name for name in names if _TRANSFORMERS.fullmatch(name))
        if weights:
            shown = [*["config.json"] * ("config.json" in names), weights[0]]
            return f"a Hugging Face model ({', '.join(shown)})"
    return None


def saved_steps(folder: str) -> dict[int, str]:
    """Return the paths of the complete checkpoints in a folder, by step."""
    found = {}
    for manifest in pathlib.Path(folder).glob(f"step_*/{MANIFEST}"):
        if match := _NAME.fullmatch(manifest.parent.name):
            found[int(match[1])] = str(manifest.parent)
    return found


def steps_of(shares: Sequence[float], steps: int) -> set[int]:
    """Return the first steps at which these shares of training are completed.

    Args:
        shares: Shares between 0 and 1.
        steps: Number of updates of the whole training.

    Returns:
        Numbers of steps, from 1 to `steps`.
    """
    # 0.07 * 100 is slightly above 7 in float64 and would be rounded up to 8.
    return {math.ceil(round(share * steps, 6)) or 1 for share in shares}


class CheckpointManager:
    """Write checkpoints to a run directory and delete old ones.

    Args:
        folder: `checkpoints/` of the run directory.
        keep: Number of newest checkpoints to keep.
        keep_at: Shares of training whose checkpoints are never deleted.
        steps: Number of updates of the whole training.
        kept: More steps whose checkpoints are never deleted.
        remedy: Remedy of the error if a checkpoint cannot be written.
    """

    def __init__(
        self,
        folder: str,
        keep: int,
        keep_at: Sequence[float],
        steps: int,
        kept: Set[int] = frozenset(),
        remedy: str = "Free space or lower training.keep",
    ):
        self.folder, self._keep, self._remedy = folder, keep, remedy
        self._forever = steps_of(keep_at, steps) | kept

    def clean(self) -> None:
        """Delete unfinished and partly deleted checkpoints of a killed run."""
        for path in pathlib.Path(self.folder).glob(f"step_*{_UNFINISHED}"):
            shutil.rmtree(path)
        for path in pathlib.Path(self.folder).glob("step_*"):
            if _NAME.fullmatch(path.name) and not (path / MANIFEST).exists():
                shutil.rmtree(path)

    def newest(self) -> Checkpoint | None:
        """Return the checkpoint to resume from, or None."""
        found = saved_steps(self.folder)
        return open_checkpoint(found[max(found)]) if found else None

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
        """Write one checkpoint atomically.

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
            WEIGHTS: safetensors.numpy.save(dict(weights)),
            SLOTS: safetensors.numpy.save(dict(slots)),
            **files,
        }
        try:
            unfinished.mkdir(parents=True)
            for name, data in content.items():
                _write(unfinished / name, data)
            _write(unfinished / MANIFEST, _manifest(step, content, metadata))
            _sync(unfinished)
            os.replace(unfinished, path)
            _sync(path.parent)
        except OSError as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise InputError(
                f"A checkpoint of {sum(map(len, content.values())):,} bytes can be "
                f"written to {self.folder}",
                str(error),
                f"{self._remedy}, then run the same command again; the earlier "
                "checkpoints are untouched",
            ) from error
        self._delete_old()
        return str(path)

    def _delete_old(self) -> None:
        found = saved_steps(self.folder)
        for step in sorted(found)[: -self._keep]:
            if step not in self._forever:
                # Delete the manifest first: a partly deleted folder is no checkpoint.
                os.remove(os.path.join(found[step], MANIFEST))
                shutil.rmtree(found[step])


def training_state(trainer: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the weights and optimizer slots of a trainer.

    Args:
        trainer: Model with `trainable_variables` and an `optimizer`.

    Returns:
        Weights by path, and slots by slot and path.
    """
    variables = trainer.trainable_variables
    weights = {v.path: np.asarray(v) for v in variables}
    slots = {
        f"{slot}/{variable.path}": np.asarray(values)
        for slot, per_variable in trainer.optimizer.slots().items()
        for variable, values in zip(variables, per_variable, strict=True)
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
            expected[f"{slot}/{variable.path}"] = values
    assign(expected, slots, checkpoint.path)
    trainer.optimizer.iterations.assign(checkpoint.step)


def restore_weights(trainer: Any, checkpoint: Checkpoint) -> None:
    """Restore the weights alone from a checkpoint.

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
    problems = [f"no {name}" for name in variables.keys() - arrays.keys()]
    problems += [f"a surplus {name}" for name in arrays.keys() - variables.keys()]
    problems += [
        f"{name} of shape {arrays[name].shape}, not {tuple(variable.shape)}"
        for name, variable in variables.items()
        if name in arrays and tuple(variable.shape) != arrays[name].shape
    ]
    if problems:
        shown = sorted(problems)
        more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
        raise InputError(
            "A checkpoint holds the weights of the model of this config",
            f"{source}: {'; '.join(shown[:8])}{more}",
            "Use the config.yaml that lies in the checkpoint's folder",
        )
    for name, variable in variables.items():
        variable.assign(arrays[name])


def _manifest(
    step: int, files: Mapping[str, bytes], metadata: Mapping[str, object]
) -> bytes:
    sums = {
        name: [len(content), hashlib.sha256(content).hexdigest()]
        for name, content in files.items()
    }
    content = {"format": _FORMAT, "step": step, "files": sums, "details": metadata}
    return json.dumps(content, indent=1).encode()


def _write(path: pathlib.Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: pathlib.Path) -> None:
    """Flush the entries of a folder to disk, so that they survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parse(content: bytes, path: str) -> dict:
    try:
        manifest = json.loads(content)
        number = manifest["format"]
        _ = manifest["step"], manifest["files"].items(), manifest["details"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}/{MANIFEST} is as it was written",
            f"{type(error).__name__}: {error}",
            "Copy the folder again, or delete it to go on from an earlier checkpoint",
        ) from error
    if number != _FORMAT:
        raise InputError(
            f"This version reads checkpoints of format {_FORMAT}",
            f"{path}: format {number}",
            "Use the version of electra_tf that wrote it",
        )
    return manifest


def _check(path: pathlib.Path, size: int, sha256: str) -> None:
    data = path.read_bytes() if path.exists() else None
    if data is None:
        arrived = "no such file"
    elif len(data) != size:
        arrived = f"{len(data)} bytes"
    elif hashlib.sha256(data).hexdigest() != sha256:
        arrived = "as many bytes, but others"
    else:
        return
    raise InputError(
        f"{path} has the {size} bytes and the checksum that {MANIFEST} lists",
        arrived,
        "Copy the folder again, or delete it to go on from an earlier checkpoint",
    )
