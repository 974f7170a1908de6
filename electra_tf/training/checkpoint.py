"""What a checkpoint is: a folder that needs nothing beside it.

    step_00001000/
      weights.safetensors     every trained weight by its path
      optimizer.safetensors   the optimizer's slots by slot and path
      config.yaml             the resolved experiment, itself a --config
      ...                     other small files the caller adds (the vocabulary, sums
                              of metrics between two lines)
      checkpoint.json         written last: step, sizes and checksums of the others

It appears under its name only when it is whole, so a kill leaves either a good folder
or none. The step says everything about randomness and input position, both of which
are functions of (seed, step).
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
    """A folder that was found whole."""

    path: str
    step: int
    """Updates done; the next batch is the one of this number."""
    metadata: Mapping[str, object]
    """What the run noted about itself: the identity of its data, for one."""

    def weights(self) -> dict[str, np.ndarray]:
        """All weights by path."""
        return safetensors.numpy.load(self.read(WEIGHTS))

    def slots(self) -> dict[str, np.ndarray]:
        """The optimizer's slots by slot and path, `m/electra/...`."""
        return safetensors.numpy.load(self.read(SLOTS))

    def read(self, name: str) -> bytes:
        """The bytes of one of the files."""
        return pathlib.Path(self.path, name).read_bytes()


def open_checkpoint(path: str) -> Checkpoint:
    """Finds a checkpoint and checks that its files are whole.

    Args:
        path: A checkpoint's folder, or a run's folder, whose newest is taken.

    Returns:
        The checkpoint.

    Raises:
        InputError: There is none, or a file's size or checksum is not as written.
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
    """Return whether a path is a checkpoint, or a run's folder with checkpoints.

    Args:
        path: Any.

    Returns:
        True also for a checkpoint with broken files.
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
    """The whole checkpoints in a folder, by step."""
    found = {}
    for manifest in pathlib.Path(folder).glob(f"step_*/{MANIFEST}"):
        if match := _NAME.fullmatch(manifest.parent.name):
            found[int(match[1])] = str(manifest.parent)
    return found


def steps_of(shares: Sequence[float], steps: int) -> set[int]:
    """The first steps at which these shares of training are done.

    Args:
        shares: Between 0 and 1.
        steps: Updates of the whole training.

    Returns:
        Numbers of steps, from 1 to `steps`.
    """
    # Rounded first: 0.07 * 100 is more than 7, and would be 8.
    return {math.ceil(round(share * steps, 6)) or 1 for share in shares}


class CheckpointManager:
    """Writes checkpoints into a run's folder and deletes those that are not kept.

    Args:
        folder: `checkpoints/` of the run.
        keep: How many of the newest stay.
        keep_at: Shares of training whose checkpoint stays for ever.
        steps: Updates of the whole training.
        kept: Steps whose checkpoints stay for ever, too.
        remedy: The advice where a checkpoint cannot be written.
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
        """Deletes what a killed run left unfinished or half deleted."""
        for path in pathlib.Path(self.folder).glob(f"step_*{_UNFINISHED}"):
            shutil.rmtree(path)
        for path in pathlib.Path(self.folder).glob("step_*"):
            if _NAME.fullmatch(path.name) and not (path / MANIFEST).exists():
                shutil.rmtree(path)

    def newest(self) -> Checkpoint | None:
        """The checkpoint to go on from, if there is one."""
        found = saved_steps(self.folder)
        return open_checkpoint(found[max(found)]) if found else None

    def read(self, step: int, name: str) -> bytes | None:
        """A file of the checkpoint of a step, None without one."""
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
        """Writes one checkpoint, whole or not at all.

        Args:
            step: Updates done.
            weights: By path.
            slots: By slot and path.
            files: Other files by name, the config among them.
            metadata: What the run notes about itself, as JSON.

        Returns:
            Its folder.
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
                # The manifest goes first: what is left of a kill here is no checkpoint.
                os.remove(os.path.join(found[step], MANIFEST))
                shutil.rmtree(found[step])


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
    """Makes the names in a folder outlast a loss of power, as `fsync` does a file."""
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


def training_state(trainer: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """All that training changes, but the step.

    Args:
        trainer: What is trained.

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
    """Puts weights, slots and step where the checkpoint has them.

    Args:
        trainer: What is trained, with a built optimizer.
        checkpoint: One of the same model and optimizer.
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
    """Puts the weights where the checkpoint has them.

    Args:
        trainer: Something with the same variables.
        checkpoint: Whose weights to take.
    """
    expected = {v.path: v for v in trainer.trainable_variables}
    assign(expected, checkpoint.weights(), checkpoint.path)


def assign(
    variables: Mapping[str, Any], arrays: Mapping[str, np.ndarray], source: str
) -> None:
    """Assigns arrays to variables of the same names, all or none.

    Args:
        variables: By name.
        arrays: By name.
        source: Where the arrays are from, for the error.

    Raises:
        InputError: Names or shapes differ; it lists them.
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
