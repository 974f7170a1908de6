"""Small real runs of pre-training, and the records that they read."""

import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
from collections.abc import Callable

from training.worker_commands import pretrain_arguments

ROOT = pathlib.Path(__file__).parents[2]
STEPS = 300
SETS = (
    f"training.steps={STEPS}",
    "training.log_every=50",
    "training.save_every=4",
    "training.keep=2",
    "training.keep_at=[]",
    "training.evaluate_every=100000",
)


def make_records(folder: pathlib.Path) -> pathlib.Path:
    """Build records of 32 positions from random words, and return their folder."""
    from tiny import build_records

    from electra_tf.text.vocab import Vocabulary

    golden = ROOT / "tests" / "golden"
    text = (golden / "dataset_builder.json").read_text()
    words, rng = " ".join(json.loads(text)["lines"]).split(), random.Random(0)
    lines = []
    for _ in range(150):
        lines += [" ".join(rng.choices(words, k=rng.randint(3, 25))) for _ in range(8)]
        lines.append("")
    source = folder / "text.txt"
    source.write_text("\n".join(lines))
    vocabulary = Vocabulary.read(golden / "vocab.txt")
    build_records(source, folder / "records", vocabulary, max_length=32, shards=3)
    return folder / "records"


def start(
    records: pathlib.Path,
    run: pathlib.Path,
    log: pathlib.Path,
    *flags: str,
    steps: int = STEPS,
    preexec: Callable[[], None] | None = None,
) -> subprocess.Popen:
    """Start `python -m electra_tf.pretrain`; its output is added to `log`."""
    sets = (*SETS, f"training.steps={steps}")
    with log.open("a") as output:
        return subprocess.Popen(
            [sys.executable, *pretrain_arguments(records, run, *sets), *flags],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TF_NUM_INTRAOP_THREADS": "1"},
            stdout=output,
            stderr=output,
            cwd=ROOT,
            preexec_fn=preexec,
        )


def digest(run: pathlib.Path, step: int = STEPS) -> str:
    """Return the SHA-256 of weights and slots of a run's last checkpoint."""
    folder, total = run / "checkpoints" / f"step_{step:08d}", hashlib.sha256()
    for name in ("weights.safetensors", "optimizer.safetensors"):
        total.update((folder / name).read_bytes())
    return total.hexdigest()
