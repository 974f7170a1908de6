"""Score a preset beside other checkpoints of its shape, and beside TF-IDF.

    python tools/score_preset.py --rows=tools/reproduction/preset_rows \\
        --data=data --work=work \\
        electra_wiki_en=electra_wiki_en untrained=untrained masked_lm=mlm_64
    python tools/score_preset.py --rows=tools/reproduction/preset_rows

Chooses each checkpoint's learning rate for each task: trained on a tenth of the
training data, scored on another tenth; for `sst2_1000` on the first sample and on 2,000
other rows (`rates.json`). Then fine-tunes it on all of the data and stores what each
row of dev got, without text (`NAME.rows.json.xz`). Rates and rows that exist are kept,
so the same command resumes after a stop. Prints scores in percent and rates, made from
these files alone; without checkpoints it prints them only. `sst2_1000` has three
samples of 1,000 rows of SST-2; TF-IDF with logistic regression is trained on the same
rows.
"""

import argparse
import json
import lzma
import pathlib
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "reproduction"))
import metrics
import scores

from electra_tf import durable_files

SAMPLES = 3
FEW = "sst2_1000"
SETTINGS = (
    "--config=finetune_tiny",
    "--set=data.max_length=64",
    "--set=training.precision=mixed_bfloat16",
)
NAMES = FEW, *scores.TASKS
RATES = "3e-4", "1e-4", "6e-4"
EPOCHS = {FEW: 20, "cola": 10, "stsb": 10, "mrpc": 10, "rte": 10}
"""Of tasks with few rows; of others those of `SETTINGS`."""


def main() -> None:
    """Fine-tune what has no rows yet, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("systems", nargs="*", metavar="NAME=CHECKPOINT")
    parser.add_argument("--rows", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, help="With glue and tagging.")
    parser.add_argument("--work", type=pathlib.Path, help="A folder for models.")
    parser.add_argument("--tasks", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--trials", type=int, default=1, help="Of each task.")
    parser.add_argument("--rate", help="A learning rate, instead of a choice.")
    options = parser.parse_args()
    if options.systems and not (options.data and options.work):
        parser.error("--data and --work must be set to score a checkpoint")
    if wrong := [system for system in options.systems if "=" not in system]:
        parser.error(f"a checkpoint must have a name. Received: {wrong[0]}")
    if not options.systems and not options.rows.is_dir():
        parser.error(f"--rows must be a folder that exists. Received: {options.rows}")
    options.rows.mkdir(parents=True, exist_ok=True)
    for task in options.tasks if options.systems else ():
        for system in options.systems:
            fill(task, *system.split("=", 1), options)
    print(table(options.rows))


def fill(task: str, system: str, checkpoint: str, options: Any) -> None:
    """Fine-tune a checkpoint on a task, unless its rows of this rate exist."""
    path = options.rows / f"{system}.rows.json.xz"
    rate = options.rate or choose(task, system, checkpoint, options)
    if read(path).get(task, {}).get("rate") == float(rate):
        return
    source = options.work / "data" / task.removesuffix("_1000")
    scores.prepare(source.name, options.data, source, tenth=False)
    output = options.work / f"{system}-{task}"
    baseline = options.rows / "tfidf.rows.json.xz"
    if task != FEW:
        flags = settings(task, rate)
        rows = scores.finetune(task, checkpoint, source, output, flags, options.trials)
    else:
        rows = few_rows(checkpoint, source, output, rate)
        if not baseline.exists():
            write(baseline, {FEW: tfidf(source)})
    write(path, read(path) | {task: rows | {"rate": float(rate)}})


def settings(task: str, rate: str) -> tuple[str, ...]:
    """Return the flags of a fine-tuning."""
    flags = *SETTINGS, f"--set=optimizer.learning_rate={rate}"
    if task in EPOCHS:
        flags = *flags, f"--set=training.epochs={EPOCHS[task]}"
    return flags


def choose(task: str, system: str, checkpoint: str, options: Any) -> str:
    """Return the rate with the best score on training rows kept apart."""
    path = options.rows / "rates.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    chosen = content.setdefault(system, {})
    if task not in chosen:
        name = task.removesuffix("_1000")
        source = options.work / "tenth" / task
        if task == FEW:
            kept_apart(options, source)
        else:
            scores.prepare(name, options.data, source, tenth=True)
        found = {}
        for rate in RATES:
            output = options.work / f"{system}-{task}-{rate}"
            flags = settings(task, rate)
            rows = scores.finetune(name, checkpoint, source, output, flags, 1)
            found[rate] = round(score(task, rows)[0], 2)
        best = max(found, key=lambda rate: found[rate])
        chosen[task] = {"rate": best, "tuning_scores": found}
        durable_files.write(path, f"{json.dumps(content, indent=1)}\n")
    return chosen[task]["rate"]


def kept_apart(options: Any, folder: pathlib.Path) -> None:
    """Write the first sample of SST-2 and, to choose a rate, 2,000 other rows."""
    source = options.work / "data" / "sst2"
    scores.prepare(source.name, options.data, source, tenth=False)
    lines = _lines(source / "train.tsv")[1]
    train = few(lines, 0)
    others = sorted(set(lines) - set(train))
    _write_split(folder, train, random.Random(0).sample(others, 2000))


def few_rows(
    checkpoint: str, source: pathlib.Path, output: pathlib.Path, rate: str
) -> dict[str, Any]:
    """Fine-tune on each sample of SST-2."""
    results = []
    train, dev = (_lines(source / f"{name}.tsv")[1] for name in ("train", "dev"))
    for sample in range(SAMPLES):
        folder = output.with_name(f"data-{FEW}-{sample}")
        _write_split(folder, few(train, sample), dev)
        flags = *settings(FEW, rate), f"--set=training.seed={sample}"
        results.append(scores.finetune("sst2", checkpoint, folder, output, flags, 1))
    predicted = [result["predicted"][0] for result in results]
    return {"gold": results[0]["gold"], "predicted": predicted}


def few(lines: list[str], sample: int) -> list[str]:
    """Return 1,000 rows, others for each sample."""
    return random.Random(sample).sample(lines, 1000)


def tfidf(source: pathlib.Path) -> dict[str, Any]:
    """Train TF-IDF with logistic regression on the same samples."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    lines = _lines(source / "train.tsv")[1]
    texts, gold = _columns(_lines(source / "dev.tsv")[1])
    predicted = []
    for sample in range(SAMPLES):
        model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
        model.fit(*_columns(few(lines, sample)))
        predicted.append("".join(model.predict(texts)))
    return {"gold": "".join(gold), "predicted": predicted}


def _write_split(
    folder: pathlib.Path, train: Sequence[str], dev: Sequence[str]
) -> None:
    """Write rows of SST-2 to train and to score."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in ("train", train), ("dev", dev):
        text = "\n".join(("sentence\tlabel", *rows, ""))
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")


def _lines(path: pathlib.Path) -> tuple[str, list[str]]:
    head, *lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    return head, lines


def _columns(lines: list[str]) -> tuple[list[str], list[str]]:
    texts, labels = zip(*(line.split("\t") for line in lines), strict=True)
    return list(texts), list(labels)


def read(path: pathlib.Path) -> dict[str, Any]:
    """Return the rows of a system by task."""
    return json.loads(lzma.decompress(path.read_bytes())) if path.exists() else {}


def write(path: pathlib.Path, rows: Mapping[str, Any]) -> None:
    """Store the rows of a system."""
    durable_files.write(path, lzma.compress(json.dumps(rows).encode()))


def score(task: str, rows: Mapping[str, Any]) -> list[float]:
    """Return the score of each seed, in percent."""
    name = task.removesuffix("_1000")
    ones = np.ones((1, len(metrics.arrays(rows)[0][0])))
    return [float(metrics.score(name, s, ones)[0]) for s in metrics.arrays(rows)]


def table(folder: pathlib.Path) -> str:
    """Return Markdown tables: means and the range of the seeds, and rates."""
    paths = sorted(folder.glob("*.rows.json.xz"))
    systems = {path.name.removesuffix(".rows.json.xz"): read(path) for path in paths}
    head = [f"| | {' | '.join(NAMES)} |", "|---" * (len(NAMES) + 1) + "|"]
    lines, rates = list(head), list(head)
    for system, rows in systems.items():
        cells = [cell(score(n, rows[n])) if n in rows else "" for n in NAMES]
        lines.append(f"| {system} | {' | '.join(cells)} |")
        cells = [
            f"{rows[n]['rate']:g}" if "rate" in rows.get(n, ()) else "" for n in NAMES
        ]
        rates.append(f"| {system} | {' | '.join(cells)} |")
    return "\n".join((*lines, "", "Learning rates:", "", *rates))


def cell(values: list[float], digits: int = 1) -> str:
    """Return a mean, and the range of several values."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({min(values):.{digits}f} to {max(values):.{digits}f})"


if __name__ == "__main__":
    main()
