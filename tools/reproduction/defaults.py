"""Compare settings of fine-tuning on training rows kept apart.

    python tools/reproduction/defaults.py tools/reproduction/defaults.yaml \\
        --data=data --rows=tools/reproduction/defaults_rows
    python tools/reproduction/defaults.py tools/reproduction/defaults.yaml \\
        --rows=tools/reproduction/defaults_rows --table

The file lists groups of runs: networks, tasks, variants of settings, seeds. A run
trains on training rows and is scored on other training rows; dev is never read. Its
scores are one line of ROWS/PART.jsonl; runs that have a line are not repeated. Several
processes divide the runs by `--part=0/2`. `--table` prints means and ranges from the
rows alone.

A task is a name of GLUE or `chunking`, `mnli` (its published dev set, split), or
NAME@N: N rows, others for each seed. `sst2_sentences` keeps texts of 12 words or more
apart, as those of dev are, and trains on no part of them. Variants beside settings:
`updates` (epochs for at least so many, at most 100), `reinitialized_layers`, `average`
(weights averaged over the last share of the updates).
"""

import argparse
import collections
import gzip
import json
import math
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

_KEPT_APART = 1500
_SENTENCE = 12  # words of a sentence, at least, in `sst2_sentences`
_MOST_EPOCHS = 100
_HEADERS = "sst2", "sst2_sentences", "mrpc", "rte", "stsb", "mnli"
_FILES = {
    "sst2": "glue/SST-2/train.tsv",
    "sst2_sentences": "glue/SST-2/train.tsv",
    "cola": "glue/CoLA/train.tsv",
    "mrpc": "glue/MRPC/train.tsv",
    "rte": "glue/RTE/train.tsv",
    "stsb": "glue/STS-B/train.tsv",
    "mnli": "glue/MNLI/dev_matched.reduced.tsv",
    "chunking": "tagging/conll2000/train.txt",
}
_SPECIAL = "updates", "reinitialized_layers", "average"


def main() -> None:
    """Run what has no row yet, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, help="With glue and tagging.")
    parser.add_argument("--rows", type=pathlib.Path, required=True)
    parser.add_argument("--part", default="0/1", help="NUMBER/COUNT of processes.")
    parser.add_argument("--groups", nargs="*", help="Names of groups; default all.")
    parser.add_argument(
        "--paths", nargs="*", default=(), metavar="NETWORK=PATH", help="Of checkpoints."
    )
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    spec = yaml.safe_load(options.file.read_text(encoding="utf-8"))
    if options.table:
        print(table(spec, read_rows(options.rows)))
        return
    options.rows.mkdir(parents=True, exist_ok=True)
    part, count = map(int, options.part.split("/"))
    trainer = Trainer(options.data, dict(p.split("=", 1) for p in options.paths))
    # A set of runs of one network, task and variant shares a compiled model.
    for number, key in enumerate(keys(spec, options.groups)):
        if number % count != part:
            continue
        for seed in key["seeds"]:
            done = {identity(row) for row in read_rows(options.rows)}
            run = {name: key[name] for name in ("network", "task", "settings")}
            run["seed"] = seed
            if identity(run) in done:
                continue
            row = run | trainer.run(**run)
            with (options.rows / f"{part}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            shown = (row[name] for name in ("network", "task", "seed", "score"))
            print(key["variant"], *shown, f"{row['seconds']:.0f} s", flush=True)


def keys(spec: Mapping[str, Any], groups: Any = None) -> Iterator[dict[str, Any]]:
    """Yield network, task, variant, settings and seeds."""
    for group in spec["groups"]:
        if groups and group["name"] not in groups:
            continue
        for task in group["tasks"]:
            for network in group["networks"]:
                for variant, change in group["variants"].items():
                    settings = {**spec["base"], **group.get("base", {})}
                    settings |= group.get("by_task", {}).get(task, {}) | (change or {})
                    yield {
                        "network": network,
                        "task": task,
                        "variant": variant,
                        "settings": settings,
                        "seeds": group["seeds"],
                    }


def identity(run: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what distinguishes a run."""
    settings = json.dumps(run["settings"], sort_keys=True)
    return run["network"], run["task"], run["seed"], settings


def read_rows(folder: pathlib.Path) -> list[dict[str, Any]]:
    """Return the rows of all parts."""
    return [
        json.loads(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


class Trainer:
    """Trains models; one that fits the next run is used again."""

    def __init__(self, data: pathlib.Path, paths: Mapping[str, str]):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        self._data, self._paths = data, paths
        self._key, self._model, self._starts = None, None, {}

    def run(
        self,
        network: str,
        task: str,
        seed: int,
        settings: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Train with one seed, and return the scores."""
        begin = time.monotonic()
        special = {n: settings[n] for n in _SPECIAL if n in settings}
        data, config = self._read(task, seed, settings)
        key = network, task, json.dumps(settings, sort_keys=True)
        model = self._initial_model(data, config, network, seed, key)
        if top := special.get("reinitialized_layers"):
            _reinitialize(model, self._starts[network], seed, top)
        examples = data.training_examples(model)
        model.pairs = examples.pairs
        steps = math.ceil(len(examples) / config.training.batch_size)
        epochs = config.training.epochs or 1
        if updates := special.get("updates"):
            epochs = min(_MOST_EPOCHS, max(epochs, math.ceil(updates / steps)))
        split, scorer, curve = data.eval_splits["dev"], data.scorer, []

        def predict() -> Any:
            return scorer.best(model, model.predict_details(split.items))

        score = lambda: scorer.score(split, predict())  # noqa: E731
        callbacks = [_curve(curve, score, epochs)]
        if share := special.get("average"):
            callbacks.append(_average(share, epochs * steps))
        model.fit(examples, epochs=epochs, verbose=0, callbacks=callbacks)
        predictions = predict()
        return {
            "metric": scorer.metric,
            "score": round(scorer.score(split, predictions)[scorer.metric], 3),
            "degenerate": scorer.degenerate(split, predictions),
            "curve": curve,
            "updates": epochs * steps,
            "examples": len(examples),
            "seconds": time.monotonic() - begin,
        }

    def _read(self, task: str, seed: int, settings: Mapping[str, Any]) -> tuple:
        """Return the data of a run, and its config."""
        from electra_tf.config import loader
        from electra_tf.config.finetuning import FinetuningConfig
        from electra_tf.tasks.registry import named
        from electra_tf.tasks.task_data import Reading
        from electra_tf.text.data_errors import DataErrorLog

        plain = {n: value for n, value in settings.items() if n not in _SPECIAL}
        if task == "mnli":
            plain["data.text_columns"] = ("sentence1", "sentence2")
            plain["data.label_column"] = "gold_label"
        config = loader.to_config(plain, FinetuningConfig)
        with tempfile.TemporaryDirectory() as folder:
            name = self._write(task, seed, pathlib.Path(folder))
            log = DataErrorLog("stop", "", "Data must be valid")
            reading = Reading(config.data, log, lambda line: None)
            return named(name).training_data(name, folder, reading), config

    def _initial_model(
        self, data: Any, config: Any, network: str, seed: int, key: tuple
    ) -> Any:
        """Return a model with the weights of a network, the last one if it fits."""
        from electra_tf import sources

        if network not in self._starts:
            path = self._paths.get(network, network)
            self._starts = {network: sources.open_pretrained(path).encoder}
        start = self._starts[network]
        if key == self._key:
            self._model.reinitialize(start, seed)
        else:
            self._model = data.model(start, settings=config, seed=seed)
            self._key = key
        return self._model

    def _write(self, task: str, seed: int, folder: pathlib.Path) -> str:
        """Write the rows to train and to score; return the task's name."""
        name, _, few = task.partition("@")
        path = self._data / _FILES[name]
        opened = open if path.exists() else gzip.open
        path = path if path.exists() else f"{path}.gz"
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            text = file.read().replace("\r\n", "\n")
        tagged = name == "chunking"
        separator = "\n\n" if tagged else "\n"
        rows = [row for row in text.split(separator) if row.strip()]
        head = [rows.pop(0)] if name in _HEADERS else []
        random.Random(0).shuffle(rows)
        if name == "sst2_sentences":
            apart, rows = sentences(rows)
        else:
            apart, rows = rows[:_KEPT_APART], rows[_KEPT_APART:]
        if few:
            rows = random.Random(seed).sample(rows, int(few))
        suffix = "txt" if tagged else "tsv"
        for stem, items in (("train", rows), ("dev", apart)):
            content = separator.join([*head, *items, ""])
            (folder / f"{stem}.{suffix}").write_text(content, encoding="utf-8")
        return {"mnli": "csv", "sst2_sentences": "sst2"}.get(name, name)


def sentences(rows: list[str]) -> tuple[list[str], list[str]]:
    """Return long rows of SST-2 to keep apart, and the rows that share no text."""
    texts = [row.rpartition("\t")[0].strip() for row in rows]
    long = [n for n, text in enumerate(texts) if len(text.split()) >= _SENTENCE]
    chosen = long[:_KEPT_APART]
    whole = "\n".join(texts[n] for n in chosen)
    free = [n for n in range(len(rows)) if texts[n] not in whole]
    free = [n for n in free if not any(texts[m] in texts[n] for m in chosen)]
    return [rows[n] for n in chosen], [rows[n] for n in free]


def _curve(curve: list[float], score: Any, epochs: int) -> Any:
    """Return a callback that stores scores of at most four epochs before the last."""
    import keras

    shown = {round(epochs * share) for share in (0.25, 0.5, 0.75)}

    class Curve(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch + 1 in shown and epoch + 1 < epochs:
                curve.append([epoch + 1, round(next(iter(score().values())), 3)])

    return Curve()


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
            self.sums = values if self.sums is None else [
                a + b for a, b in zip(self.sums, values, strict=True)
            ]  # fmt: skip
            self.count += 1

        def on_train_end(self, logs: Any = None) -> None:
            for v, total in zip(self.model.trainable_variables, self.sums, strict=True):
                v.assign(total / self.count)

    return Average()


def _reinitialize(model: Any, start: Any, seed: int, count: int) -> None:
    """Give the top layers their initial values."""
    fresh = model.clone_with_seed(start.untrained(), seed)
    layers = range(model.shape.depth - count, model.shape.depth)
    pairs = zip(model.encoder.weights, fresh.encoder.weights, strict=True)
    for own, other in pairs:
        if any(f"layer_{n}/" in own.path for n in layers):
            own.assign(other)


def table(spec: Mapping[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table for each group: mean, range and number of seeds."""
    found = collections.defaultdict(list)
    for row in rows:
        found[identity(row)[:2] + identity(row)[3:]].append(row)
    lines = []
    for group in spec["groups"]:
        tasks = group["tasks"]
        lines += ["", f"### {group['name']}", ""]
        lines += [f"| network | variant | {' | '.join(tasks)} |"]
        lines += ["|---" * (len(tasks) + 2) + "|"]
        one = {"groups": [group], "base": spec["base"]}
        cells = {}
        for key in keys(one):
            settings = json.dumps(key["settings"], sort_keys=True)
            results = found[key["network"], key["task"], settings]
            results = [r for r in results if r["seed"] in key["seeds"]]
            cells[key["network"], key["variant"], key["task"]] = cell(results)
        for network in group["networks"]:
            for variant in group["variants"]:
                shown = [cells[network, variant, task] for task in tasks]
                lines.append(f"| {network} | {variant} | {' | '.join(shown)} |")
    return "\n".join(lines[1:])


def cell(rows: list[dict[str, Any]]) -> str:
    """Return mean, range and number of degenerate runs."""
    if not rows:
        return ""
    scores = [row["score"] for row in rows]
    text = f"{statistics.fmean(scores):.1f}"
    if len(scores) > 1:
        text += f" ({min(scores):.1f} to {max(scores):.1f}; {len(scores)})"
    if bad := sum(row["degenerate"] is not None for row in rows):
        text += f", {bad} degenerate"
    return text


if __name__ == "__main__":
    sys.exit(main())
