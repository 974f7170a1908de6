"""Measure what pre-training on the task's own unlabelled text is worth.

    python tools/reproduction/own_text.py tools/reproduction/own_text.yaml \\
        --data=data --work=work --rows=tools/reproduction/own_text_rows
    python tools/reproduction/own_text.py tools/reproduction/own_text.yaml \\
        --rows=tools/reproduction/own_text_rows --table

The file lists systems of a task: the weights that they begin with, the passes over the
text, settings of `pretrain`; and groups of fine-tunings. Text, records and checkpoints
are made with `build_vocab`, `build_records` and `pretrain` when a fine-tuning needs
them, and fine-tuning has its defaults. Each result is a line of ROWS/TASK.jsonl; what
has a line is not repeated. `--table` prints means and ranges from the rows alone.

`sst2`: the unlabelled text is training rows that are no part of others, without those
kept apart (see defaults.py). `apart` are 1,500 kept apart, `dev` the published dev set.
`waimai`, `hotels`: reviews; `apart` are 1,500 that pre-training does not read.
`functions`: which of ten packages a function is of, by its docstring. Text and tables
are made from the installed packages, in DATA/docstrings (see adapt_encoder.py).
"""

import argparse
import collections
import csv
import json
import pathlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import defaults
import scores
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "quickstart_lib"))
import domain_text

Rows = list[tuple[str, str]]
"""Texts and labels."""
Row = dict[str, Any]
_APART = 1500
_FUNCTIONS, _MEGABYTES = 2000, 12  # 1,000 functions to train, 700 to score


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("file", type=pathlib.Path)
    add("--rows", type=pathlib.Path, required=True)
    add("--data", type=pathlib.Path, help="With glue and zh.")
    add("--work", type=pathlib.Path, help="A folder for checkpoints.")
    add("--tasks", nargs="*", help="Of the file; default all.")
    add("--table", action="store_true")
    add("--split", default="apart", help="Of the table: apart, dev.")
    options = parser.parse_args()
    spec = yaml.safe_load(options.file.read_text(encoding="utf-8"))
    for name in options.tasks or spec:
        if options.table:
            print(table(name, spec[name], options.rows, options.split))
        else:
            options.rows.mkdir(parents=True, exist_ok=True)
            made = Runs(name, spec[name], options)
            defaults.fill(made.rows, runs(spec[name]), made.run)


def sst2(data: pathlib.Path) -> tuple[list[str], Rows, dict[str, Rows]]:
    """Return unlabelled texts, rows to train and rows to score."""
    lines, dev = (_lines(data / f"glue/SST-2/{n}.tsv")[1:] for n in ("train", "dev"))
    random.Random(0).shuffle(lines)
    splits = (*defaults.sentences(lines), dev)
    apart, train, dev = (
        [(text.strip(), label) for text, label in (x.split("\t") for x in part)]
        for part in splits
    )
    texts, whole = [], ""
    for text in sorted({t for t, _ in train}, key=lambda t: (-len(t), t)):
        if text not in whole:
            texts.append(text)
            whole += f"\n{text}"
    random.Random(0).shuffle(texts)
    return texts, train, {"apart": apart, "dev": dev}


def reviews(path: pathlib.Path) -> tuple[list[str], Rows, dict[str, Rows]]:
    table = csv.DictReader(_lines(path))
    found = {" ".join(row["review"].split()): row["label"] for row in table}
    rows = sorted((text, label) for text, label in found.items() if text)
    random.Random(0).shuffle(rows)
    train, apart = rows[_APART:], rows[:_APART]
    return [text for text, _ in train], train, {"apart": apart}


def functions(folder: pathlib.Path) -> tuple[list[str], Rows, dict[str, Rows]]:
    if not (folder / "functions" / "test.tsv").exists():
        folder.mkdir(parents=True, exist_ok=True)
        domain_text.collect(folder, _FUNCTIONS, _MEGABYTES)
    train, apart = (
        [tuple(line.split("\t")) for line in _lines(folder / f"functions/{n}.tsv")[1:]]
        for n in ("train", "test")
    )
    texts = [line for line in _lines(folder / "train.txt") if line]
    return texts, train, {"apart": apart}


READERS = {
    "sst2": sst2,
    "waimai": lambda data: reviews(data / "zh/waimai_10k.csv"),
    "hotels": lambda data: reviews(data / "zh/ChnSentiCorp_htl_all.csv"),
    "functions": lambda data: functions(data / "docstrings"),
}


def _lines(path: pathlib.Path) -> list[str]:
    return scores.read_text(path).replace("\r\n", "\n").rstrip("\n").split("\n")


def runs(plan: Row) -> Iterator[Row]:
    for group in plan["groups"]:
        for seed in group["seeds"]:
            for system in group["systems"]:
                yield {"system": system, "rows": group["rows"], "seed": seed}


class Runs:
    def __init__(self, name: str, plan: Row, options: argparse.Namespace):
        self._plan, self._work, self._data = plan, options.work / name, options.data
        self._work.mkdir(parents=True, exist_ok=True)
        self.rows = options.rows / f"{name}.jsonl"
        self._text, self._train, self._splits = READERS[name](options.data)
        self._labels = sorted({label for _, label in self._train})
        self._models = defaults.Models()

    def run(self, system: str, rows: int | str, seed: int) -> Row:
        count = len(self._train) if rows == "all" else rows
        sample = random.Random(seed).sample(self._train, count)
        if system != "tfidf":
            return self._finetune(system, rows, seed, sample)
        model = scores.tfidf(*self._plan["tfidf"])
        model.fit(*zip(*sample, strict=True))
        return self._scores(model.predict)

    def _finetune(self, system: str, rows: int | str, seed: int, sample: Rows) -> Row:
        import electra_tf
        from electra_tf import sources

        start = sources.open_pretrained(str(self.checkpoint(system))).encoder
        if system == "untrained":
            start = start.untrained()

        def make() -> electra_tf.TextClassifier:
            settings = self._plan.get("finetune")
            return electra_tf.TextClassifier(start, self._labels, settings, seed)

        model = self._models.get((system, rows), start, seed, make)
        texts, labels = zip(*sample, strict=True)
        model.fit(list(texts), list(labels), verbose=0)
        return self._scores(
            lambda texts: [
                self._labels[n] for n in model.predict(texts, verbose=0).argmax(1)
            ]
        )

    def _scores(self, predict: Any) -> Row:
        result = {}
        for split, rows in self._splits.items():
            answers = predict([text for text, _ in rows])
            pairs = zip(answers, rows, strict=True)
            right = sum(answer == label for answer, (_, label) in pairs)
            result[split] = round(100 * right / len(rows), 2)
        return result

    def checkpoint(self, system: str) -> pathlib.Path | str:
        """Return a checkpoint; pre-train it if it does not exist."""
        plan = self._plan["systems"].get(system) or {}
        if "of" in plan:
            return self.checkpoint(plan["of"])
        if "passes" not in plan:
            return self._source(plan.get("checkpoint") or self._plan["start"])
        folder = self._work / system.replace(" ", "_")
        train = lambda trained: self._pretrain(plan, folder)  # noqa: E731
        defaults.fill(self.rows, [{"trained": system}], train)
        return folder

    def _source(self, name: str) -> pathlib.Path | str:
        """Return the folder below --work that has a name, or the name of a preset."""
        folder = self._work.parent / name
        return folder if folder.is_dir() else name

    def _pretrain(self, plan: Row, folder: pathlib.Path) -> Row:
        plan = {"config": self._plan["config"]} | plan
        records, size = self._records(plan), self._plan["batch_size"]
        manifest = json.loads((records / "manifest.json").read_text())
        steps = max(1, round(plan["passes"] * manifest["records"] / size))
        settings = [
            f"records.max_length={self._plan['length']}",
            f"input.batch_size={size}",
            f"training.steps={steps}",
            f"optimizer.warmup_steps={steps // 10}",
            *self._plan.get("set", ()),
            *plan.get("set", ()),
        ]
        flags = [f"--set={setting}" for setting in settings]
        if plan.get("init"):
            flags.append(f"--init_checkpoint={self._source(plan['init'])}")
        scores.run_command(
            "pretrain",
            f"--config={plan['config']}",
            f"--data={records}",
            f"--model_dir={folder}",
            *flags,
            log=self._work / "log.txt",
        )
        return {"steps": steps, "positions": steps * size * self._plan["length"]}

    def _records(self, plan: Row) -> pathlib.Path:
        """Return records of a system, written at the first call."""
        text, log = self._work / "text.txt", self._work / "log.txt"
        start, corpus = plan.get("start", self._plan.get("start")), plan.get("corpus")
        name = (start or "own") + ("_corpus" if corpus else "")
        folder = self._work / f"records_{name}"
        if (folder / "manifest.json").exists():
            return folder
        text.write_text("\n".join([*self._text, ""]), encoding="utf-8")
        files = f"--input={text}" + (f",{self._data / corpus}" if corpus else "")
        vocabulary = self._source(start) if start else self._work / f"{name}.txt"
        if not start:
            size = plan.get("vocabulary", self._plan["vocabulary"])
            flags = f"--size={size}", f"--output={vocabulary}"
            scores.run_command("build_vocab", files, *flags, log=log)
        scores.run_command(
            "build_records",
            files,
            f"--vocab={vocabulary}",
            f"--output={folder}",
            f"--max_length={self._plan['length']}",
            *("--order=document", "--documents=file", "--overwrite"),
            log=log,
        )
        return folder


def table(name: str, plan: Row, folder: pathlib.Path, split: str) -> str:
    """Return a Markdown table: mean, range and number of seeds."""
    found, trained = collections.defaultdict(list), {}
    for row in defaults.read_rows(folder / f"{name}.jsonl"):
        if "trained" in row:
            trained[row["trained"]] = row
        elif split in row:
            found[row["system"], row["rows"]].append({"score": row[split]})
    sizes = list(dict.fromkeys(group["rows"] for group in plan["groups"]))
    lines = ["", f"### {name}, {split}", "", "| system | steps | minutes |"]
    lines[-1] += "".join(f" {size} rows |" for size in sizes)
    lines.append("|---" * (3 + len(sizes)) + "|")
    for system in dict.fromkeys(run["system"] for run in runs(plan)):
        row = trained.get(system)
        cost = f"{row['steps']:,} | {row['seconds'] / 60:.1f}" if row else " | "
        cells = " | ".join(defaults.cell(found[system, size]) for size in sizes)
        lines.append(f"| {system} | {cost} | {cells} |")
    return "\n".join(lines[1:])


if __name__ == "__main__":
    main()
