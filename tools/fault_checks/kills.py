"""Kill runs of pre-training at random moments, and compare the resumed ones."""

import contextlib
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time

import small_runs

from electra_tf.training.checkpoint import saved_steps

_SECONDS = 600.0  # of one process at most


def run_kills(count: int, seed: int, steps: int = small_runs.STEPS) -> dict:
    """Kill `count` processes with SIGKILL; each run resumes until it is completed.

    A third is killed while a checkpoint is written, a third after a checkpoint, and a
    third at any time from the start of the process.

    Args:
        count: Number of kills.
        seed: Of the moments.
        steps: Of each run.

    Returns:
        `kills`, those `in_writes` and `without_new_checkpoint`, `runs` that were
        completed and compared, `failed`, and `failures`.
    """
    with tempfile.TemporaryDirectory() as name:
        campaign = _Campaign(pathlib.Path(name), random.Random(seed), steps)
        while campaign.counts["kills"] < count:
            campaign.kill_one()
        campaign.complete()
        return {**campaign.counts, "failures": campaign.failures}


class _Campaign:
    """Runs that are killed, and their counts."""

    def __init__(self, folder: pathlib.Path, rng: random.Random, steps: int):
        self._folder, self._rng, self._steps = folder, rng, steps
        self._records = small_runs.make_records(folder)
        self._run = folder / "run"
        names = ("kills", "in_writes", "without_new_checkpoint", "runs", "failed")
        self.counts = dict.fromkeys(names, 0)
        self.failures: list[str] = []
        begin = time.monotonic()
        self._expected = self._finish(folder / "whole")
        self._duration = time.monotonic() - begin

    def kill_one(self) -> None:
        """Start or resume the run and kill it; complete it if it is nearly done."""
        if self._newest() > 0.8 * self._steps:
            self.complete()
        first, kind = self._newest(), self.counts["kills"] % 3
        process = self._start(self._run)
        if kind == 0:
            self._wait(process, self._is_writing)
        elif kind == 1:
            self._wait(process, lambda: self._newest() > first)
            time.sleep(self._rng.uniform(0, 0.1))
        else:
            time.sleep(self._rng.uniform(0, self._duration))
        process.kill()
        if process.wait() != -9:
            return  # it was completed before
        self.counts["kills"] += 1
        self.counts["in_writes"] += self._is_writing()
        self.counts["without_new_checkpoint"] += self._newest() == first
        print(f"kill {self.counts['kills']}: step {self._newest()}", file=sys.stderr)

    def complete(self) -> None:
        """Resume the run, compare its end, and delete it."""
        if self._finish(self._run) != self._expected:
            self.counts["failed"] += 1
            self.failures.append(f"run {self.counts['runs']} has other weights")
        self.counts["runs"] += 1
        shutil.rmtree(self._run)

    def _finish(self, run: pathlib.Path) -> str:
        process = self._start(run)
        if process.wait(_SECONDS):
            sys.exit(f"error: a run failed:\n{self._log.read_text()[-3000:]}")
        return small_runs.digest(run, self._steps)

    @property
    def _log(self) -> pathlib.Path:
        return self._folder / "log"

    def _start(self, run: pathlib.Path):
        return small_runs.start(self._records, run, self._log, steps=self._steps)

    def _newest(self) -> int:
        return max(saved_steps(str(self._run / "checkpoints")), default=0)

    def _is_writing(self) -> bool:
        path = self._run / "checkpoints"
        with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
            return any(entry.name.endswith(".unfinished") for entry in entries)
        return False

    def _wait(self, process, condition) -> None:
        end = time.monotonic() + _SECONDS
        while not condition() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.0003)
