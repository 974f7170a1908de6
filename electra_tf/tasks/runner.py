"""Fine-tune a task with several seeds, resumably.

output/
  config.yaml       the settings; can be passed as --config
  trials.jsonl      a line for each finished trial
  model.keras       the trial with the best score on the dev split
  trial_1/          predictions for each split, TensorBoard's files
"""

import contextlib
import dataclasses
import functools
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from electra_tf import durable_files
from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.interop.task_heads import MODEL
from electra_tf.tasks.callbacks import (
    SelectionPolicy,
    StopOnNonFiniteLoss,
    TrialCheckpoint,
    format_scores,
)
from electra_tf.tasks.examples import EncodedExamples, prediction_batch_indices
from electra_tf.tasks.optimizer import int_value
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.tasks.task import Task
from electra_tf.tasks.text_model import TextModel
from electra_tf.tasks.trials import Trial, pluralize
from electra_tf.training.disk_errors import reraise_full_disk
from electra_tf.training.optimizer import create_optimizer

CONFIG, TRIALS = "config.yaml", "trials.jsonl"


class MultiSeedRunner:
    """Runner of trials that differ in their seeds; finished trials are not repeated."""

    def __init__(
        self,
        task: Task,
        start: PretrainedEncoder,
        settings: FinetuningConfig,
        output: str,
        devices: tf.distribute.Strategy,
        log: Callable[[str], None] = print,
    ):
        self._task, self._start, self._settings = task, start, settings
        self._output, self._devices, self._log = pathlib.Path(output), devices, log
        self._model: TextModel | None = None
        self._examples: EncodedExamples | None = None

    def run(self, count: int) -> list[Trial]:
        """Train and evaluate with one seed after the other."""
        trials = self._finished_trials()
        for trial in trials:  # a process killed after it wrote its line left these
            self._checkpoint(trial.number).delete()
        for number in range(len(trials) + 1, count + 1):
            with reraise_full_disk(
                str(self._output),
                "Free space, then run the same command again; it resumes after the "
                "last finished epoch",
            ):
                trial = self._run_trial(number)
                best = max(map(self._monitored, trials), default=-math.inf)
                if self._monitored(trial) > best:
                    self._save_model()
                # A line marks its trial as finished, so it is on disk before the
                # checkpoints of the trial are deleted.
                line = json.dumps(dataclasses.asdict(trial)) + "\n"
                durable_files.append(self._output / TRIALS, line)
            self._checkpoint(number).delete()
            trials.append(trial)
            self._log(self._format_trial(trial, count))
        return trials[:count]

    @functools.cached_property
    def _config_text(self) -> str:
        """Return the contents of `config.yaml`."""
        identity = {
            "task": self._task.name,
            "data": self._task.fingerprint,
            "checkpoint": self._start.identity,
        }
        return f"# {json.dumps(identity)}\n{loader.dump_config(self._settings)}"

    def _write_config(self) -> None:
        # Written after the model was created, so that settings which are rejected do
        # not bind the folder.
        file = self._output / CONFIG
        if not file.exists():
            durable_files.write(file, self._config_text)

    def _finished_trials(self) -> list[Trial]:
        """Check that the folder has the same settings, and read its trials."""
        self._output.mkdir(parents=True, exist_ok=True)
        file, text = self._output / CONFIG, self._config_text
        previous = file.read_text(encoding="utf-8") if file.exists() else text
        if previous != text:
            raise InputError(
                f"{self._output} must be resumed with the task, data, checkpoint and "
                "settings in its config.yaml",
                _config_changes(previous, text),
                "Name another --output, or delete that folder",
            )
        path = self._output / TRIALS
        if not path.exists():
            return []
        # The last line of a killed process may lack its end.
        complete = [line for line in path.read_text().split("\n")[:-1] if line]
        durable_files.write(path, "".join(f"{line}\n" for line in complete))
        return [Trial(**json.loads(line)) for line in complete]

    def _run_trial(self, number: int) -> Trial:
        begin = time.monotonic()
        model = self._initial_model(self._settings.training.seed + number - 1)
        self._write_config()
        checkpoint = self._checkpoint(number)
        first = checkpoint.resume(model)
        if first:
            self._log(
                f"{self._task.name} trial {number}: resuming after "
                f"{pluralize(first, 'epoch')}"
            )
        epochs = self._settings.training.epochs
        if not checkpoint.is_over and first < epochs:
            logs = str(self._output / f"trial_{number}" / "tensorboard")
            model.fit(
                self._examples,
                epochs=epochs,
                initial_epoch=first,
                callbacks=[
                    StopOnNonFiniteLoss(),
                    checkpoint,
                    keras.callbacks.TensorBoard(logs),
                ],
                verbose=1 if os.isatty(1) else 0,
            )
        checkpoint.finish(model)
        scores, degenerate = self._evaluate(model, number)
        return Trial(
            number,
            int_value(model.seed),
            scores,
            degenerate,
            checkpoint.history,
            time.monotonic() - begin,
        )

    def _initial_model(self, seed: int) -> TextModel:
        """Return the compiled model with initial weights, created only once."""
        if self._model is not None:
            self._model.reinitialize(self._start, seed)
            return self._model
        training = self._settings.training
        # Under a strategy, Keras distributes batches through a data set of its own,
        # whose autotuning delays the end of each pass by seconds.
        single = self._devices.num_replicas_in_sync == 1
        with contextlib.nullcontext() if single else self._devices.scope():
            model = self._task.model(self._start, self._settings, seed)
            self._examples = self._task.training_examples(model)
            batches = len(
                prediction_batch_indices(self._examples.lengths, training.batch_size)
            )
            steps = batches * training.epochs
            depth = model.shape.depth
            model.compile(create_optimizer(self._settings.optimizer, steps, depth))
            model.optimizer.build(model.trainable_variables)
        self._log(
            f"{self._task.name}: {len(self._examples):,} training examples, "
            f"{steps:,} steps in {pluralize(training.epochs, 'epoch')}; "
            + ", ".join(f"{n} {len(s):,}" for n, s in self._task.eval_splits.items())
        )
        if self._task.label_counts:
            self._log(f"train: {self._task.label_counts}")
        self._log_inputs(model)
        self._model = model
        return model

    def _log_inputs(self, model: TextModel) -> None:
        for name, split in self._task.splits.items():
            train = name == "train"
            examples = self._examples if train else model.examples(split.items)
            for line in self._task.describe_inputs(model, name, examples):
                self._log(line)

    def _checkpoint(self, number: int) -> TrialCheckpoint:
        training = self._settings.training
        policy = SelectionPolicy(training.keep == "best", training.early_stopping)
        folder = str(self._output / f"trial_{number}")
        return TrialCheckpoint(
            folder, self._dev_scores, self._task.monitor, policy, self._log
        )

    def _dev_scores(self) -> dict[str, float]:
        name, split = next(iter(self._task.eval_splits.items()))
        predictions = self._task.predictions(self._model, split)
        return _with_prefix(name, self._task.score(split, predictions))

    def _evaluate(
        self, model: TextModel, number: int
    ) -> tuple[dict[str, float], str | None]:
        """Write predictions for all splits.

        Returns the scores, and what is degenerate in the predictions for dev.
        """
        folder = self._output / f"trial_{number}"
        folder.mkdir(parents=True, exist_ok=True)
        scores, degenerate = {}, None
        for name, split in self._task.splits.items():
            if name == "train":
                continue
            predictions = self._task.predictions(model, split)
            if split.targets is not None and not scores:
                predictions = self._task.tune_threshold(model, predictions)
                degenerate = self._task.degenerate(split, predictions)
            self._task.write(split, predictions, str(folder / name))
            if split.targets is not None:
                scores |= _with_prefix(name, self._task.score(split, predictions))
        return scores, degenerate

    def _save_model(self) -> None:
        """Save the model without its optimizer."""
        model = self._model
        copy = model.clone_with_seed(self._start, int_value(model.seed))
        for variable, value in zip(copy.weights, model.weights, strict=True):
            variable.assign(value)
        partial = self._output / f"unfinished.{MODEL}"
        try:
            copy.save(partial)
            durable_files.publish(partial, self._output / MODEL)
        finally:
            partial.unlink(missing_ok=True)

    def _monitored(self, trial: Trial) -> float:
        value = trial.scores[self._task.monitor]
        return value if math.isfinite(value) else -sys.float_info.max

    def _format_trial(self, trial: Trial, count: int) -> str:
        scores = "  ".join(
            f"{name} {v:.2f}" for name, v in format_scores(trial.scores).items()
        )
        warning = f"  DEGENERATE: {trial.degenerate}" if trial.degenerate else ""
        return (
            f"{self._task.name} trial {trial.number} of {count} (seed {trial.seed}): "
            f"{scores}{warning}  {trial.seconds:.0f} s"
        )


def _config_changes(previous: str, text: str) -> str:
    """Describe the differences of two `config.yaml`."""
    try:
        then = json.loads(previous.partition("\n")[0].strip("#"))
    except ValueError:  # edited by hand
        then = {}
    now = json.loads(text.partition("\n")[0].strip("#"))
    descriptions = {
        "task": f"the task {now['task']!r}, not {then.get('task')!r}",
        "data": "data with other contents",
        "checkpoint": "another checkpoint",
    }
    changes = [descriptions[name] for name in now if now[name] != then.get(name)]
    new_lines = set(text.splitlines()[1:]) - set(previous.splitlines())
    changes += [line.strip() for line in text.splitlines() if line in new_lines]
    return "; ".join(changes) or "fewer settings"


def _with_prefix(split: str, scores: Mapping[str, Any]) -> dict[str, float]:
    return {f"{split}_{name}": float(value) for name, value in scores.items()}
