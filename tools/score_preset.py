"""Score a preset with the defaults of fine-tuning, beside other systems.

    python tools/score_preset.py --rows=tools/reproduction/preset_rows \\
        --data=data --work=work \\
        electra_wiki_en=electra_wiki_en untrained=electra_wiki_en --random untrained
    python tools/score_preset.py --rows=tools/reproduction/preset_rows

Fine-tunes each checkpoint with the command `finetune` and no setting but those of
--set, and stores what each row of dev got, without text (`NAME.rows.json.xz`). Rows
that exist are kept, so the same command resumes after a stop. Prints scores in percent,
made from these files alone; without checkpoints it prints them only. `sst2_300` and
`sst2_1000` have five samples of so many rows of SST-2; TF-IDF of words and pairs of
words with logistic regression is trained on the same rows.
"""

import argparse
import pathlib
import random
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent / "reproduction"))
import scores

SAMPLES = 5
FEW = {"sst2_300": 300, "sst2_1000": 1000}
NAMES = *FEW, *scores.TASKS


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("systems", nargs="*", metavar="NAME=CHECKPOINT")
    add("--rows", type=pathlib.Path, required=True)
    add("--data", type=pathlib.Path, help="With glue and tagging.")
    add("--work", type=pathlib.Path, help="A folder for models.")
    add("--tasks", nargs="*", default=NAMES, choices=NAMES)
    add("--trials", type=int, default=1, help="Of each task.")
    text = "Settings; default training.precision=mixed_bfloat16."
    add("--set", nargs="*", default=["training.precision=mixed_bfloat16"], help=text)
    add("--random", nargs="*", default=(), help="Systems with random weights.")
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
    if task in scores.read_rows(path):
        return
    name = "sst2" if task in FEW else task
    source = options.work / "data" / name
    scores.prepare(name, options.data, source)
    output = options.work / f"{system}-{task}"
    flags = [f"--set={setting}" for setting in options.set]
    if system in options.random:
        flags.append("--set=model.weights=random")
    if task not in FEW:
        rows = scores.finetune(task, checkpoint, source, output, flags, options.trials)
    else:
        rows = few_rows(task, checkpoint, source, output, flags)
        baseline = options.rows / "tfidf.rows.json.xz"
        if task not in scores.read_rows(baseline):
            scores.write_rows(
                baseline, scores.read_rows(baseline) | {task: tfidf(source, FEW[task])}
            )
    scores.write_rows(path, scores.read_rows(path) | {task: rows})


def few_rows(
    task: str,
    checkpoint: str,
    source: pathlib.Path,
    output: pathlib.Path,
    flags: Sequence[str],
) -> dict[str, Any]:
    results, train = [], _lines(source / "train.tsv")
    for sample in range(SAMPLES):
        folder = output.with_name(f"data-{task}-{sample}")
        shutil.copytree(source, folder, dirs_exist_ok=True)
        rows = "sentence\tlabel", *few(train, FEW[task], sample), ""
        (folder / "train.tsv").write_text("\n".join(rows), encoding="utf-8")
        more = *flags, f"--set=training.seed={sample}"
        trained = output.with_name(f"{output.name}-{sample}")
        found = scores.finetune("sst2", checkpoint, folder, trained, more, 1)
        results.append(found)
    predicted = [result["predicted"][0] for result in results]
    return {"gold": results[0]["gold"], "predicted": predicted}


def few(lines: list[str], count: int, sample: int) -> list[str]:
    """Return some rows, others for each sample."""
    return random.Random(sample).sample(lines, count)


def tfidf(source: pathlib.Path, count: int) -> dict[str, Any]:
    """Train TF-IDF with logistic regression on the same samples."""
    lines = _lines(source / "train.tsv")
    texts, gold = _columns(_lines(source / "dev.tsv"))
    predicted = []
    for sample in range(SAMPLES):
        model = scores.tfidf("word", 2)
        model.fit(*_columns(few(lines, count, sample)))
        predicted.append("".join(model.predict(texts)))
    return {"gold": "".join(gold), "predicted": predicted}


def _lines(path: pathlib.Path) -> list[str]:
    return path.read_text(encoding="utf-8").rstrip("\n").split("\n")[1:]


def _columns(lines: list[str]) -> tuple[list[str], list[str]]:
    texts, labels = zip(*(line.split("\t") for line in lines), strict=True)
    return list(texts), list(labels)


def score(task: str, rows: Mapping[str, Any]) -> list[float]:
    return scores.each("sst2" if task in FEW else task, rows)


def table(folder: pathlib.Path) -> str:
    paths = sorted(folder.glob("*.rows.json.xz"))
    systems = {
        path.name.removesuffix(".rows.json.xz"): scores.read_rows(path)
        for path in paths
    }
    lines = [f"| | {' | '.join(NAMES)} |", "|---" * (len(NAMES) + 1) + "|"]
    for system, rows in systems.items():
        cells = [cell(score(n, rows[n])) if n in rows else "" for n in NAMES]
        lines.append(f"| {system} | {' | '.join(cells)} |")
    found = (rows.get("predicted", ()) for s in systems.values() for rows in s.values())
    runs = [seed for seeds in found for seed in seeds]
    constant = sum(len(set(seed)) == 1 for seed in runs)
    count = f"{constant} of {len(runs)} runs predict a constant"
    lines += ["", f"{count}, chunking and mnli not counted."]
    return "\n".join(lines)


def cell(values: list[float], digits: int = 1) -> str:
    mean = f"{statistics.fmean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({min(values):.{digits}f} to {max(values):.{digits}f})"


if __name__ == "__main__":
    main()
