"""Lock a run directory and validate the settings of a resumed run."""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from electra_tf.config import loader as config_lib
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.training.checkpoint import (
    CHECKPOINTS,
    CONFIG,
    Checkpoint,
    saved_steps,
    steps_of,
)

_LOCK = ".lock"
_MARKS = 2**50
# Settings that may change on resume: the weights do not depend on them.
RESUME_SAFE_FIELDS = {
    "corpus",
    "vocabulary",
    "records.order",
    "records.seed",
    "records.shards",
    "training.log_every",
    "training.save_every",
    "training.keep",
    "training.keep_at",
    "training.evaluate_every",
    "training.evaluation_batches",
}
# May change on resume if it is not below the number of completed steps.
_LENGTH = "training.steps"


def acquire_lock(folder: str, flag: str = "--model_dir") -> Any:
    """Create the run directory and lock it until the process ends.

    Args:
        folder: The run directory.
        flag: Name of its flag, for messages.

    Returns:
        The open lock file; closing it releases the lock.

    Raises:
        InputError: Another process trains there, or the folder is a remote one.
    """
    if "://" in folder:
        raise InputError(
            f"{flag} is a folder of this machine's file system",
            folder,
            "Mount the bucket (gcsfuse) and name the mount",
        )
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise InputError(
            f"{flag} is a folder, new or a run's own",
            f"{folder}, a file",
            "Choose another name",
        )
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    lock_file = open(os.path.join(folder, _LOCK), "a")  # noqa: SIM115 - held open
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InputError(
            f"One run at a time trains in {flag}",
            f"{folder}, where another process is at work",
            f"Wait for it, stop it, or choose another {flag}",
        ) from error
    lock_file.truncate(0)
    lock_file.write(str(time.time_ns() % _MARKS))
    lock_file.flush()
    return lock_file


@contextlib.contextmanager
def run_lock(folder: str, flag: str = "--model_dir") -> Iterator[None]:
    """Lock a run directory for a block; delete a new, empty one if the block fails.

    Args:
        folder: As for `acquire_lock`.
        flag: As for `acquire_lock`.
    """
    is_new = not os.path.exists(folder)
    with acquire_lock(folder, flag):
        try:
            yield
        except BaseException:
            files = (p for p in pathlib.Path(folder).rglob("*") if not p.is_dir())
            if is_new and {path.name for path in files} <= {_LOCK}:
                shutil.rmtree(folder)
            raise


def lock_token(folder: str) -> int:
    """Return the token of the lock, which differs between run directories.

    Args:
        folder: The run directory.

    Returns:
        A number below 2^50, exact in float64; 0 without a lock.
    """
    path = pathlib.Path(folder, _LOCK)
    return int(path.read_text() or 0) if path.exists() else 0


def check_resumable(
    checkpoint: Checkpoint, now: PretrainingConfig, metadata: Mapping[str, Any]
) -> None:
    """Raise an error if settings or data differ from those of the checkpoint.

    Args:
        checkpoint: Checkpoint to resume from.
        now: Current settings.
        metadata: Metadata of the current data.

    Raises:
        InputError: Other settings or data, or fewer steps than are completed.
    """
    then = settings_of(checkpoint)
    changed = [
        f"`{name}` is {new!r}, was {old!r}"
        for name, (old, new) in changed_fields(then, now).items()
        if name not in RESUME_SAFE_FIELDS | {_LENGTH}
        and name.split(".")[0] not in RESUME_SAFE_FIELDS
    ]
    changed += [
        f"{name} is {metadata.get(name)!r}, was {value!r}"
        for name, value in checkpoint.metadata.items()
        if metadata.get(name) != value
    ]
    if changed:
        raise InputError(
            f"A run goes on as it began ({checkpoint.path})",
            "; ".join(changed),
            "Give these back their values, or choose another --model_dir, with "
            f"--init_checkpoint={checkpoint.path} to begin from these weights",
        )
    if now.training.steps < checkpoint.step:
        raise InputError(
            f"`{_LENGTH}` must be {checkpoint.step} or more, the steps that are done",
            f"{now.training.steps}, with the checkpoint {checkpoint.path}",
            f"Set {_LENGTH}={then.training.steps}, as it was, or more",
        )


def settings_of(checkpoint: Checkpoint) -> PretrainingConfig:
    """Return the settings of a checkpoint.

    Args:
        checkpoint: Checkpoint written by pretrain.
    """
    return config_lib.parse_config(checkpoint.read(CONFIG).decode(), checkpoint.path)


def kept_before(folder: str, keep_at: Sequence[float]) -> set[int]:
    """Return the steps of checkpoints that stay, by the length of the run back then.

    Args:
        folder: The run's folder.
        keep_at: Shares of training whose checkpoint stays for ever.

    Returns:
        Of the checkpoints that are there, those at such a share of `training.steps` in
        their own settings; also those whose settings cannot be read.
    """
    found = set()
    for step, path in saved_steps(os.path.join(folder, CHECKPOINTS)).items():
        try:
            steps = settings_of(Checkpoint(path, step, {})).training.steps
        except (OSError, ValueError):
            found.add(step)
        else:
            found |= {step} & steps_of(keep_at, steps)
    return found


def changed_fields(
    then: PretrainingConfig, now: PretrainingConfig
) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ between two configs.

    Args:
        then: Earlier config.
        now: Current config.

    Returns:
        Pairs of (earlier, current) values by dotted name.
    """
    old, new = dataclasses.asdict(then), dataclasses.asdict(now)
    return {
        f"{section}.{name}": (value, new[section][name])
        for section, settings in old.items()
        for name, value in settings.items()
        if value != new[section][name]
    }
