"""Kill runs of pre-training at random moments, and compare the resumed ones."""

import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import small_runs

from electra_tf.training.checkpoint import saved_steps

_SECONDS = 600.0  # of one wait at most


def run_kills(count: int, seed: int, steps: int = 300) -> dict:
    """Kill `count` processes with SIGKILL; each run resumes until it is completed.

    A third is killed while a checkpoint is written, a third after a checkpoint, and a
    third at any time from the start of the process.

    Returns:
        `kills`, those `in_writes` and `without_new_checkpoint`, `runs` that were
        completed and compared, and `failures`.
    """
    with tempfile.TemporaryDirectory() as name:
        campaign = _Campaign(pathlib.Path(name), random.Random(seed), steps)
        while campaign.counts["kills"] < count:
            campaign.kill_one()
        campaign.complete()
        return {**campaign.counts, "failures": campaign.failures}


class _Campaign:
    """A run that is killed and resumed again and again."""

    def __init__(self, folder: pathlib.Path, rng: random.Random, steps: int):
        self._rng, self._steps, self._run = rng, steps, folder / "run"
        names = ("kills", "in_writes", "without_new_checkpoint", "runs")
        self.counts = dict.fromkeys(names, 0)
        self.failures: list[str] = []
        self._runs, begin = small_runs.Runs(folder, steps), time.monotonic()
        self._expected = self._runs.finish(folder / "whole")
        self._duration = time.monotonic() - begin

    def kill_one(self) -> None:
        """Start or resume the run and kill it; complete it if it is nearly done."""
        if self._newest() > 0.8 * self._steps:
            self.complete()
        first, kind = self._newest(), self.counts["kills"] % 3
        process = self._runs.start(self._run)
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
        if self._runs.finish(self._run) != self._expected:
            self.failures.append(f"run {self.counts['runs']} has other weights")
        self.counts["runs"] += 1
        shutil.rmtree(self._run)

    def _newest(self) -> int:
        return max(saved_steps(str(self._run / "checkpoints")), default=0)

    def _is_writing(self) -> bool:
        return any((self._run / "checkpoints").glob("*.unfinished"))

    def _wait(self, process: subprocess.Popen, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + _SECONDS
        while not condition() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.0003)
