"""Small real runs of pre-training on the saved records of the tests."""

import hashlib
import os
import pathlib
import subprocess
import sys

from training.worker_commands import pretrain_arguments

ROOT = pathlib.Path(__file__).parents[2]
SAVED = ROOT / "tests" / "golden" / "saved"
SETS = (
    "training.log_every=50",
    "training.save_every=4",
    "training.keep=2",
    "training.keep_at=[]",
    "training.evaluate_every=100000",
)


class Runs:
    """Runs of one number of steps, with one log."""

    def __init__(self, folder: pathlib.Path, steps: int):
        self._steps, self.log = steps, folder / "log"

    def start(self, run: pathlib.Path, *flags: str) -> subprocess.Popen:
        self.log.write_text("")
        sets = (*SETS, f"training.steps={self._steps}")
        arguments = [*pretrain_arguments(SAVED / "records", run, *sets), *flags]
        environment = {"PYTHONPATH": str(ROOT), "TF_NUM_INTRAOP_THREADS": "1"}
        with self.log.open("a") as output:
            return subprocess.Popen(
                [sys.executable, *arguments],
                env={**os.environ, **environment},
                stdout=output,
                stderr=output,
                cwd=ROOT,
            )

    def finish(self, run: pathlib.Path) -> str:
        """Train to the last step; return the SHA-256 of weights and slots."""
        if self.start(run).wait(600):
            sys.exit(f"error: a run failed:\n{self.log.read_text()[-3000:]}")
        return self.digest(run)

    def digest(self, run: pathlib.Path) -> str:
        folder = run / "checkpoints" / f"step_{self._steps:08d}"
        names = ("weights.safetensors", "optimizer.safetensors")
        content = b"".join((folder / name).read_bytes() for name in names)
        return hashlib.sha256(content).hexdigest()
