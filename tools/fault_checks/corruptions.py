"""Damage files of checkpoints, records and models, and read them.

Each damage must be an error that names the file, or change nothing that is read.
"""

import os
import pathlib
import random
import shutil
import tempfile
from collections.abc import Callable

import numpy as np
from small_runs import SAVED, Runs

from electra_tf.errors import InputError
from electra_tf.training.checkpoint import newest_intact, open_checkpoint, saved_steps

_COMMAND_EVERY = 25  # of so many damages, one is of a run that a command resumes
_STEPS = 12  # of the real run


def run_corruptions(count: int, seed: int) -> dict:
    """Damage `count` files, one at a time.

    Returns:
        `detected` damages, `harmless` ones (the read content is the same), those that
        real commands `resumed` from by `--fallback`, and `failures`: other content
        without an error, and errors that do not name the file.
    """
    rng, failures = random.Random(seed), []
    counts = dict.fromkeys(("detected", "harmless", "resumed"), 0)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run = _Run(folder) if count >= _COMMAND_EVERY else None
        expected = {kind: read(source) for kind, (source, _, read) in _KINDS.items()}
        for number in range(count):
            if run and number % _COMMAND_EVERY == 0:
                outcome = run.damage_and_resume(rng)
            else:
                kind = rng.choice(list(_KINDS))
                outcome = _damage_and_read(kind, expected[kind], rng, folder)
            if outcome in counts:
                counts[outcome] += 1
            else:
                failures.append(outcome)
    return {**counts, "failures": failures}


def damage(path: pathlib.Path, rng: random.Random) -> str:
    """Flip a byte, truncate or delete a file, and return a description."""
    content = bytearray(path.read_bytes())
    kind = rng.choice(("flip", "flip", "truncate", "delete"))
    if kind == "delete" or not content:
        path.unlink()
        return f"{path.name} deleted"
    place = rng.randrange(len(content))
    if kind == "truncate":
        path.write_bytes(content[:place])
        return f"{path.name} truncated to {place} bytes"
    content[place] ^= rng.randrange(1, 256)
    path.write_bytes(content)
    return f"{path.name}: byte {place} changed"


def _damage_and_read(
    kind: str, expected: object, rng: random.Random, parent: pathlib.Path
) -> str:
    """Return `detected`, `harmless` or a description of what was not detected."""
    source, pattern, read = _KINDS[kind]
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = pathlib.Path(name, "copy")
        shutil.copytree(source, folder)
        path = rng.choice(sorted(p for p in folder.rglob(pattern) if p.is_file()))
        done = f"{kind}: {damage(path, rng)}"
        try:
            if read(folder) == expected:
                return "harmless"
            return f"{done}: other content, without an error"
        except InputError as error:
            names = (path.name, path.parent.name, folder.name)
            if any(n in str(error) for n in names):
                return "detected"
            return f"{done}: the error does not name it: {error}"
        except Exception as error:
            return f"{done}: {type(error).__name__}: {error}"[:300]


def _read_checkpoint(folder: pathlib.Path) -> object:
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
    import electra_tf

    _ = electra_tf.TextClassifier  # registers the classes with Keras
    model = electra_tf.load_model(folder / "model.keras")
    weights = [np.asarray(value).tobytes() for value in model.get_weights()]
    return weights, repr(model.get_config())


# Source, files to damage, and a function that reads what a command would read.
_KINDS: dict[str, tuple[pathlib.Path, str, Callable[[pathlib.Path], object]]] = {
    "checkpoints": (SAVED / "run", "step_*/*", _read_checkpoint),
    "records": (SAVED / "records", "*[tn]*", _read_records),
    "models": (SAVED / "classifier", "model.keras", _read_model),
}


class _Run:
    """Completed run whose newest checkpoint is damaged, again and again."""

    def __init__(self, folder: pathlib.Path):
        self._folder, self._whole = folder, folder / "whole"
        self._runs = Runs(folder, _STEPS)
        self._expected = self._runs.finish(self._whole)

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
            status, log = self._runs.start(run).wait(600), self._runs.log
            if status != 1 or str(path) not in log.read_text():
                return f"pretrain: {done}: {log.read_text()[-300:]}"
            is_older = newest_intact(str(run))[0].step < max(steps)
            if not is_older or self._runs.start(run, "--fallback").wait(600):
                return f"--fallback: {done}: {log.read_text()[-300:]}"
            is_equal = self._runs.digest(run) == self._expected
            return "resumed" if is_equal else f"--fallback: {done}: other weights"
        finally:
            shutil.rmtree(run)
