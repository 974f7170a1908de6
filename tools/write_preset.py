"""Write a checkpoint as a preset: float16 weights, without optimizer slots.

python tools/write_preset.py --checkpoint=run --output=electra_tf/preset_files/NAME

The card (README.md), its facts (preset.json) and NOTICE are written by hand.
"""

import argparse
import pathlib
import tempfile

import numpy as np

from electra_tf.runs.experiment import Experiment
from electra_tf.training.checkpoint import (
    Checkpoint,
    CheckpointManager,
    open_checkpoint,
)

_MAX_BYTES = 12e6
_FACTS = "vocabulary", "records", "records_sha256"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True, help="A run or a checkpoint.")
    parser.add_argument("--output", required=True, type=pathlib.Path, help="A folder.")
    options = parser.parse_args()
    write(open_checkpoint(options.checkpoint), options.output)
    size = sum(path.stat().st_size for path in options.output.iterdir())
    if size > _MAX_BYTES:
        raise SystemExit(f"error: a preset must have 12 MB at most, not {size:,} bytes")
    print(f"{options.output}: {size:,} bytes")


def write(checkpoint: Checkpoint, output: pathlib.Path) -> None:
    weights = {n: w.astype(np.float16) for n, w in checkpoint.weights().items()}
    infinite = [name for name, w in weights.items() if not np.isfinite(w).all()]
    if infinite:
        raise SystemExit(f"error: {infinite[0]} must fit into float16")
    metadata = {n: checkpoint.metadata[n] for n in _FACTS if n in checkpoint.metadata}
    with tempfile.TemporaryDirectory() as folder:
        manager = CheckpointManager(folder)
        files = Experiment.from_checkpoint(checkpoint).files()
        path = manager.save(checkpoint.step, weights, {}, files, metadata)
        output.mkdir(parents=True, exist_ok=True)
        for file in pathlib.Path(path).iterdir():
            (output / file.name).write_bytes(file.read_bytes())


if __name__ == "__main__":
    main()
