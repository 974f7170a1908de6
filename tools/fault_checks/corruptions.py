"""Damage files of checkpoints, records and models, and read them.

Each damage must be an error that names the file, or change nothing that is read.
"""

import os
import pathlib
import random
import shutil
import sys
import tempfile
from collections.abc import Callable

import numpy as np
import small_runs

from electra_tf.errors import InputError
from electra_tf.training.checkpoint import (
    CheckpointManager,
    newest_intact,
    open_checkpoint,
    saved_steps,
)

GOLDEN = small_runs.ROOT / "tests" / "golden" / "saved"
_COMMAND_EVERY = (
    25  # damaged checkpoints that real commands resume from, one in so many
)
_STEPS = 12  # of the real run
_UNSEEN = "other content, without an error"


def run_corruptions(count: int, seed: int) -> dict:
    """Damage `count` files, one at a time.

    Args:
        count: Number of damaged files.
        seed: Of the choice of files and damages.

    Returns:
        Damaged files by kind of artefact, `detected` ones, `harmless` ones (the read
        content is the same), those that real commands `resumed` from by `--fallback`,
        `silent` ones (other content without an error), `failed` ones in all (also
        errors that do not name the file), and `failures`.
    """
    rng, failures = random.Random(seed), []
    names = ("checkpoints", "records", "models", "detected", "harmless")
    counts = dict.fromkeys((*names, "resumed", "silent", "failed"), 0)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        _write_checkpoints(folder / "checkpoints")
        run = _Run(folder) if count >= _COMMAND_EVERY else None
        for number in range(count):
            if run and number % _COMMAND_EVERY == 0:
                outcome = run.damage_and_resume(rng)
                counts["checkpoints"] += 1
                counts["resumed"] += outcome == "detected"
            else:
                kind = rng.choice(list(_KINDS))
                outcome = _damage_and_read(kind, rng, folder)
                counts[kind] += 1
            if outcome in counts:
                counts[outcome] += 1
            else:
                counts["silent"] += outcome.endswith(_UNSEEN)
                counts["failed"] += 1
                failures.append(outcome)
                print(outcome, file=sys.stderr)
    return {**counts, "failures": failures}


def damage(path: pathlib.Path, rng: random.Random) -> str:
    """Flip a byte, truncate or delete a file, and return a description."""
    content = bytearray(path.read_bytes())
    kind = rng.choice(
        ("flip", "flip", "truncate", "delete") if content else ("delete",)
    )
    if kind == "delete":
        path.unlink()
        return f"{path.name} deleted"
    place = rng.randrange(len(content))
    if kind == "truncate":
        path.write_bytes(content[:place])
        return f"{path.name} truncated to {place} bytes"
    content[place] ^= rng.randrange(1, 256)
    path.write_bytes(content)
    return f"{path.name}: byte {place} changed"


def _damage_and_read(kind: str, rng: random.Random, parent: pathlib.Path) -> str:
    """Return `detected`, `harmless` or a description of what was not detected."""
    source, pattern, read = _KINDS[kind]
    source = source or parent / kind
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = pathlib.Path(name, "copy")
        shutil.copytree(source, folder)
        if kind not in _EXPECTED:
            _EXPECTED[kind] = read(folder)
        path = rng.choice(sorted(p for p in folder.rglob(pattern) if p.is_file()))
        done = damage(path, rng)
        try:
            is_equal = read(folder) == _EXPECTED[kind]
            return "harmless" if is_equal else f"{kind}: {done}: {_UNSEEN}"
        except InputError as error:
            names = (path.name, path.parent.name, folder.name)
            if any(n in str(error) for n in names):
                return "detected"
            return f"{kind}: {done}: the error does not name it: {error}"
        except Exception as error:
            return f"{kind}: {done}: {type(error).__name__}: {error}"[:300]


def _write_checkpoints(folder: pathlib.Path) -> None:
    """Write a run with two checkpoints, of the files of a real one."""
    golden = GOLDEN / "run" / "checkpoints" / "step_00000004"
    files = {
        name: (golden / name).read_bytes()
        for name in ("config.yaml", "vocab.txt", "vocab.txt.settings.json")
    }
    rng = np.random.default_rng(0)
    for step in (4, 8):
        weights = {f"w{n}": rng.standard_normal((9, 7), np.float32) for n in range(9)}
        slots = {f"m/{name}": array * 2 for name, array in weights.items()}
        manager = CheckpointManager(str(folder / "checkpoints"), 2)
        manager.save(step, weights, slots, files, {"records": "0123456789abcdef"})


def _read_checkpoint(folder: pathlib.Path) -> object:
    """Return what resuming from the run would read."""
    for line in CheckpointManager(str(folder / "checkpoints")).clean():
        raise InputError("A checkpoint must have its manifest", line, "Copy it again")
    checkpoint = open_checkpoint(str(folder))
    arrays = {**checkpoint.weights(), **checkpoint.slots()}
    files = sorted(p for p in os.listdir(checkpoint.path) if p != "checkpoint.json")
    return (
        checkpoint.step,
        dict(checkpoint.metadata),
        {name: array.tobytes() for name, array in arrays.items()},
        {name: checkpoint.read(name) for name in files},
    )


def _read_records(folder: pathlib.Path) -> object:
    """Return the batches of records and what pre-training takes from their folder."""
    from electra_tf.config import loader
    from electra_tf.runs.experiment import Experiment
    from electra_tf.text.pipeline import evaluation_batches
    from electra_tf.text.record_set import reraise_bad_records

    experiment = Experiment.resolve(
        str(folder),
        None,
        lambda stored: loader.load_config(sets=["records.max_length=32"], base=stored),
    )
    records = experiment.open(str(folder))
    with reraise_bad_records(records):
        batches = [
            tuple(np.asarray(part).tobytes() for part in batch)
            for batch in evaluation_batches(records, 16)
        ]
    return batches, experiment.tokenizer.identity()


def _read_model(folder: pathlib.Path) -> object:
    """Return the weights and the settings of a .keras file."""
    import electra_tf

    _ = electra_tf.TextClassifier  # registers the classes with Keras
    model = electra_tf.load_model(folder / "model.keras")
    weights = [np.asarray(value).tobytes() for value in model.get_weights()]
    return weights, repr(model.get_config())


# Source (None: a folder that is written first), files to damage, and a function that
# reads what a command would read.
_KINDS: dict[str, tuple[pathlib.Path | None, str, Callable[[pathlib.Path], object]]] = {
    "checkpoints": (None, "step_*8/*", _read_checkpoint),
    "records": (GOLDEN / "records", "*[tn]*", _read_records),
    "models": (GOLDEN / "classifier", "model.keras", _read_model),
}


_EXPECTED: dict[str, object] = {}  # what the undamaged source gives, by kind


class _Run:
    """Completed run whose newest checkpoint is damaged, again and again."""

    def __init__(self, folder: pathlib.Path):
        self._folder, self._log = folder, folder / "log"
        self._records = small_runs.make_records(folder)
        self._whole = folder / "whole"
        if self._train(self._whole):
            sys.exit(f"error: a run failed:\n{self._log.read_text()[-3000:]}")
        self._expected = small_runs.digest(self._whole, _STEPS)

    def _train(self, run: pathlib.Path, *flags: str) -> int:
        self._log.write_text("")
        process = small_runs.start(self._records, run, self._log, *flags, steps=_STEPS)
        return process.wait(600)

    def damage_and_resume(self, rng: random.Random) -> str:
        """Damage the newest checkpoint; resume by `--fallback` to the same weights."""
        run = self._folder / "run"
        shutil.copytree(self._whole, run)
        try:
            steps = saved_steps(str(run / "checkpoints"))
            newest = pathlib.Path(steps[max(steps)])
            names = ("weights.safetensors", "optimizer.safetensors", "config.yaml")
            path = newest / rng.choice(names)
            done = damage(path, rng)
            if self._train(run) != 1 or str(path) not in self._log.read_text():
                return f"pretrain: {done}: {self._log.read_text()[-300:]}"
            is_older = newest_intact(str(run))[0].step < max(steps)
            if not is_older or self._train(run, "--fallback"):
                return f"--fallback: {done}: {self._log.read_text()[-300:]}"
            if small_runs.digest(run, _STEPS) != self._expected:
                return f"--fallback: {done}: other weights"
            return "detected"
        finally:
            shutil.rmtree(run)
