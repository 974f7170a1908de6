"""Write, find, verify and restore checkpoints.

A checkpoint is a self-contained folder:

    step_00001000/
      weights.safetensors     all trained weights by path
      optimizer.safetensors   the optimizer's slots by slot and path
      config.yaml             the resolved config, valid as --config
      ...                     more files of the caller, such as the vocabulary
      checkpoint.json         written last: step, sizes and checksums of the files

Random numbers and the input position are functions of (seed, step) and need no file.
The folder gets its name after all files are written, so a killed process leaves either
a complete checkpoint or none.
"""

import dataclasses
import errno
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.numpy

from electra_tf import durable_files
from electra_tf.config import loader
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError, join_first
from electra_tf.training.disk_errors import reraise_full_disk
from electra_tf.untrusted_files import read_safetensors

WEIGHTS, SLOTS = "weights.safetensors", "optimizer.safetensors"
CONFIG, MANIFEST = "config.yaml", "checkpoint.json"
CHECKPOINT_FILES = (MANIFEST, CONFIG, WEIGHTS, SLOTS)
"""Files of a checkpoint that stand for it as a path."""
CHECKPOINTS = "checkpoints"  # subfolder of a run directory
_NAME = re.compile(r"step_(\d+)")
_FORMAT = 1
_DELETED = ".deleted"

Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Checkpoint folder whose files are verified."""

    path: str
    step: int
    """Number of completed updates, and the number of the next batch."""
    metadata: Mapping[str, Any]
    """Metadata of the run, such as the fingerprint of its data."""
    sums: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """SHA-256 of each file, as the manifest has it."""

    def weights(self) -> dict[str, np.ndarray]:
        """Return all weights by path, float32."""
        weights = read_safetensors(os.path.join(self.path, WEIGHTS))
        return {n: w.astype(np.float32, copy=False) for n, w in weights.items()}

    def slots(self) -> dict[str, np.ndarray]:
        """Return the optimizer's slots by slot and path, `m/electra/...`."""
        return read_safetensors(os.path.join(self.path, SLOTS))

    def config(self) -> PretrainingConfig:
        """Return the settings of the run."""
        return loader.parse_config(self.read(CONFIG).decode(), self.path)

    def read(self, name: str) -> bytes:
        """Return the bytes of one file."""
        return pathlib.Path(self.path, name).read_bytes()


def open_checkpoint(
    path: str, verify: bool = True, skip: Container[str] = ()
) -> Checkpoint:
    """Open a checkpoint, or the newest one of a run, and verify its files.

    Without `verify` only its manifest and settings must be there. `skip`: files that
    are not read, so not verified either.
    """
    path = folder_of(path, CHECKPOINT_FILES)
    if not os.path.exists(os.path.join(path, MANIFEST)):
        newest = newest_path(os.path.join(path, CHECKPOINTS)) or newest_path(path)
        if newest is None:
            raise InputError(
                f"{path!r} must be a folder with {MANIFEST}, or a run directory of "
                "pretrain with checkpoints"
            )
        path = newest
    manifest = parse_manifest(pathlib.Path(path, MANIFEST).read_bytes(), path)
    for name, (size, sha256) in manifest["files"].items() if verify else ():
        file = pathlib.Path(path, name)
        if name in skip:
            continue
        if not file.is_file():
            damage = "no such file"
        elif file.stat().st_size != size:
            damage = f"{file.stat().st_size} bytes in place of {size}"
        elif durable_files.sha256(file) != sha256:
            damage = "another checksum"
        else:
            continue
        raise _damaged(path, name, damage)
    sums = {name: sha256 for name, (_, sha256) in manifest["files"].items()}
    return Checkpoint(path, manifest["step"], manifest["details"], sums)


def saved_steps(folder: str) -> dict[int, str]:
    """Return the paths of all complete checkpoints in a folder, by step."""
    paths = {}
    for manifest in pathlib.Path(folder).glob(f"step_*/{MANIFEST}"):
        if match := _NAME.fullmatch(manifest.parent.name):
            paths[int(match[1])] = str(manifest.parent)
    return paths


def open_newest(folder: str, verify: bool = True) -> Checkpoint | None:
    """Open the newest complete checkpoint in a folder, or return None."""
    path = newest_path(folder)
    return open_checkpoint(path, verify) if path else None


def newest_path(folder: str) -> str | None:
    """Return the path of the newest complete checkpoint in a folder, or None."""
    paths = saved_steps(folder)
    return paths[max(paths)] if paths else None


def delete_unfinished(folder: str) -> None:
    """Delete unfinished and partly deleted checkpoints of a killed run.

    Raises:
        InputError: Another folder named as a checkpoint has no manifest; it may hold
            weights that somebody needs.
    """
    for path in sorted(pathlib.Path(folder).glob("step_*")):
        if path.name.endswith((durable_files.PARTIAL, _DELETED)):
            _delete(path)
        elif _NAME.fullmatch(path.name) and not (path / MANIFEST).exists():
            raise _damaged(path, MANIFEST, "no such file")


def steps_at_shares(shares: Sequence[float], steps: int) -> set[int]:
    """Return the first steps at which given shares of training are completed."""
    # 0.07 * 100 is slightly above 7 in float64 and would be rounded up to 8.
    return {math.ceil(round(share * steps, 6)) or 1 for share in shares}


def is_checkpoint(path: str) -> bool:
    """Return whether a path is a checkpoint, or a run directory with checkpoints."""
    path = folder_of(path, CHECKPOINT_FILES)
    folders = path, os.path.join(path, CHECKPOINTS)
    has_manifest = pathlib.Path(path, MANIFEST).exists()
    return has_manifest or any(map(saved_steps, folders))


def folder_of(path: str, names: Container[str]) -> str:
    """Return the folder of a model's file, or the path if it is no such file."""
    folder, name = os.path.split(path)
    return folder or os.curdir if name in names and os.path.isfile(path) else path


def parse_manifest(content: bytes, path: str) -> dict[str, Any]:
    """Return `step`, `details`, and `files`: size and SHA-256 by name."""
    try:
        manifest = json.loads(content)
        number, checksum = manifest["format"], manifest.pop("sha256", None)
        _ = manifest["step"], manifest["details"]
        # A checkpoint may come from an object store; its files stay in its folder.
        names = [*manifest["files"]]
        if outside := [n for n in names if n != os.path.basename(n) or n == ".."]:
            raise ValueError(f"files elsewhere: {outside[:3]}")
        if number == _FORMAT and checksum != _checksum(manifest):
            raise ValueError("another checksum than that of its content")
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as e:
        raise _damaged(path, MANIFEST, f"{e!r:.300}") from e
    if number != _FORMAT:
        raise InputError(
            f"{path} has the checkpoint format {number}, which only another version of "
            "electra_tf reads"
        )
    return manifest


def _damaged(folder: str | os.PathLike, name: str, reason: Any) -> InputError:
    return InputError(
        f"{folder}/{name} is damaged: {reason}; copy the folder {folder} again, or "
        "delete it to resume from the checkpoint before it"
    )


class CheckpointManager:
    """Writer of checkpoints to a folder, which may be new; it also deletes old ones.

    The newest `keep` stay, and those for which `is_permanent(step, config)` is true,
    with the bytes of their config. A `backup` also has every checkpoint:
    `upload(path)`, `delete_old(keep, is_permanent)`.
    """

    def __init__(
        self,
        folder: str,
        keep: int = 1,
        is_permanent: Callable[[int, bytes | None], bool] = lambda step, config: False,
        backup: Any = None,
    ):
        self.folder, self._keep, self._is_permanent = folder, keep, is_permanent
        self._backup = backup

    def save(
        self,
        step: int,
        weights: Arrays,
        slots: Arrays,
        files: Mapping[str, bytes],
        metadata: Mapping[str, Any],
    ) -> str:
        """Write a checkpoint atomically, unless the step is saved already."""
        path = self._path(step)
        if (path / MANIFEST).exists():
            return str(path)
        sums, remedy = {}, "free space, then run the same command again"
        if saved_steps(self.folder):
            remedy = (
                f"earlier checkpoints are unchanged; lower training.keep or {remedy}"
            )
        with (
            reraise_full_disk(self.folder, remedy),
            durable_files.new_folder(path) as partial,
        ):
            folder = pathlib.Path(partial)
            for name, data in {WEIGHTS: weights, SLOTS: slots, **files}.items():
                sums[name] = _write_file(folder / name, data)
            content = {"format": _FORMAT, "step": step, "files": sums}
            content["details"] = metadata
            text = json.dumps({**content, "sha256": _checksum(content)}, indent=1)
            _write_file(folder / MANIFEST, text.encode())
        if self._backup is not None:
            self._backup.upload(path)
        self._delete_old()
        return str(path)

    def _path(self, step: int) -> pathlib.Path:
        return pathlib.Path(self.folder, f"step_{step:08d}")

    def _delete_old(self) -> None:
        if self._backup is not None:
            self._backup.delete_old(self._keep, self._is_permanent)
        paths = saved_steps(self.folder)
        for step in sorted(paths)[: -self._keep]:
            config = pathlib.Path(paths[step], CONFIG)
            config = config.read_bytes() if config.exists() else None
            if self._is_permanent(step, config):
                continue
            # Another name first, so that a killed process leaves no damaged checkpoint.
            deleted = pathlib.Path(f"{paths[step]}{_DELETED}")
            os.rename(paths[step], deleted)
            _delete(deleted)


def write_safetensors(
    path: str | os.PathLike,
    arrays: Arrays,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a safetensors file; an array of any layout in memory is written right."""
    # The library writes the memory of a transposed array in the order of its bytes.
    ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    try:
        safetensors.numpy.save_file(ordered, path, metadata)
    except safetensors.SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        raise OSError(int(code[1]) if code else errno.EIO, str(error)) from error


def training_state(trainer: Any) -> tuple[Arrays, Arrays]:
    """Return a trainer's weights by path, and its slots by slot and path.

    On a CPU the arrays are the variables' memory, without a copy.
    """
    # The module is also imported for the names of its files, before TensorFlow.
    import tensorflow as tf

    def arrays(variables: Mapping[str, Any]) -> Arrays:
        return {n: np.asarray(tf.convert_to_tensor(v)) for n, v in variables.items()}

    weights = {v.path: v for v in trainer.trainable_variables}
    return arrays(weights), arrays(_slots(trainer))


def restore(trainer: Any, checkpoint: Checkpoint) -> None:
    """Restore weights, optimizer slots and step from a checkpoint."""
    variables = {v.path: v for v in trainer.trainable_variables}
    assign(variables, checkpoint.weights(), checkpoint.path)
    slots = checkpoint.slots()
    if not slots:
        raise InputError(
            f"{checkpoint.path} has no state of the optimizer to resume with; start a "
            "run with --init_checkpoint"
        )
    assign(_slots(trainer), slots, checkpoint.path)
    trainer.optimizer.iterations.assign(checkpoint.step)


def assign(variables: Mapping[str, Any], arrays: Arrays, source: str) -> None:
    """Assign arrays to variables of the same names, all or none."""
    problems = [f"missing {name}" for name in variables.keys() - arrays.keys()]
    problems += [f"surplus {name}" for name in arrays.keys() - variables.keys()]
    problems += [
        f"{name} has shape {arrays[name].shape}, not {tuple(variable.shape)}"
        for name, variable in variables.items()
        if name in arrays and tuple(variable.shape) != arrays[name].shape
    ]
    if problems:
        raise InputError(
            f"{source} must have the weights of the configured model: "
            f"{join_first(sorted(problems), 8, '; ')}"
        )
    for name, variable in variables.items():
        variable.assign(arrays[name])


def _slots(trainer: Any) -> dict[str, Any]:
    """Return the optimizer's slot variables by slot and path of their weight."""
    return {
        f"{slot}/{variable.path}": values
        for slot, per_variable in trainer.optimizer.slots().items()
        for variable, values in zip(
            trainer.trainable_variables, per_variable, strict=True
        )
        if values is not None
    }


def _checksum(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest's content, without its checksum."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _write_file(path: pathlib.Path, content: bytes | Arrays) -> list:
    """Write a file and return its size and SHA-256."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        write_safetensors(path, content)
    return [path.stat().st_size, durable_files.sha256(path)]


def _delete(path: pathlib.Path) -> None:
    """Delete a folder, or a link to a folder, which keeps its files."""
    path.unlink() if path.is_symlink() else shutil.rmtree(path)
