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
`waimai`: comments; `apart` are 1,500 that pre-training does not read either.
"""

import argparse
import json
import pathlib
import random
import time
from collections.abc import Mapping
from typing import Any

import scores
import yaml
from own_text_data import READERS, Rows, read, runs, same, table


def main() -> None:
    """Run what has no row yet, or print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--rows", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, help="With glue and zh.")
    parser.add_argument("--work", type=pathlib.Path, help="A folder for checkpoints.")
    parser.add_argument("--tasks", nargs="*", help="Of the file; default all.")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--split", default="apart", help="Of the table: apart, dev.")
    options = parser.parse_args()
    spec = yaml.safe_load(options.file.read_text(encoding="utf-8"))
    for name in options.tasks or spec:
        if options.table:
            print(table(name, spec[name], options.rows, options.split))
        else:
            options.rows.mkdir(parents=True, exist_ok=True)
            Runs(name, spec[name], options).fill()


class Runs:
    """Pre-trainings and fine-tunings of one task."""

    def __init__(self, name: str, plan: Mapping[str, Any], options: argparse.Namespace):
        self._name, self._plan, self._work = name, plan, options.work / name
        self._work.mkdir(parents=True, exist_ok=True)
        self._path = options.rows / f"{name}.jsonl"
        self._text, self._train, self._splits = READERS[name](options.data)
        self._models: dict[str, Any] = {}

    def fill(self) -> None:
        """Fine-tune what has no row, group by group and seed by seed."""
        for run in runs(self._plan):
            if not any(same(run, row) for row in read(self._path)):
                count = len(self._train) if run["rows"] == "all" else run["rows"]
                sample = random.Random(run["seed"]).sample(self._train, count)
                begin = time.monotonic()
                method = self._baseline if run["system"] == "tfidf" else self._finetune
                self._store(run | method(run, sample), begin)

    def _store(self, row: dict[str, Any], begin: float) -> None:
        row["seconds"] = round(time.monotonic() - begin)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        shown = {n: value for n, value in row.items() if n != "dev"}
        print(self._name, shown, flush=True)

    def _baseline(self, run: Mapping[str, Any], sample: Rows) -> dict[str, Any]:
        """Train TF-IDF with logistic regression."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        units = self._plan["tfidf"]
        vectors = TfidfVectorizer(analyzer=units[0], ngram_range=(1, units[1]))
        model = make_pipeline(vectors, LogisticRegression(C=10, max_iter=1000))
        model.fit(*zip(*sample, strict=True))
        return self._scores(model.predict)

    def _finetune(self, run: Mapping[str, Any], sample: Rows) -> dict[str, Any]:
        """Train a classifier with all defaults but the precision."""
        import electra_tf
        from electra_tf import sources

        start = sources.open_pretrained(str(self._checkpoint(run["system"]))).encoder
        if run["system"] == "untrained":
            start = start.untrained()
        settings = {"training.precision": "mixed_bfloat16"}
        model = electra_tf.TextClassifier(start, ["0", "1"], settings, run["seed"])
        key = str(model.settings) + str(run["rows"])
        if key in self._models:  # compiled
            model = self._models[key]
            model.reinitialize(start, run["seed"])
        self._models = {key: model}
        texts, labels = zip(*sample, strict=True)
        model.fit(list(texts), list(labels), verbose=0)
        return self._scores(lambda texts: model.predict(texts, verbose=0).argmax(1))

    def _scores(self, predict: Any) -> dict[str, Any]:
        result = {}
        for split, rows in self._splits.items():
            answers = predict([text for text, _ in rows])
            right = sum(
                int(a) == int(b) for a, (_, b) in zip(answers, rows, strict=True)
            )
            result[split] = round(100 * right / len(rows), 2)
        return result

    def _checkpoint(self, system: str) -> pathlib.Path | str:
        """Return a checkpoint; pre-train it if it does not exist."""
        plan = self._plan["systems"].get(system) or {}
        if "of" in plan:
            return self._checkpoint(plan["of"])
        if "passes" not in plan:
            return self._plan["start"]
        folder, begin = self._work / system.replace(" ", "_"), time.monotonic()
        if any(same({"trained": system}, row) for row in read(self._path)):
            return folder
        records, size = self._records(), self._plan["batch_size"]
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
            flags.append(f"--init_checkpoint={plan['init']}")
        scores.run_command(
            "pretrain",
            f"--config={self._plan['config']}",
            f"--data={records}",
            f"--model_dir={folder}",
            *flags,
            log=self._work / "log.txt",
        )
        positions = steps * size * self._plan["length"]
        self._store({"trained": system, "steps": steps, "positions": positions}, begin)
        return folder

    def _records(self) -> pathlib.Path:
        """Return the records of the text, written at the first call."""
        folder, text, log = (self._work / n for n in ("records", "text.txt", "log.txt"))
        if not (folder / "manifest.json").exists():
            text.write_text("\n".join([*self._text, ""]), encoding="utf-8")
            vocabulary = self._plan.get("start") or self._work / "vocab.txt"
            if size := self._plan.get("vocabulary"):
                flags = f"--size={size}", f"--output={vocabulary}"
                scores.run_command("build_vocab", f"--input={text}", *flags, log=log)
            scores.run_command(
                "build_records",
                f"--input={text}",
                f"--vocab={vocabulary}",
                f"--output={folder}",
                f"--max_length={self._plan['length']}",
                *("--order=document", "--documents=file", "--overwrite"),
                log=log,
            )
        return folder


if __name__ == "__main__":
    main()
