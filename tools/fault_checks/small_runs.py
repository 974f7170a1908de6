"""Small real runs of pre-training, and the records that they read."""

import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys

from training.worker_commands import pretrain_arguments

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
SETS = (
    "training.log_every=50",
    "training.save_every=4",
    "training.keep=2",
    "training.keep_at=[]",
    "training.evaluate_every=100000",
)


def make_records(folder: pathlib.Path) -> pathlib.Path:
    """Write `text.txt` of random words and its records; return their folder."""
    from tiny import build_records

    from electra_tf.text.vocab import Vocabulary

    text = (GOLDEN / "dataset_builder.json").read_text()
    words, rng = " ".join(json.loads(text)["lines"]).split(), random.Random(0)
    lines = []
    for _ in range(150):
        lines += [" ".join(rng.choices(words, k=rng.randint(3, 25))) for _ in range(8)]
        lines.append("")
    source = folder / "text.txt"
    source.write_text("\n".join(lines))
    vocabulary = Vocabulary.read(GOLDEN / "vocab.txt")
    build_records(source, folder / "records", vocabulary, max_length=32, shards=3)
    return folder / "records"


class Runs:
    """Runs of one number of steps on the same records, with one log."""

    def __init__(self, folder: pathlib.Path, steps: int):
        self._records, self._steps = make_records(folder), steps
        self.log = folder / "log"

    def start(self, run: pathlib.Path, *flags: str) -> subprocess.Popen:
        """Start or resume a run."""
        self.log.write_text("")
        sets = (*SETS, f"training.steps={self._steps}")
        arguments = [*pretrain_arguments(self._records, run, *sets), *flags]
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
        """Return the SHA-256 of weights and slots of the last step."""
        folder = run / "checkpoints" / f"step_{self._steps:08d}"
        names = ("weights.safetensors", "optimizer.safetensors")
        content = b"".join((folder / name).read_bytes() for name in names)
        return hashlib.sha256(content).hexdigest()
