"""Run commands with too little space for one of their files.

Where the tool may mount, the space is that of a small tmpfs, so that any write can
fail. Elsewhere a limit of the size of files, RLIMIT_FSIZE, fails the large ones.
"""

import contextlib
import functools
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import small_runs
from training.worker_commands import pretrain_arguments

from electra_tf.training.checkpoint import newest_intact, saved_steps

_GOLDEN = small_runs.ROOT / "tests" / "golden"
_SECONDS = 600
# Bytes that each command writes, roughly; limits are drawn below.
_COMMANDS = {"pretrain": 600_000, "build_vocab": 3_000, "build_records": 60_000}
_PARTIAL = (".partial", ".unfinished")


def run_full_disks(count: int, seed: int) -> dict:
    """Run `count` commands on disks that are too small.

    Args:
        count: Number of commands.
        seed: Of the sizes.

    Returns:
        `commands`, those on a `tmpfs` and those with `limited_files`, `refused` ones
        (one message, status 1), `completed` ones (the space was enough), `failed`, and
        `failures`.
    """
    rng, failures = random.Random(seed), []
    names = ("commands", "tmpfs", "limited_files", "refused", "completed", "failed")
    counts = dict.fromkeys(names, 0)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        records = small_runs.make_records(folder)
        for number in range(count):
            command = list(_COMMANDS)[number % len(_COMMANDS)]
            size = int(_COMMANDS[command] * rng.uniform(0.02, 0.9))
            with _small_disk(folder / "disk", size, number) as (kind, preexec):
                failure, outcome = _run(command, records, folder, preexec)
            counts["commands"] += 1
            counts[kind] += 1
            counts[outcome] += 1
            if failure:
                failures.append(f"{command}, {kind} of {size:,} bytes: {failure}")
                print(failures[-1], file=sys.stderr)
    return {**counts, "failures": failures}


@contextlib.contextmanager
def _small_disk(
    path: pathlib.Path, size: int, number: int
) -> Iterator[tuple[str, Callable[[], None] | None]]:
    """Make a folder with little space; every other one by a limit of the file size."""
    path.mkdir()
    mount = [
        "mount",
        "-t",
        "tmpfs",
        "-o",
        f"size={max(size, 8192)}",
        "tmpfs",
        str(path),
    ]
    is_mounted = (
        number % 2 == 0 and not subprocess.run(mount, capture_output=True).returncode
    )
    try:
        if is_mounted:
            yield "tmpfs", None
        else:
            limit = functools.partial(
                resource.setrlimit, resource.RLIMIT_FSIZE, (size, size)
            )
            yield "limited_files", limit
    finally:
        if is_mounted:
            subprocess.run(["umount", str(path)], check=True)
        subprocess.run(["rm", "-rf", str(path)], check=True)


def _run(
    command: str,
    records: pathlib.Path,
    folder: pathlib.Path,
    preexec: Callable[[], None] | None,
) -> tuple[str, str]:
    """Run a command that writes to `disk`; return its failure and its outcome."""
    disk, vocabulary = folder / "disk", _GOLDEN / "vocab.txt"
    arguments = {
        "pretrain": pretrain_arguments(
            records, disk / "run", "training.steps=6", "training.save_every=2"
        ),
        "build_vocab": [
            *("-m", "electra_tf.build_vocab", f"--input={folder / 'text.txt'}"),
            f"--output={disk / 'vocab.txt'}",
        ],
        "build_records": [
            *("-m", "electra_tf.build_records", f"--input={folder / 'text.txt'}"),
            *(f"--vocab={vocabulary}", f"--output={disk / 'records'}"),
            *("--workers=1", "--set=records.max_length=32", "--set=records.shards=2"),
        ],
    }
    # To a pipe: a limit of file sizes would also end writes to a log file.
    result = subprocess.run(
        [sys.executable, *arguments[command]],
        capture_output=True,
        text=True,
        cwd=small_runs.ROOT,
        preexec_fn=preexec,
        timeout=_SECONDS,
    )
    if result.returncode == 0:
        return "", "completed"
    messages = re.findall(r"^error: ", result.stderr, re.M)
    if result.returncode != 1 or len(messages) != 1:
        return f"status {result.returncode}: {result.stderr[-600:]}", "failed"
    if "Traceback" in result.stderr:
        return f"a traceback: {result.stderr[-600:]}", "failed"
    left = [p.name for p in disk.rglob("*") if p.name.endswith(_PARTIAL)]
    if left:
        return f"it left {', '.join(left)}", "failed"
    if saved_steps(str(disk / "run" / "checkpoints")):
        newest_intact(str(disk / "run"))  # raises an error if all are damaged
    return "", "refused"
