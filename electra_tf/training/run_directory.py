"""Lock a run directory and validate the settings of a resumed run."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from electra_tf import durable_files
from electra_tf.config.loader import flatten, parse_config
from electra_tf.config.pretraining import PretrainingConfig, TrainingConfig
from electra_tf.errors import InputError
from electra_tf.training.checkpoint import Checkpoint, steps_at_shares

_LOCK = ".lock"
_NUM_TOKENS = 2**50
# Settings that may change on resume, because the weights do not depend on them.
RESUME_SAFE_FIELDS = {
    *("corpus", "vocabulary", "evaluation"),
    *("records.order", "records.seed", "records.shards", "records.deduplicate"),
    *("training.log_every", "training.save_every", "training.keep"),
    *("training.keep_at", "training.evaluate_every"),
    *("training.evaluation_batches", "training.worker_timeout"),
}
# Settings of the model that any of its weights fit.
_SAME_SHAPES = {"model.dropout", "model.attention_dropout", "model.initializer_range"}
# May change on resume to any value from the number of completed steps on.
_STEPS = "training.steps"


@contextlib.contextmanager
def run_lock(folder: str, flag: str = "--model_dir") -> Iterator[None]:
    """Create a run directory, and lock it for a block.

    If the block fails, a directory that did not exist before and has no files is
    deleted.
    """
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise InputError(f"{flag} must be a folder, not the file {folder}")
    path, is_new = pathlib.Path(folder, _LOCK), not os.path.exists(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(durable_files.locked(path, wait=False))
        except BlockingIOError as error:
            raise InputError(
                f"{flag} {folder} is locked by a running process; wait for it, stop "
                f"it, or pass another {flag}"
            ) from error
        path.write_text(str(uuid.uuid4().int % _NUM_TOKENS))
        durable_files.sync(path)
        durable_files.sync_folder(folder)
        try:
            yield
        except BaseException:
            files = (p for p in pathlib.Path(folder).rglob("*") if not p.is_dir())
            if is_new and {file.name for file in files} <= {_LOCK}:
                shutil.rmtree(folder)
            raise


def lock_token(folder: str) -> int:
    """Return the lock's token, a random number that identifies the run directory."""
    path = pathlib.Path(folder, _LOCK)
    return int(path.read_text() or 0) if path.exists() else 0


def check_resumable(
    checkpoint: Checkpoint, now: PretrainingConfig, metadata: Mapping[str, Any]
) -> None:
    """Raise an error if settings or data differ from those of the checkpoint."""
    then = checkpoint.config()
    settings = changed_fields(then, now)
    changed = [
        f"`{name}` is {new!r}, was {old!r}"
        for name, (old, new) in settings.items()
        if not {name, name.split(".")[0]} & (RESUME_SAFE_FIELDS | {_STEPS})
    ]
    changed += [
        f"{name} is {metadata.get(name)!r}, was {value!r}"
        for name, value in checkpoint.metadata.items()
        if metadata.get(name) != value
    ]
    if changed:
        # Weights of other shapes do not fit.
        fits = not {n for n in settings if n.startswith("model.")} - _SAME_SHAPES
        load = f", with --init_checkpoint={checkpoint.path} to load these weights"
        raise InputError(
            f"Settings and data must be those of the checkpoint {checkpoint.path}: "
            f"{'; '.join(changed)}; restore the values, or start a new run in another "
            f"--model_dir, and with another --backup if there is one{load * fits}"
        )
    steps = f"`{_STEPS}` is {now.training.steps}, was {then.training.steps}"
    if now.objective.stages > 1 and now.training.steps != then.training.steps:
        raise InputError(
            f"{steps}: it must not change with `objective.name: {now.objective.name}`, "
            "whose stages are shares of it"
        )
    if now.training.steps < checkpoint.step:
        raise InputError(
            f"{steps}: it must be at least {checkpoint.step}, the completed steps of "
            f"{checkpoint.path}"
        )


def is_milestone(training: TrainingConfig, step: int, config: bytes | None) -> bool:
    """Return whether a checkpoint is at a share of training that keeps it.

    `training.steps` may change on resume, and with it the steps at given shares. So
    those of the checkpoint's own `config` are milestones too; None: unknown.
    """
    if config is None:
        return True
    try:
        own = parse_config(config.decode(), f"the config of step {step}").training
    except ValueError:
        return True
    shares = training.keep_at
    return any(step in steps_at_shares(shares, n.steps) for n in (training, own))


def changed_fields(
    then: PretrainingConfig, now: PretrainingConfig
) -> dict[str, tuple[Any, Any]]:
    """Return pairs of (earlier, current) values of settings, by dotted name.

    A setting that only one of two objectives has is None in the other.
    """
    old, new = (flatten(dataclasses.asdict(config)) for config in (then, now))
    return {
        name: (old.get(name), new.get(name))
        for name in old | new
        if old.get(name) != new.get(name)
    }
