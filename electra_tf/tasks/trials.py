"""Fine-tune a task with several seeds, resumably.

output/
  config.yaml       the settings; can be passed as --config
  trials.jsonl      a line for each finished trial
  model.keras       the trial with the best score on the dev split
  training_rows.npy hashes of the encoded training texts, which `evaluate` finds
  trial_1/          predictions for each split, scores of classes, TensorBoard's files

Keras's own callbacks lose their state when a run is killed. `TrialCheckpoint` stores it
after each epoch, so a resumed trial gives the same result as an uninterrupted one.
"""

import contextlib
import dataclasses
import functools
import gc
import json
import math
import os
import pathlib
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf import durable_files
from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig, FitConfig
from electra_tf.errors import InputError
from electra_tf.interop import MODEL
from electra_tf.interop.keras_file import FINETUNING_CONFIG, TRAINING_ROWS
from electra_tf.sources import PretrainedEncoder
from electra_tf.tasks import registry
from electra_tf.tasks.data.table import json_value
from electra_tf.tasks.defaults import default_epochs, describe_epochs
from electra_tf.tasks.evaluation import score_split
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.tasks.input_warnings import InputCounter
from electra_tf.tasks.optimizer import int_value
from electra_tf.tasks.predictions import csv_lines
from electra_tf.tasks.score import ScoredSplit
from electra_tf.tasks.task_data import TaskData
from electra_tf.tasks.text_model import TextModel
from electra_tf.tasks.used_rows import UsedRows
from electra_tf.training.checkpoint import (
    CHECKPOINTS,
    CheckpointManager,
    assign,
    delete_unfinished,
    open_checkpoint,
    open_newest,
    restore,
    saved_steps,
    training_state,
)
from electra_tf.training.disk_errors import reraise_full_disk
from electra_tf.training.optimizer import create_optimizer

_TRIALS, _REPORT = "trials.jsonl", "report.json"
_LOSSES = 200  # values of the loss that a trial stores
STATISTICS = ("median", "mean", "sd", "min", "max")
_FULL_DISK = "Free space, then run the same command again, which resumes"


@dataclasses.dataclass(frozen=True)
class Trial:
    """Result of one seed."""

    number: int  # number of the trial, from 1
    seed: int
    scores: Mapping[str, float]  # scores by split and metric, such as `dev_mcc`
    degenerate: str | None  # what is degenerate in predictions, if anything
    epochs: list[Mapping[str, float]]  # scores after each epoch
    seconds: float  # of training and evaluation in the last process


def trial_folder(output: str | os.PathLike, number: int) -> str:
    """Return the folder of a trial."""
    return os.path.join(output, f"trial_{number}")


def best_trial(trials: Iterable[Trial]) -> Trial:
    """Return the trial with the best score on dev, whose model is saved."""

    def monitored(trial: Trial) -> float:
        value = next(iter(trial.scores.values()))  # of the task's monitor
        return value if math.isfinite(value) else -math.inf

    return max(trials, key=monitored)


def read_report(output: str | os.PathLike, number: int) -> dict[str, Any]:
    """Return what a trial stored beside its scores.

    `losses`: pairs of a step and the mean loss since the pair before; `epoch_steps`:
    steps of an epoch; `classes` and `mistakes` by split.
    """
    path = pathlib.Path(trial_folder(output, number), _REPORT)
    report = json.loads(path.read_text("utf-8"))
    losses = [[step, float(loss)] for step, loss in report["losses"]]
    return report | {"losses": losses}


def _scores(values: Mapping[str, Any]) -> dict[str, float]:
    """Return scores, of which NaN and infinity were stored as texts."""
    return {n: float(v) if isinstance(v, str) else v for n, v in values.items()}


def _read_trial(line: str) -> Trial:
    values = json.loads(line)
    values["scores"] = _scores(values["scores"])
    values["epochs"] = list(map(_scores, values["epochs"]))
    return Trial(**values)


class TrialCheckpoint(keras.callbacks.Callback):
    """Callback that evaluates and saves after each epoch, and resumes a trial."""

    def __init__(
        self,
        folder: str,
        evaluate: Callable[[], Mapping[str, float]],
        monitor: str,
        settings: FitConfig,
        log: Callable[[str], None],
    ):
        super().__init__()
        self._evaluate, self._monitor, self._log = evaluate, monitor, log
        self._keeps_best = settings.keep == "best"
        self._patience = settings.early_stopping
        self._folder, self._step = os.path.join(folder, CHECKPOINTS), 0
        self.history: list[dict[str, float]] = []
        """Scores of each epoch so far."""
        self.losses: list[tuple[int, float]] = []
        """Steps, and the mean loss since the one before."""
        self._sums = 0.0, 0.0
        """Weighted losses and weights of the epoch up to the last of these."""

    def resume(self, model: keras.Model) -> int:
        """Restore an interrupted trial, and return its number of finished epochs."""
        delete_unfinished(self._folder)
        checkpoint = open_newest(self._folder)
        if checkpoint is None:
            return 0
        restore(model, checkpoint)
        self._step = checkpoint.step
        self.history = list(map(_scores, checkpoint.metadata["history"]))
        self.losses = [tuple(pair) for pair in checkpoint.metadata.get("losses", ())]
        return len(self.history)

    @property
    def is_over(self) -> bool:
        """Return whether early stopping ends the trial."""
        if not self._patience or len(self.history) <= self._patience:
            return False
        return len(self.history) - 1 - self._best_epoch() >= self._patience

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float]) -> None:
        """Check that the loss is finite, and store its mean over the last batches."""
        done, steps, sums = batch + 1, self.params["steps"], self._sums
        if not math.isfinite(logs["loss"]):
            raise InputError(
                f"The loss of fine-tuning is {logs['loss']} in batch {done} of an "
                "epoch: lower optimizer.learning_rate or optimizer.clip_norm, and run "
                "the same command with another --output"
            )
        self._sums = sums = sums if batch else (0.0, 0.0)
        interval = max(1, steps * self.params["epochs"] // _LOSSES)
        if done % interval and done < steps:
            return
        mean = self.model.metrics[0]
        # float(variable) fails for a variable of several replicas.
        self._sums = float(mean.total.numpy()), float(mean.count.numpy())
        total, weight = np.subtract(self._sums, sums).tolist()
        if weight:
            self.losses.append((len(self.history) * steps + done, total / weight))

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Evaluate, add the scores to Keras's logs, save, and log a line."""
        scores, logs = dict(self._evaluate()), {} if logs is None else logs
        self.history.append(scores)
        logs.update(scores)
        weights, slots = training_state(self.model)
        self._step = int_value(self.model.optimizer.iterations)
        metadata = json_value({"history": self.history, "losses": self.losses}, str)
        kept = self._kept_step()
        manager = CheckpointManager(self._folder, 1, lambda step, _: step == kept)
        manager.save(self._step, weights, slots, {}, metadata)
        shown = (f"{name} {logs[name]:.4g}" for name in ("loss", *shown_scores(scores)))
        self._log(f"  epoch {epoch + 1}: {'  '.join(shown)}")
        if self.is_over:
            self.model.stop_training = True
            best, kept = self._best_epoch() + 1, f"{epoch + 1} are kept: --keep=best"
            kept = f"{best} are kept" if self._keeps_best else f"{kept} keeps the best"
            self._log(f"  epoch {best} is the best; the weights of epoch {kept}")

    def finish(self, model: keras.Model) -> None:
        """Load the selected weights into the model."""
        if self._keeps_best:
            best = open_checkpoint(saved_steps(self._folder)[self._kept_step()])
            variables = {v.path: v for v in model.trainable_variables}
            assign(variables, best.weights(), best.path)

    def delete(self) -> None:
        """Delete the checkpoints of a finished trial."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _kept_step(self) -> int:
        """Return the updates before the epoch's end whose weights are selected."""
        if not self._keeps_best:
            return self._step
        return self._step // len(self.history) * (self._best_epoch() + 1)

    def _best_epoch(self) -> int:
        values = [scores[self._monitor] for scores in self.history]
        return int(np.argmax([v if math.isfinite(v) else -math.inf for v in values]))


class Trials:
    """Trials that differ in their seeds; finished trials are not repeated."""

    def __init__(
        self,
        task: TaskData,
        start: PretrainedEncoder,
        settings: FinetuningConfig,
        output: str,
        devices: tf.distribute.Strategy,
        log: Callable[[str], None] = print,
    ):
        self._task, self._start, self._settings = task, start, settings
        self._output, self._devices, self._log = pathlib.Path(output), devices, log
        self._model: TextModel | None = None
        self._used_rows: UsedRows | None = None
        self._examples: dict[str, EncodedExamples] = {}
        self._epoch_steps = self._epochs = 0

    def run(self, count: int) -> list[Trial]:
        """Train and evaluate with one seed after the other."""
        trials = self._finished_trials()
        if len(trials) > count:
            raise InputError(
                f"--trials={count} must be {len(trials)} or more, the number of "
                f"finished trials in {self._output}, whose best model is there; or "
                "pass another --output"
            )
        for trial in trials:  # a process killed after it wrote its line left these
            self._checkpoint(trial.number).delete()
        for number in range(len(trials) + 1, count + 1):
            with reraise_full_disk(str(self._output), _FULL_DISK):
                trial = self._run_trial(number)
                if best_trial([*trials, trial]) is trial:
                    self._save_model()
                # A line marks its trial as finished, so it is on disk before the
                # checkpoints of the trial are deleted.
                line = f"{json.dumps(json_value(dataclasses.asdict(trial), str))}\n"
                durable_files.append(self._output / _TRIALS, line)
            self._checkpoint(number).delete()
            trials.append(trial)
            warning = f"  DEGENERATE: {trial.degenerate}" if trial.degenerate else ""
            self._log(
                f"{self._task.name} trial {number} of {count} (seed {trial.seed}): "
                f"{format_scores(trial.scores)}{warning}  {trial.seconds:.0f} s"
            )
        return trials

    @functools.cached_property
    def _identity(self) -> dict[str, Any]:
        task, data = self._task.name, self._task.fingerprint
        return {"task": task, "data": data, "checkpoint": self._start.identity}

    def _finished_trials(self) -> list[Trial]:
        """Check that the folder has the same settings, and read its trials."""
        self._output.mkdir(parents=True, exist_ok=True)
        config, path = self._output / FINETUNING_CONFIG, self._output / _TRIALS
        if config.exists() and (changes := self._changes(config.read_text("utf-8"))):
            raise InputError(
                f"{self._output} has trials with other settings: {changes}; pass "
                "another --output, or delete that folder"
            )
        if not path.exists():
            return []
        # The last line of a killed process may lack its end.
        complete = [line for line in path.read_text("utf-8").split("\n")[:-1] if line]
        durable_files.write(path, "".join(f"{line}\n" for line in complete))
        return [_read_trial(line) for line in complete]

    def _changes(self, text: str) -> str:
        """Return what differs from a `config.yaml`, which may lack newer settings."""
        first_line = text.partition("\n")[0]
        stored = loader.parse_config(text, str(self._output), FinetuningConfig)
        then, now = (
            loader.flatten(dataclasses.asdict(settings))
            for settings in (stored, self._settings)
        )
        changes = [
            f"another {name}"
            for name, value in self._identity.items()
            if json.dumps({name: value})[1:-1] not in first_line
        ]
        changes += [
            f"{name} was {json.dumps(then[name])} and is {json.dumps(now[name])}"
            for name in now
            if now[name] != then[name]
        ]
        return ", ".join(changes)

    def _run_trial(self, number: int) -> Trial:
        begin = time.monotonic()
        model = self._compiled_model(self._settings.training.seed + number - 1)
        # Written after the model was created, so that settings which are rejected do
        # not bind the folder.
        if not (self._output / FINETUNING_CONFIG).exists():
            settings = loader.dump_config(self._settings)
            text = f"# {json.dumps(self._identity)}\n{settings}"
            durable_files.write(self._output / FINETUNING_CONFIG, text)
        if not (self._output / TRAINING_ROWS).exists():
            with durable_files.replacing(self._output / TRAINING_ROWS, "wb") as file:
                np.save(file, self._examples["train"].hashes())
        checkpoint, epochs = self._checkpoint(number), self._epochs
        if first := checkpoint.resume(model):
            done = pluralize(first, "epoch")
            self._log(f"{self._task.name} trial {number}: resuming after {done}")
        if not checkpoint.is_over and first < epochs:
            folder = trial_folder(self._output, number)
            board = keras.callbacks.TensorBoard(os.path.join(folder, "tensorboard"))
            # Its bar ends before the checkpoint logs its line.
            bars = [keras.callbacks.ProgbarLogger()] * os.isatty(1)
            model.fit(
                self._examples["train"],
                epochs=epochs,
                initial_epoch=first,
                callbacks=[*bars, checkpoint, board],
                verbose=len(bars),
            )
        checkpoint.finish(model)
        report = {"losses": checkpoint.losses, "epoch_steps": self._epoch_steps}
        scores, degenerate = self._evaluate(model, number, report)
        seed, seconds = int_value(model.seed), time.monotonic() - begin
        return Trial(number, seed, scores, degenerate, checkpoint.history, seconds)

    def _compiled_model(self, seed: int) -> TextModel:
        """Return a new model with initial weights; the first call encodes the data."""
        self._model = None
        gc.collect()  # frees its memory, as a Keras model refers to itself
        # Under a strategy, Keras distributes batches through a data set of its own,
        # whose autotuning delays the end of each pass by seconds.
        single = self._devices.num_replicas_in_sync == 1
        with contextlib.nullcontext() if single else self._devices.scope():
            if is_first := not self._examples:
                self._encode()
            model = self._new_model(seed)
            train, training = self._examples["train"], self._settings.training
            model.pairs = train.pairs
            self._epoch_steps = -(-len(train) // training.batch_size)
            self._epochs = training.epochs or default_epochs(self._epoch_steps)
            model.choose_dropout(self._epochs)
            steps, depth = self._epoch_steps * self._epochs, model.shape.depth
            model.compile(create_optimizer(self._settings.optimizer, steps, depth))
            model.optimizer.build(model.trainable_variables)
        self._model = model
        if is_first:
            self._log_data(model)
        return model

    def _log_data(self, model: TextModel) -> None:
        """Log the numbers of examples and epochs, and what is lost of the texts."""
        self._log(
            f"{self._task.name}: {len(self._examples['train']):,} training examples, "
            f"{describe_epochs(self._epoch_steps, self._epochs)}, "
            f"dropout {model.shape.dropout:g}; "
            + ", ".join(f"{n} {len(s):,}" for n, s in self._task.eval_splits.items())
        )
        if self._task.label_counts:
            self._log(f"train: {self._task.label_counts}")
        for name, examples in self._examples.items():
            for line in InputCounter(model, examples).lines(name):
                self._log(line)

    def _encode(self) -> None:
        """Encode all splits, and find the rows of the token table that they use."""
        if has_used_rows := self._can_use_rows():
            self._used_rows = UsedRows(self._start)
        task, model = self._task, self._new_model(seed=0)
        self._examples = {
            name: task.training_examples(model)
            if name == "train"
            else model.examples(split.items)
            for name, split in task.splits.items()
        }
        if has_used_rows:
            self._used_rows = UsedRows(self._start, self._examples.values())

    def _new_model(self, seed: int) -> TextModel:
        """Return a model with the rows in use, and initial weights."""
        used = self._used_rows
        start = used.start if used else self._start
        model = self._task.model(start, settings=self._settings, seed=seed)
        model.encoder.embeddings.row_of_id = used.row_of_id if used else None
        return model

    def _can_use_rows(self) -> bool:
        """Return whether rows that no text uses are decayed and nothing else.

        The rate of LAMB depends on the norm of the whole table, and random weights on
        its shape.
        """
        settings = self._settings
        is_random = self._start.weights is None or settings.model.weights == "random"
        return not is_random and settings.optimizer.name != "lamb"

    def _checkpoint(self, number: int) -> TrialCheckpoint:
        return TrialCheckpoint(
            trial_folder(self._output, number),
            self._dev_scores,
            self._task.monitor,
            self._settings.training,
            self._log,
        )

    def _dev_scores(self) -> dict[str, float]:
        name = next(iter(self._task.eval_splits))
        scores = score_split(self._model, self._task, name, self._examples[name]).scores
        return {f"{name}_{metric}": value for metric, value in scores.items()}

    def _evaluate(
        self, model: TextModel, number: int, report: dict[str, Any]
    ) -> tuple[dict[str, float], str | None]:
        """Write predictions for all splits, and the report of the trial.

        Returns the scores, and what is degenerate in the predictions for dev.
        """
        folder, declaration = trial_folder(self._output, number), registry.of(model)
        os.makedirs(folder, exist_ok=True)
        scored: dict[str, ScoredSplit] = {}
        for name, split in self._task.splits.items():
            if name == "train":
                continue
            one = score_split(model, self._task, name, self._examples[name])
            path = f"{folder}/{name}"
            if split.targets is not None:
                if not scored:
                    declaration.tune(one)
                scored[name] = one
                lines = "".join(f"{line}\n" for line in csv_lines(model, {name: one}))
                durable_files.write(f"{path}.csv", lines)
            declaration.write(one, path)
        classes = {name: one.classes for name, one in scored.items()}
        report["classes"] = {name: rates for name, rates in classes.items() if rates}
        report["mistakes"] = {name: one.mistakes for name, one in scored.items()}
        durable_files.write(
            os.path.join(folder, _REPORT), json.dumps(json_value(report, str))
        )
        scores = {
            f"{name}_{metric}": value
            for name, one in scored.items()
            for metric, value in one.scores.items()
        }
        return scores, next(iter(scored.values())).degenerate

    def _save_model(self) -> None:
        """Save the model without its optimizer."""
        model = self._model
        copy = model.clone_with_seed(self._start, int_value(model.seed))
        if self._used_rows:
            self._used_rows.write_to(copy, model)
        else:
            copy.set_weights(model.get_weights())
        copy.save(self._output / MODEL)


def describe_better_epoch(trial: Trial, keep: str) -> str:
    """Return a line on an epoch that was better on dev than the last; empty: none."""
    if keep == "best" or not trial.epochs:
        return ""
    name = next(iter(trial.scores))  # of the task's monitor
    values = [epoch[name] for epoch in trial.epochs]
    best = max(filter(math.isfinite, values), default=values[-1])
    shown, last = (format_score(name, value) for value in (best, values[-1]))
    if shown == last:
        return ""
    return (
        f"epoch {values.index(best) + 1} of trial {trial.number} had {name} {shown}, "
        f"better than {last} of the last epoch, which is saved; --keep=best saves the "
        "best epoch"
    )


def shown_scores(scores: Iterable[str]) -> list[str]:
    """Return the names of the scores to print, without thresholds."""
    return [name for name in scores if not name.endswith(("_total", "_thresh"))]


def format_score(name: str, value: float) -> str:
    """Format percents with two decimals, an error by its size."""
    return f"{value:.4g}" if name.endswith("mse") else f"{value:.2f}"


def format_scores(scores: Mapping[str, float]) -> str:
    """Return the names and values of the scores to print."""
    names = shown_scores(scores)
    return "  ".join(f"{name} {format_score(name, scores[name])}" for name in names)


def summary(trials: list[Trial], name: str) -> dict[str, float]:
    """Compute the statistics of a score over trials."""
    values = [trial.scores[name] for trial in trials]
    deviation = 0.0 if len(values) == 1 else math.inf
    if len(values) > 1 and all(map(math.isfinite, values)):
        deviation = statistics.stdev(values)  # raises an error for infinity
    return {
        "median": statistics.median(values),
        "mean": statistics.fmean(values),
        "sd": deviation,
        "min": min(values),
        "max": max(values),
        "trials": len(values),
        "degenerate": sum(trial.degenerate is not None for trial in trials),
    }


def format_summary(trials: list[Trial], task: str) -> str:
    """Format the statistics of every score, a line for each; of one trial its score."""
    if len(trials) == 1:
        scores = trials[0].scores
        shown = [(name, scores[name]) for name in shown_scores(scores)]
        return "\n".join(f"{task} {n}: {format_score(n, score)}" for n, score in shown)
    lines = []
    for name in shown_scores(trials[0].scores):
        stats = summary(trials, name)
        numbers = "  ".join(f"{n} {format_score(name, stats[n])}" for n in STATISTICS)
        count = pluralize(stats["trials"], "trial")
        if stats["degenerate"]:
            count += f", {stats['degenerate']:.0f} degenerate"
        lines.append(f"{task} {name}: {numbers}  ({count})")
    return "\n".join(lines)


def pluralize(number: int, noun: str) -> str:
    """Format a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
