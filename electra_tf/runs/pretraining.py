"""Start or resume a run of pre-training in its run directory."""

import contextlib
import dataclasses
import functools
import os
import shutil
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.interop import warm_start
from electra_tf.model.cost import step_flops
from electra_tf.pretraining.health import HealthCheck
from electra_tf.pretraining.metrics import compute_metrics
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.runs.describe import checkpoint_bytes, describe
from electra_tf.runs.experiment import Experiment, data_fingerprint
from electra_tf.text.pipeline import training_batches
from electra_tf.text.record_set import RecordSet, reraise_bad_records
from electra_tf.text.records import records_lock
from electra_tf.training.backup import Backup
from electra_tf.training.bfloat16 import precision_hints
from electra_tf.training.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    CheckpointManager,
    delete_unfinished,
    newest_path,
    open_newest,
    restore,
)
from electra_tf.training.evaluation import Evaluation
from electra_tf.training.loop import TrainingLoop
from electra_tf.training.metric_logger import TRAIN, MetricLogger, read_metrics
from electra_tf.training.optimizer import create_optimizer
from electra_tf.training.outputs import ChiefOutputs, Outputs
from electra_tf.training.run_directory import (
    check_resumable,
    is_milestone,
    lock_token,
    run_lock,
)
from electra_tf.training.watchdog import Watchdog
from electra_tf.training.workers import WorkerSync, is_chief, reraise_worker_errors


@dataclasses.dataclass(frozen=True)
class Run:
    """Run of pre-training: the experiment, its data and its run directory."""

    experiment: Experiment
    devices: tf.distribute.Strategy
    record_set: RecordSet
    model_dir: str
    """Folder; `os.devnull` without one, of a run that is only described."""
    evaluation_records: RecordSet | None = None
    init_checkpoint: str | None = None
    backup: str | None = None
    """URL for copies of the checkpoints."""

    def train(self) -> tuple[int, str]:
        """Lock the run directory and train until the last step or until a signal.

        Returns:
            Number of the signal that stopped the run (0 without one), and the path of
            the newest checkpoint.
        """
        is_locked = is_chief(self.devices)
        with run_lock(self.model_dir) if is_locked else contextlib.nullcontext():
            return self._train()

    def describe(self) -> Iterator[str]:
        """Yield lines on sizes, cost, epochs, time and memory; write nothing."""
        run, verify, load_weights = self, True, None
        with contextlib.ExitStack() as stack:
            if self.backup:
                backup = Backup(self.backup, self.model_dir)
                if newest_path(self._checkpoints):
                    backup.restore()  # compares
                else:
                    folder = stack.enter_context(backup.settings_folder())
                    run, verify = dataclasses.replace(self, model_dir=folder), False
            newest = open_newest(run._checkpoints, verify)
            _, source = run.check(newest)
            if source is not None:
                load_weights = functools.partial(
                    run._load_weights, newest=None, source=source
                )
            yield from run._explain_changed_steps(newest)
            experiment, records = self.experiment, self.record_set
            yield from describe(experiment, self.devices, records, load_weights)

    def check(
        self, newest: Checkpoint | None
    ) -> tuple[dict[str, Any], sources.Source | None]:
        """Raise an error if the run cannot start or resume; write nothing.

        Args:
            newest: The checkpoint to resume from, if there is one.

        Returns:
            The metadata of the run's checkpoints, and the model of `init_checkpoint`,
            which only a new run reads.
        """
        config = self.experiment.config
        training_batches(self.record_set, config.input)
        is_frozen = config.objective.freeze_generator
        if is_frozen and newest is None and not self.init_checkpoint:
            raise InputError(
                "With objective.freeze_generator a run must start from a generator; "
                "pass --init_checkpoint=GENERATOR or DISCRIMINATOR,GENERATOR"
            )
        fingerprint = data_fingerprint(self.record_set, self.experiment.tokenizer)
        if newest is not None:
            metadata = {**newest.metadata, **fingerprint}
            check_resumable(newest, config, metadata)
            return metadata, None
        source = None
        if self.init_checkpoint:
            source = sources.open_source(self.init_checkpoint)
        return {**fingerprint, "init_checkpoint": self.init_checkpoint}, source

    @property
    def _checkpoints(self) -> str:
        return os.path.join(self.model_dir, CHECKPOINTS)

    def _train(self) -> tuple[int, str]:
        experiment, records = self.experiment, self.record_set
        config = experiment.config
        with contextlib.ExitStack() as stack:
            stack.enter_context(reraise_worker_errors())
            workers = WorkerSync(self.devices)
            checkpoints, backup, notes = self._open_checkpoints(workers)
            newest = open_newest(self._checkpoints)
            metadata, source = self.check(newest)
            notes += backup.update() if backup else []
            for parent in sorted({os.path.dirname(path) for path in records.paths}):
                stack.enter_context(records_lock(parent))
            pretrainer = experiment.pretrainer(self.devices)
            watchdog = stack.enter_context(self._watchdog())
            first_step = newest.step if newest else 0
            with watchdog.expect():
                workers.check(first_step, lock_token(self.model_dir))
            stack.enter_context(reraise_bad_records(records))
            notes.append(self._load_weights(pretrainer, newest, source))
            chief = None
            if is_chief(self.devices):
                _check_space(pretrainer, self.model_dir)
                notes += self._explain_changed_steps(newest)
                notes += experiment.config_warnings()
                notes += precision_hints(config.training.precision)
                logger = MetricLogger(self.model_dir, config.training.steps, first_step)
                stack.enter_context(logger).log("\n".join(notes))
                health, files = self._health_check().check, experiment.files()
                chief = ChiefOutputs(checkpoints, logger, health, metadata, files)
            stop_signal = TrainingLoop(
                pretrainer,
                self.devices,
                config,
                self._batches,
                self._evaluation(pretrainer, stack),
                Outputs(pretrainer, compute_metrics, step_flops(config), chief),
                workers,
                watchdog,
            ).run()
        return stop_signal, newest_path(self._checkpoints)

    def _batches(self, first: int, host: int, hosts: int) -> tf.data.Dataset:
        """Return this host's rows of the batches from the first one on."""
        settings = self.experiment.config.input
        return training_batches(
            self.record_set, settings, first_batch=first, host=host, hosts=hosts
        )

    def _watchdog(self) -> Watchdog:
        """Return a thread that answers signals, with limits if there are workers."""
        strategy = tf.distribute.MultiWorkerMirroredStrategy
        limit = self.experiment.config.training.worker_timeout
        return Watchdog(limit if isinstance(self.devices, strategy) else None)

    def _open_checkpoints(
        self, workers: WorkerSync
    ) -> tuple[CheckpointManager, Backup | None, list[str]]:
        """Fill an empty run directory; return its writer, the backup, and a log."""
        settings = self.experiment.config.training
        backup, notes = None, []
        if is_chief(self.devices):
            delete_unfinished(self._checkpoints)
            if self.backup:
                backup = Backup(self.backup, self.model_dir)
                notes += backup.restore()
        if self.backup:
            workers.all_gather(0)  # the chief has restored the run directory
        kept = functools.partial(is_milestone, settings)
        manager = CheckpointManager(self._checkpoints, settings.keep, kept, backup)
        return manager, backup, notes

    def _load_weights(
        self,
        pretrainer: Pretrainer,
        newest: Checkpoint | None,
        source: sources.Source | None,
    ) -> str:
        """Load or compute the initial weights; return a summary to log."""
        config, tokenizer = self.experiment.config, self.experiment.tokenizer
        steps = config.training.steps
        if newest is not None:
            restore(pretrainer, newest)
            if newest.step == steps:
                remedy = "set a greater training.steps to train on"
                return f"all {steps:,} steps are completed; {remedy}"
            unread = "; --init_checkpoint is not read" if self.init_checkpoint else ""
            place = f"step {newest.step:,} of {steps:,}"
            return f"resuming after {place}, from {newest.path}{unread}"
        if source is not None:
            return warm_start.load_weights(
                pretrainer, source.pretrained, source.own_checkpoint, config, tokenizer
            )
        summary = f"starting from random weights, seed {config.training.seed}"
        if config.training.token_embeddings == "counts":
            # Only this needs SciPy and scikit-learn.
            from electra_tf.runs.token_embeddings import load_token_embeddings

            added = load_token_embeddings(pretrainer, self.record_set, tokenizer)
            return f"{summary}; {added}"
        return summary

    def _explain_changed_steps(self, newest: Checkpoint | None) -> list[str]:
        """Explain the effect of a changed `training.steps` on a resumed run.

        The line has the learning rates of the last completed step and the next one.
        There is none if `training.steps` is unchanged or all steps are completed.
        """
        steps = self.experiment.config.training.steps
        if newest is None or newest.step == steps:
            return []
        old_steps = newest.config().training.steps
        if old_steps == steps:
            return []
        settings, completed = self.experiment.config.optimizer, newest.step
        # The schedule counts steps from 0.
        last = float(create_optimizer(settings, old_steps).schedule(completed - 1))
        following = float(create_optimizer(settings, steps).schedule(completed))
        return [
            f"training.steps is {steps:,}, was {old_steps:,}: the optimizer's state is "
            f"restored and the learning rate follows the schedule of {steps:,} steps; "
            f"it was {last:.4g} at step {completed:,} and is {following:.4g} at step "
            f"{completed + 1:,}"
        ]

    def _health_check(self) -> HealthCheck:
        """Return a health check with the history of the run's logged metrics."""
        config = self.experiment.config
        health = HealthCheck(
            config.training.steps,
            config.optimizer.warmup_steps,
            len(self.experiment.tokenizer.vocabulary),
            config.objective.free_losses,
            config.restart or 0,
        )
        for line in read_metrics(self.model_dir):
            if line.pop("kind") == TRAIN:
                health.check(line["step"], line)
        return health

    def _evaluation(
        self, pretrainer: Pretrainer, stack: contextlib.ExitStack
    ) -> Evaluation | None:
        """Read the evaluation records once, and return the evaluation on them."""
        records, experiment = self.evaluation_records, self.experiment
        if records is None:
            return None
        stack.enter_context(reraise_bad_records(records))
        batches = experiment.config.training.evaluation_batches
        experiment.read_evaluation(records, batches)
        return experiment.evaluation(pretrainer, self.devices, records, batches)


def _check_space(pretrainer: Pretrainer, folder: str) -> None:
    """Raise an error if a disk has no room for a checkpoint, hours before it is due."""
    needed = checkpoint_bytes(pretrainer)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise InputError(
            f"The disk of --model_dir {folder}, with {free / 1e6:,.0f} MB free, must "
            f"have room for a checkpoint of {needed / 1e6:,.0f} MB"
        )
