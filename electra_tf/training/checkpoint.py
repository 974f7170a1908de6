"""Find, verify and read checkpoints.

A checkpoint is a self-contained folder:

    step_00001000/
      weights.safetensors     all trained weights by path
      optimizer.safetensors   the optimizer's slots by slot and path
      config.yaml             the resolved config, valid as --config
      ...                     more files of the caller: the vocabulary, the metric
                              sums since the last log line
      checkpoint.json         written last: step, sizes and checksums of the files

Random numbers and the input position are functions of (seed, step) and need no file.
"""

import dataclasses
import math
import os
import pathlib
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.numpy

from electra_tf.config import loader
from electra_tf.config.pretraining import EncoderConfig, PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.training.checkpoint_manifest import (
    DAMAGED,
    MANIFEST,
    parse_manifest,
    read_manifest,
    verify_file,
)

WEIGHTS, SLOTS = "weights.safetensors", "optimizer.safetensors"
CONFIG = "config.yaml"
FILES = (MANIFEST, CONFIG, WEIGHTS, SLOTS)
"""Files of a checkpoint that stand for it as a path."""
CHECKPOINTS = "checkpoints"  # subfolder of a run directory
NAME = re.compile(r"step_(\d+)")
"""Names of the folders."""
# Weight files of Hugging Face Transformers, whole or in shards.
_HUGGING_FACE = re.compile(
    r"(model(-\d+-of-\d+)?\.safetensors|pytorch_model(-\d+-of-\d+)?\.bin"
    r"|tf_model\.h5|flax_model\.msgpack)(\.index\.json)?"
)

Arrays = Mapping[str, Any]
"""NumPy arrays, or objects with shape, dtype, nbytes and values to be read once."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Checkpoint folder whose files are verified."""

    path: str
    step: int
    """Number of completed updates, and the number of the next batch."""
    metadata: Mapping[str, object]
    """Metadata of the run, such as the fingerprint of its data."""

    def weights(self) -> dict[str, np.ndarray]:
        """Return all weights by path, float32."""
        weights = _load(pathlib.Path(self.path, WEIGHTS))
        return {n: w.astype(np.float32, copy=False) for n, w in weights.items()}

    def slots(self) -> dict[str, np.ndarray]:
        """Return the optimizer's slots by slot and path, `m/electra/...`."""
        return _load(pathlib.Path(self.path, SLOTS))

    def config(self) -> PretrainingConfig:
        """Return the settings of the run."""
        try:
            text = self.read(CONFIG).decode()
        except (UnicodeDecodeError, OSError) as error:
            raise InputError(
                f"{self.path} must have {CONFIG} in UTF-8", str(error), DAMAGED
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
                DAMAGED,
            )
        return config

    def read(self, name: str) -> bytes:
        """Return the bytes of one file."""
        return pathlib.Path(self.path, name).read_bytes()


def open_checkpoint(path: str) -> Checkpoint:
    """Open a checkpoint and verify its files."""
    path = folder_of(path, FILES)
    if not os.path.exists(os.path.join(path, MANIFEST)):
        paths = saved_steps(os.path.join(path, CHECKPOINTS)) or saved_steps(path)
        if not paths and (kind := foreign_weights(path)):
            raise InputError(
                "A checkpoint must be a folder that electra_tf.pretrain wrote",
                f"{path!r}, {kind}",
                "Name the folder of the whole model, with config.json and "
                "model.safetensors or pytorch_model.bin; or the prefix of a checkpoint "
                "with its .index and .data files",
            )
        if not paths:
            raise InputError(
                f"A checkpoint must be a folder with {MANIFEST}, or a run directory "
                "with checkpoints",
                f"{path!r}, which is neither",
                "Pass the --model_dir of a pretrain run, or one of its checkpoints/*",
            )
        path = paths[max(paths)]
    manifest = parse_manifest(read_manifest(pathlib.Path(path, MANIFEST)), path)
    for name, (size, sha256) in manifest["files"].items():
        verify_file(pathlib.Path(path, name), size, sha256)
    return Checkpoint(path, manifest["step"], manifest["details"])


def folder_of(path: str, names: Container[str]) -> str:
    """Return the folder of a model's file, or the path if it is no such file."""
    folder, name = os.path.split(path)
    return folder or os.curdir if name in names and os.path.isfile(path) else path


def newest_intact(folder: str) -> tuple[Checkpoint, dict[str, InputError]]:
    """Open the newest checkpoint whose files are intact.

    Returns:
        The checkpoint, and the errors of newer ones by their paths.
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
    """Return whether a path is a checkpoint, or a run directory with checkpoints."""
    path = folder_of(path, FILES)
    folders = path, os.path.join(path, CHECKPOINTS)
    has_manifest = pathlib.Path(path, MANIFEST).exists()
    return has_manifest or any(map(saved_steps, folders))


def foreign_weights(path: str) -> str | None:
    """Describe weights that another library wrote.

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
        if match := NAME.fullmatch(manifest.parent.name):
            paths[int(match[1])] = str(manifest.parent)
    return paths


def steps_at_shares(shares: Sequence[float], steps: int) -> set[int]:
    """Return the first steps at which given shares of training are completed."""
    # 0.07 * 100 is slightly above 7 in float64 and would be rounded up to 8.
    return {math.ceil(round(share * steps, 6)) or 1 for share in shares}


def _least_bytes(shape: EncoderConfig) -> int:
    """Return a lower bound of the bytes of an encoder's weights.

    A model need not store its generator, and a preset stores float16, so this counts
    one byte of each weight.
    """
    rows = shape.vocabulary_size + shape.max_positions + shape.segments
    layer = 4 * shape.width * shape.width + 2 * shape.width * shape.feed_forward
    return rows * shape.embedding + shape.depth * layer


def _load(path: pathlib.Path) -> Arrays:
    try:
        return safetensors.numpy.load_file(path)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise InputError(
            f"{path} must be a whole safetensors file",
            f"{type(error).__name__}: {error}"[:300],
            DAMAGED,
        ) from error
