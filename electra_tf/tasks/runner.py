"""The same task with several seeds: a line for each, then how they are spread.

output/
  config.yaml       the settings, themselves a --config
  trials.jsonl      a line for each trial that is done
  model.keras       the trial with the best score on the dev data
  trial_1/          its predictions for each part, TensorBoard's files
"""

import contextlib
import dataclasses
import functools
import json
import math
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.tasks.batching import EncodedExamples, prediction_batch_indices
from electra_tf.tasks.callbacks import SelectionPolicy, TrialCheckpoint, format_scores
from electra_tf.tasks.optimizer import int_value
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.tasks.task import Task
from electra_tf.tasks.text_model import TextModel
from electra_tf.training.disk_errors import reraise_full_disk
from electra_tf.training.optimizer import create_optimizer

CONFIG, TRIALS, MODEL = "config.yaml", "trials.jsonl", "model.keras"


@dataclasses.dataclass(frozen=True)
class Trial:
    """What came of one seed."""

    number: int
    """From 1."""
    seed: int
    scores: Mapping[str, float]
    """By part and metric, `dev_mcc`."""
    degenerate: str | None
    """What is wrong with it, in words."""
    epochs: list[Mapping[str, float]]
    """Scores after each epoch."""
    seconds: float
    """Training and measuring, in the process that ended it."""


class MultiSeedRunner:
    """Runs what is not done yet of a number of trials.

    Args:
        task: Read.
        start: The pre-trained encoder.
        settings: All of fine-tuning.
        output: The folder.
        devices: The replicas.
        say: Gets the lines for people.
    """

    def __init__(
        self,
        task: Task,
        start: PretrainedEncoder,
        settings: FinetuningConfig,
        output: str,
        devices: tf.distribute.Strategy,
        say: Callable[[str], None] = print,
    ):
        self._task, self._start, self._settings = task, start, settings
        self._output, self._devices, self._say = pathlib.Path(output), devices, say
        self._model: TextModel | None = None
        self._examples: EncodedExamples | None = None

    def run(self, count: int) -> list[Trial]:
        """Trains and measures, seed by seed.

        Args:
            count: Trials in all.

        Returns:
            Those that were done before, and the new ones.

        Raises:
            InputError: The folder holds trials of other settings or another
                checkpoint.
        """
        done = self._resume()
        for trial in done:  # what a kill after its line left
            self._keeper(trial.number).forget()
        for number in range(len(done) + 1, count + 1):
            with reraise_full_disk(
                str(self._output),
                "Free space, then run the same command again; it resumes after the "
                "last finished epoch",
            ):
                trial = self._one(number)
                if self._value(trial) > max(map(self._value, done), default=-math.inf):
                    self._save_model()
                # Last: what stands here is done.
                with (self._output / TRIALS).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(dataclasses.asdict(trial)) + "\n")
            self._keeper(number).forget()
            done.append(trial)
            self._say(self._line(trial, count))
        return done[:count]

    @functools.cached_property
    def _beginning(self) -> str:
        """What `config.yaml` says."""
        identity = {
            "task": self._task.name,
            "data": self._task.fingerprint,
            "checkpoint": self._start.identity,
        }
        return f"# {json.dumps(identity)}\n{loader.dump_config(self._settings)}"

    def _begin(self) -> None:
        """Binds the folder to the settings, now that a model was made of them."""
        file = self._output / CONFIG
        if not file.exists():
            partial = file.with_suffix(".partial")
            partial.write_text(self._beginning, encoding="utf-8")
            partial.replace(file)

    def _resume(self) -> list[Trial]:
        self._output.mkdir(parents=True, exist_ok=True)
        file, text = self._output / CONFIG, self._beginning
        known = file.read_text(encoding="utf-8") if file.exists() else text
        if known != text:
            raise InputError(
                f"{self._output} goes on with the task, data, checkpoint and settings "
                "it began with, those in its config.yaml",
                _changed(known, text),
                "Name another --output, or delete that folder",
            )
        lines = self._output / TRIALS
        if not lines.exists():
            return []
        whole = [line for line in lines.read_text().split("\n")[:-1] if line]
        partial = lines.with_suffix(".partial")
        partial.write_text("".join(f"{line}\n" for line in whole), encoding="utf-8")
        partial.replace(lines)
        return [Trial(**json.loads(line)) for line in whole]

    def _one(self, number: int) -> Trial:
        begun = time.monotonic()
        model = self._prepared(self._settings.training.seed + number - 1)
        self._begin()
        keeper = self._keeper(number)
        first = keeper.resume(model)
        if first:
            self._say(
                f"{self._task.name} trial {number}: going on after "
                f"{pluralize(first, 'epoch')}"
            )
        epochs = self._settings.training.epochs
        if not keeper.is_over and first < epochs:
            board = str(self._output / f"trial_{number}" / "tensorboard")
            model.fit(
                self._examples,
                epochs=epochs,
                initial_epoch=first,
                callbacks=[keeper, keras.callbacks.TensorBoard(board)],
                verbose=1 if os.isatty(1) else 0,
            )
        keeper.finish(model)
        scores, wrong = self._measured(model, number)
        seed = int_value(model.seed)
        return Trial(
            number, seed, scores, wrong, keeper.history,
            time.monotonic() - begun,
        )  # fmt: skip

    def _prepared(self, seed: int) -> TextModel:
        """The compiled model with initial weights; made once, then made new again."""
        if self._model is not None:
            self._model.reinitialize(self._start, seed)
            return self._model
        training = self._settings.training
        # A strategy hands batches out through a data set of its own, with tf.data's
        # tuner on, which holds up the end of a pass for seconds.
        alone = self._devices.num_replicas_in_sync == 1
        with contextlib.nullcontext() if alone else self._devices.scope():
            model = self._task.model(self._start, self._settings, seed)
            self._examples = self._task.training_examples(model)
            batches = len(
                prediction_batch_indices(self._examples.lengths, training.batch_size)
            )
            steps = batches * training.epochs
            depth = model.shape.depth
            model.compile(create_optimizer(self._settings.optimizer, steps, depth))
            model.optimizer.build(model.trainable_variables)
        self._say(
            f"{self._task.name}: {len(self._examples):,} examples to learn from, "
            f"{steps:,} steps in {pluralize(training.epochs, 'epoch')}; "
            + ", ".join(f"{n} {len(p):,}" for n, p in self._task.eval_splits.items())
        )
        if self._task.label_counts:
            self._say(f"train: {self._task.label_counts}")
        self._tell_cut(model)
        self._model = model
        return model

    def _tell_cut(self, model: TextModel) -> None:
        """Print how many texts are longer than the settings allow."""
        squad = self._task.name.startswith("squad")  # whose contexts have windows
        name_of = "max_query_length" if squad else "max_length"
        limit = getattr(self._settings.data, name_of)
        for name, part in self._task.splits.items():
            train = name == "train"
            made = self._examples if train else model.examples(part.items)
            if made.truncated:
                self._say(
                    f"{name}: {made.truncated:,} of {len(made):,} inputs were cut: "
                    f"they were longer than data.{name_of} {limit} allows"
                )

    def _keeper(self, number: int) -> TrialCheckpoint:
        training = self._settings.training
        keeping = SelectionPolicy(training.keep == "best", training.early_stopping)
        folder = str(self._output / f"trial_{number}")
        return TrialCheckpoint(
            folder, self._scores, self._task.monitor, keeping, self._say
        )

    def _scores(self) -> dict[str, float]:
        """Of the dev part."""
        name, part = next(iter(self._task.eval_splits.items()))
        predictions = self._task.predictions(self._model, part)
        return _named(name, self._task.score(part, predictions))

    def _measured(
        self, model: TextModel, number: int
    ) -> tuple[dict[str, float], str | None]:
        """Scores of all parts, what is wrong with the first; predictions as files."""
        folder = self._output / f"trial_{number}"
        folder.mkdir(parents=True, exist_ok=True)
        scores, wrong = {}, None
        for name, part in self._task.splits.items():
            if name == "train":
                continue
            predictions = self._task.predictions(model, part)
            if part.targets is not None and not scores:
                predictions = self._task.tune_threshold(model, predictions)
                wrong = self._task.degenerate(part, predictions)
            self._task.write(part, predictions, str(folder / name))
            if part.targets is not None:
                scores |= _named(name, self._task.score(part, predictions))
        return scores, wrong

    def _save_model(self) -> None:
        """Without what only training needs."""
        model = self._model
        plain = model.clone_with_seed(self._start, int_value(model.seed))
        for variable, value in zip(plain.weights, model.weights, strict=True):
            variable.assign(value)
        partial = self._output / f"unfinished.{MODEL}"
        try:
            plain.save(partial)
            partial.replace(self._output / MODEL)
        finally:
            partial.unlink(missing_ok=True)

    def _value(self, trial: Trial) -> float:
        value = trial.scores[self._task.monitor]
        return value if math.isfinite(value) else -sys.float_info.max

    def _line(self, trial: Trial, count: int) -> str:
        words = "  ".join(
            f"{name} {v:.2f}" for name, v in format_scores(trial.scores).items()
        )
        wrong = f"  DEGENERATE: {trial.degenerate}" if trial.degenerate else ""
        return (
            f"{self._task.name} trial {trial.number} of {count} (seed {trial.seed}): "
            f"{words}{wrong}  {trial.seconds:.0f} s"
        )


def summary(trials: list[Trial], name: str) -> dict[str, float]:
    """How a score is spread.

    Args:
        trials: One or more.
        name: Of the score, `dev_mcc`.

    Returns:
        Median, mean, standard deviation (of a sample), least and most, and how many
        runs there are and how many of them are degenerate, all counted in.
    """
    values = [trial.scores[name] for trial in trials]
    return {
        "median": statistics.median(values),
        "mean": statistics.fmean(values),
        "sd": _deviation(values),
        "min": min(values),
        "max": max(values),
        "trials": len(values),
        "degenerate": sum(trial.degenerate is not None for trial in trials),
    }


def _deviation(values: list[float]) -> float:
    """Of a sample; infinite where a value is, which `statistics` does not take."""
    if not all(map(math.isfinite, values)):
        return math.inf
    return statistics.stdev(values) if len(values) > 1 else 0.0


def format_summary(trials: list[Trial], task: str) -> str:
    """The summary of every score, for people.

    Args:
        trials: One or more.
        task: Its name.

    Returns:
        A line for each score; none for counts and thresholds.
    """
    lines = []
    for name in format_scores(trials[0].scores):
        found = summary(trials, name)
        numbers = "  ".join(
            f"{word} {found[word]:.2f}"
            for word in ("median", "mean", "sd", "min", "max")
        )
        failed = (
            f", {found['degenerate']:.0f} degenerate" if found["degenerate"] else ""
        )
        lines.append(
            f"{task} {name}: {numbers}  ({pluralize(found['trials'], 'trial')}{failed})"
        )
    return "\n".join(lines)


def pluralize(number: int, noun: str) -> str:
    """A number of things, in words.

    Args:
        number: How many.
        noun: One of them, with a plural in -s.

    Returns:
        `1 epoch`, `1,200 epochs`.
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _changed(known: str, text: str) -> str:
    """What differs between two `config.yaml`, in words."""
    try:
        then = json.loads(known.partition("\n")[0].strip("#"))
    except ValueError:  # edited by hand
        then = {}
    now = json.loads(text.partition("\n")[0].strip("#"))
    named = {
        "task": f"the task {now['task']!r}, not {then.get('task')!r}",
        "data": "data with other contents",
        "checkpoint": "another checkpoint",
    }
    words = [named[name] for name in now if now[name] != then.get(name)]
    others = set(text.splitlines()[1:]) - set(known.splitlines())
    words += [line.strip() for line in text.splitlines() if line in others]
    return "; ".join(words) or "fewer settings"


def _named(part: str, scores: Mapping[str, Any]) -> dict[str, float]:
    return {f"{part}_{name}": float(value) for name, value in scores.items()}
