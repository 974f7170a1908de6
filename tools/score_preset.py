"""Score a preset with the defaults of fine-tuning, beside other systems.

    python tools/score_preset.py --rows=tools/reproduction/preset_rows \\
        --data=data --work=work \\
        electra_wiki_en=electra_wiki_en untrained=electra_wiki_en --random untrained
    python tools/score_preset.py --rows=tools/reproduction/preset_rows

Fine-tunes each checkpoint with the command `finetune` and no setting but the precision,
and stores what each row of dev got, without text (`NAME.rows.json.xz`). Rows that exist
are kept, so the same command resumes after a stop. Prints scores in percent, made from
these files alone; without checkpoints it prints them only. `sst2_300` and `sst2_1000`
have five samples of so many rows of SST-2; TF-IDF of words and pairs of words with
logistic regression is trained on the same rows.
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

SAMPLES = 5
FEW = {"sst2_300": 300, "sst2_1000": 1000}
NAMES = *FEW, *scores.TASKS
_SETTINGS = ("--set=training.precision=mixed_bfloat16",)
_RANDOM = ("--set=model.weights=random",)


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
    parser.add_argument(
        "--random", nargs="*", default=(), help="Systems with random weights."
    )
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
    """Fine-tune a checkpoint on a task, unless its rows exist."""
    path = options.rows / f"{system}.rows.json.xz"
    if task in read(path):
        return
    name = "sst2" if task in FEW else task
    source = options.work / "data" / name
    scores.prepare(name, options.data, source, tenth=False)
    output = options.work / f"{system}-{task}"
    flags = *_SETTINGS, *(_RANDOM if system in options.random else ())
    if task not in FEW:
        rows = scores.finetune(task, checkpoint, source, output, flags, options.trials)
    else:
        rows = few_rows(task, checkpoint, source, output, flags)
        baseline = options.rows / "tfidf.rows.json.xz"
        if task not in read(baseline):
            write(baseline, read(baseline) | {task: tfidf(source, FEW[task])})
    write(path, read(path) | {task: rows})


def few_rows(
    task: str,
    checkpoint: str,
    source: pathlib.Path,
    output: pathlib.Path,
    flags: Sequence[str],
) -> dict[str, Any]:
    """Fine-tune on each sample of SST-2."""
    results = []
    train, dev = (_lines(source / f"{name}.tsv")[1] for name in ("train", "dev"))
    for sample in range(SAMPLES):
        folder = output.with_name(f"data-{task}-{sample}")
        _write_split(folder, few(train, FEW[task], sample), dev)
        seed = f"--set=training.seed={sample}"
        results.append(
            scores.finetune("sst2", checkpoint, folder, output, (*flags, seed), 1)
        )
    predicted = [result["predicted"][0] for result in results]
    return {"gold": results[0]["gold"], "predicted": predicted}


def few(lines: list[str], count: int, sample: int) -> list[str]:
    """Return some rows, others for each sample."""
    return random.Random(sample).sample(lines, count)


def tfidf(source: pathlib.Path, count: int) -> dict[str, Any]:
    """Train TF-IDF with logistic regression on the same samples."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    lines = _lines(source / "train.tsv")[1]
    texts, gold = _columns(_lines(source / "dev.tsv")[1])
    predicted = []
    for sample in range(SAMPLES):
        model = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2)),
            LogisticRegression(C=10, max_iter=1000),
        )
        model.fit(*_columns(few(lines, count, sample)))
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
    name = "sst2" if task in FEW else task
    ones = np.ones((1, len(metrics.arrays(rows)[0][0])))
    return [float(metrics.score(name, s, ones)[0]) for s in metrics.arrays(rows)]


def degenerate(rows: Mapping[str, Any]) -> int:
    """Return the number of seeds that predict one class for all rows."""
    return sum(len(set(seed)) == 1 for seed in rows.get("predicted", ()))


def table(folder: pathlib.Path) -> str:
    """Return a Markdown table: means, and the range of the seeds."""
    paths = sorted(folder.glob("*.rows.json.xz"))
    systems = {path.name.removesuffix(".rows.json.xz"): read(path) for path in paths}
    lines = [f"| | {' | '.join(NAMES)} |", "|---" * (len(NAMES) + 1) + "|"]
    for system, rows in systems.items():
        cells = [cell(score(n, rows[n])) if n in rows else "" for n in NAMES]
        lines.append(f"| {system} | {' | '.join(cells)} |")
    runs = sum(
        len(r.get("predicted", ())) for s in systems.values() for r in s.values()
    )
    constant = sum(degenerate(r) for s in systems.values() for r in s.values())
    lines += ["", f"{constant} of {runs} runs of classes or scores predict a constant."]
    return "\n".join(lines)


def cell(values: list[float], digits: int = 1) -> str:
    """Return a mean, and the range of several values."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({min(values):.{digits}f} to {max(values):.{digits}f})"


if __name__ == "__main__":
    main()
