"""Run commands with too little space for one of their files.

Where the tool may mount, the space is that of a small tmpfs, so that any write can
fail. Elsewhere a limit of the size of files, RLIMIT_FSIZE, fails the large ones.
"""

import contextlib
import functools
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import small_runs
from training.worker_commands import pretrain_arguments

from electra_tf.training.checkpoint import newest_intact, saved_steps

# Bytes that each command writes, roughly; limits are drawn below.
_COMMANDS = {"pretrain": 600_000, "build_vocab": 3_000, "build_records": 60_000}
_PARTIAL = (".partial", ".unfinished")
Preexec = Callable[[], None] | None


def run_full_disks(count: int, seed: int) -> dict:
    """Run `count` commands on disks that are too small.

    Returns:
        Commands on a `tmpfs` and with `limited_files`, `refused` ones (one message,
        status 1), `completed` ones (the space was enough), and `failures`.
    """
    rng, failures = random.Random(seed), []
    counts = dict.fromkeys(("tmpfs", "limited_files", "refused", "completed"), 0)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        records = small_runs.make_records(folder)
        for number in range(count):
            command = list(_COMMANDS)[number % len(_COMMANDS)]
            size = int(_COMMANDS[command] * rng.uniform(0.02, 0.9))
            with _small_disk(folder / "disk", size, number) as (kind, preexec):
                outcome = _run(_arguments(command, records, folder), folder, preexec)
            counts[kind] += 1
            if outcome in counts:
                counts[outcome] += 1
            else:
                failures.append(f"{command}, {kind} of {size:,} bytes: {outcome}")
    return {**counts, "failures": failures}


@contextlib.contextmanager
def _small_disk(
    path: pathlib.Path, size: int, number: int
) -> Iterator[tuple[str, Preexec]]:
    """Make a folder with little space; every other one by a limit of the file size."""
    path.mkdir()
    option = f"-osize={max(size, 8192)}"
    mount = ["mount", "-t", "tmpfs", option, "tmpfs", str(path)]
    wants_mount = number % 2 == 0
    mounts = wants_mount and not subprocess.run(mount, capture_output=True).returncode
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
    try:
        yield ("tmpfs", None) if mounts else ("limited_files", limit)
    finally:
        if mounts:
            subprocess.run(["umount", str(path)], check=True)
        subprocess.run(["rm", "-rf", str(path)], check=True)


def _arguments(command: str, records: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Return the arguments of a command that writes to `disk`."""
    disk = folder / "disk"
    if command == "pretrain":
        sets = ("training.steps=6", "training.save_every=2")
        return pretrain_arguments(records, disk / "run", *sets)
    arguments = ["-m", f"electra_tf.{command}", f"--input={folder / 'text.txt'}"]
    if command == "build_vocab":
        return [*arguments, f"--output={disk / 'vocab.txt'}"]
    vocabulary = small_runs.GOLDEN / "vocab.txt"
    arguments += [f"--vocab={vocabulary}", f"--output={disk / 'records'}"]
    sets = ("records.max_length=32", "records.shards=2")
    return [*arguments, "--workers=1", *(f"--set={item}" for item in sets)]


def _run(arguments: list[str], folder: pathlib.Path, preexec: Preexec) -> str:
    """Run a command; return `completed`, `refused` or a description of a failure."""
    # To a pipe: a limit of file sizes would also end writes to a log file.
    result = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=small_runs.ROOT,
        preexec_fn=preexec,
        timeout=600,
    )
    if result.returncode == 0:
        return "completed"
    messages = [s for s in result.stderr.splitlines() if s.startswith("error: ")]
    if result.returncode != 1 or len(messages) != 1 or "Traceback" in result.stderr:
        return f"status {result.returncode}: {result.stderr[-600:]}"
    disk = folder / "disk"
    left = [p.name for p in disk.rglob("*") if p.name.endswith(_PARTIAL)]
    if left:
        return f"it left {', '.join(left)}"
    if saved_steps(str(disk / "run" / "checkpoints")):
        newest_intact(str(disk / "run"))  # raises an error if all are damaged
    return "refused"
