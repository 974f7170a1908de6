"""Compare settings of fine-tuning on training rows kept apart.

    python tools/reproduction/defaults.py tools/reproduction/defaults.yaml \\
        --data=data --rows=tools/reproduction/defaults_rows
    python tools/reproduction/defaults.py tools/reproduction/defaults.yaml \\
        --rows=tools/reproduction/defaults_rows --table

The file lists groups of runs: networks, tasks, variants of settings, seeds. A run
trains on training rows and is scored on other training rows; dev is never read. Its
scores are one line of ROWS/rows.jsonl; runs that have a line are not repeated.
`--table` prints means and ranges from the rows alone.

A task is one of `scores.TASKS` but `mnli`, or NAME@N: N rows, others for each seed.
`sst2_sentences` keeps texts of 12 words or more apart, as those of dev are, and trains
on no part of them. Variants beside settings: `updates` (epochs for at least so many, at
most 100), `average` (weights averaged over the last share of the updates) and `commit`
(made by the code of that commit, and read here for tables only).
"""

import argparse
import json
import math
import os
import pathlib
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import scores
import yaml

_KEPT_APART = 1500
_SENTENCE = 12  # words of a sentence, at least, in `sst2_sentences`
_MOST_EPOCHS = 100
_SPECIAL = "updates", "average", "commit"
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("file", type=pathlib.Path)
    add("--data", type=pathlib.Path, help="With glue and tagging.")
    add("--rows", type=pathlib.Path, required=True)
    add("--paths", nargs="*", default=(), metavar="NETWORK=PATH", help="Checkpoints.")
    add("--table", action="store_true")
    options = parser.parse_args()
    spec = yaml.safe_load(options.file.read_text(encoding="utf-8"))
    if options.table:
        print(table(spec, read_rows(*sorted(options.rows.glob("*.jsonl")))))
        return
    options.rows.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(options.data, dict(p.split("=", 1) for p in options.paths))
    # The runs of one network, task and variant share a compiled model.
    runs = (
        {name: key[name] for name in ("network", "task", "settings")} | {"seed": seed}
        for key in keys(spec)
        if "commit" not in key["settings"]
        for seed in key["seeds"]
    )
    fill(options.rows / "rows.jsonl", runs, trainer.run)


def keys(spec: Mapping[str, Any]) -> Iterator[Row]:
    for group in spec["groups"]:
        base = {**spec["base"], **group.get("base", {})}
        for task in group["tasks"]:
            for network in group["networks"]:
                for variant, change in group["variants"].items():
                    key = {"network": network, "task": task, "variant": variant}
                    settings = base | (change or {})
                    yield key | {"settings": settings, "seeds": group["seeds"]}


def fill(path: pathlib.Path, runs: Iterable[Row], make: Callable[..., Row]) -> None:
    """Store a row of each run that has none, a line of JSON."""
    for run in runs:
        if not any(same(run, row) for row in read_rows(path)):
            begin = time.monotonic()
            row = run | make(**run)
            row["seconds"] = round(time.monotonic() - begin)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print({n: v for n, v in row.items() if n != "dev"}, flush=True)


def same(run: Row, row: Row) -> bool:
    """Return whether a row is that of a run."""
    return all(row.get(name) == value for name, value in run.items())


def read_rows(*paths: pathlib.Path) -> list[Row]:
    texts = (path.read_text("utf-8") for path in paths if path.exists())
    return [json.loads(line) for text in texts for line in text.splitlines()]


class Models:
    """Models of fine-tuning; the last one is used again if it fits."""

    def __init__(self):
        self._key, self._model = None, None

    def get(self, key: Any, start: Any, seed: int, make: Any) -> Any:
        """Return a model with the initial weights of a seed."""
        if key == self._key:  # compiled
            self._model.reinitialize(start, seed)
        else:
            self._key, self._model = key, make()
        return self._model


class Trainer:
    def __init__(self, data: pathlib.Path, paths: Mapping[str, str]):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        self._data, self._paths, self._models, self._starts = data, paths, Models(), {}

    def run(self, network: str, task: str, seed: int, settings: Row) -> Row:
        from electra_tf import sources

        data, config = self._read(task, seed, settings)
        if network not in self._starts:
            path = self._paths.get(network, network)
            self._starts = {network: sources.open_pretrained(path).encoder}
        start = self._starts[network]
        key = network, task, json.dumps(settings, sort_keys=True)
        make = lambda: data.model(start, settings=config, seed=seed)  # noqa: E731
        model = self._models.get(key, start, seed, make)
        examples = data.training_examples(model)
        model.pairs = examples.pairs
        steps = math.ceil(len(examples) / config.training.batch_size)
        epochs = config.training.epochs or 1
        if updates := settings.get("updates"):
            epochs = min(_MOST_EPOCHS, max(epochs, math.ceil(updates / steps)))
        share = settings.get("average")
        callbacks = [_average(share, epochs * steps)] if share else []
        model.fit(examples, epochs=epochs, verbose=0, callbacks=callbacks)
        split, scorer = data.eval_splits["dev"], data.scorer
        predictions = scorer.best(model, model.predict_details(split.items))
        return {
            "metric": scorer.metric,
            "score": round(scorer.score(split, predictions)[scorer.metric], 3),
            "degenerate": scorer.degenerate(split, predictions),
            "updates": epochs * steps,
            "examples": len(examples),
        }

    def _read(self, task: str, seed: int, settings: Row) -> tuple:
        from electra_tf.config import loader
        from electra_tf.config.finetuning import FinetuningConfig
        from electra_tf.tasks.registry import named
        from electra_tf.tasks.task_data import Reading
        from electra_tf.text.data_errors import DataErrorLog

        plain = {n: value for n, value in settings.items() if n not in _SPECIAL}
        config = loader.to_config(plain, FinetuningConfig)
        with tempfile.TemporaryDirectory() as folder:
            name = self._write(task, seed, pathlib.Path(folder))
            log = DataErrorLog(config.data.on_error, os.path.join(folder, "errors"))
            reading = Reading(config.data, log, lambda line: None)
            return named(name).training_data(name, folder, reading), config

    def _write(self, task: str, seed: int, folder: pathlib.Path) -> str:
        """Write the rows to train and to score; return the task's name."""
        task, _, few = task.partition("@")
        name = task.removesuffix("_sentences")
        known = scores.TASKS[name]
        head, rows = scores.read(self._data, known.train, known)
        random.Random(0).shuffle(rows)
        if task != name:
            apart, rows = sentences(rows)
        else:
            apart, rows = rows[:_KEPT_APART], rows[_KEPT_APART:]
        if few:
            rows = random.Random(seed).sample(rows, int(few))
        for stem, items in (("train", rows), ("dev", apart)):
            path = folder / f"{stem}{known.suffix}"
            path.write_text(head + "".join(items), encoding="utf-8", newline="")
        return name


def sentences(rows: list[str]) -> tuple[list[str], list[str]]:
    """Return long rows of SST-2 to keep apart, and the rows that share no text."""
    texts = [row.rpartition("\t")[0].strip() for row in rows]
    long = [n for n, text in enumerate(texts) if len(text.split()) >= _SENTENCE]
    chosen = long[:_KEPT_APART]
    whole = "\n".join(texts[n] for n in chosen)
    free = [n for n in range(len(rows)) if texts[n] not in whole]
    free = [n for n in free if not any(texts[m] in texts[n] for m in chosen)]
    return [rows[n] for n in chosen], [rows[n] for n in free]


def _average(share: float, updates: int) -> Any:
    """Return a callback that averages the weights of the last updates, every tenth."""
    import keras

    class Average(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            self.step, self.count, self.sums = 0, 0, None

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.step += 1
            if self.step < updates * (1 - share) or self.step % 10:
                return
            values = [v.numpy() for v in self.model.trainable_variables]
            sums = self.sums or [0] * len(values)
            self.sums = [a + b for a, b in zip(sums, values, strict=True)]
            self.count += 1

        def on_train_end(self, logs: Any = None) -> None:
            for v, total in zip(self.model.trainable_variables, self.sums, strict=True):
                v.assign(total / self.count)

    return Average()


def table(spec: Mapping[str, Any], rows: list[Row]) -> str:
    lines = []
    for group in spec["groups"]:
        tasks, cells = group["tasks"], {}
        lines += ["", f"### {group['name']}", ""]
        lines += [f"| network | variant | {' | '.join(tasks)} |"]
        lines += ["|---" * (len(tasks) + 2) + "|"]
        for key in keys({"groups": [group], "base": spec["base"]}):
            seeds, variant = key.pop("seeds"), key.pop("variant")
            found = [r for r in rows if r["seed"] in seeds and same(key, r)]
            cells[key["network"], variant, key["task"]] = cell(found)
        for network in group["networks"]:
            for variant in group["variants"]:
                shown = [cells[network, variant, task] for task in tasks]
                lines.append(f"| {network} | {variant} | {' | '.join(shown)} |")
    return "\n".join(lines[1:])


def cell(rows: list[Row]) -> str:
    if not rows:
        return ""
    values = [row["score"] for row in rows]
    text = f"{statistics.fmean(values):.1f}"
    if len(values) > 1:
        text += f" ({min(values):.1f} to {max(values):.1f}; {len(values)})"
    if bad := sum(row.get("degenerate") is not None for row in rows):
        text += f", {bad} degenerate"
    return text


if __name__ == "__main__":
    main()
