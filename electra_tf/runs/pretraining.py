"""A run of pre-training in a folder of its own, from its newest checkpoint on."""

import contextlib
import hashlib
import os
from typing import Any

import tensorflow as tf

from electra_tf.pretraining import metrics
from electra_tf.pretraining.health import HealthCheck
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.runs.experiment import Experiment, data_fingerprint
from electra_tf.text.pipeline import training_batches
from electra_tf.text.record_set import RecordSet, reraise_bad_records
from electra_tf.training import warm_start
from electra_tf.training.checkpoint import (
    CHECKPOINTS,
    WEIGHTS,
    Checkpoint,
    CheckpointManager,
    open_checkpoint,
    restore,
    saved_steps,
)
from electra_tf.training.evaluation import Evaluation
from electra_tf.training.loop import ChiefOutputs, StepCost, TrainingLoop
from electra_tf.training.metric_logger import TRAIN, MetricLogger, read_metrics
from electra_tf.training.optimizer import create_optimizer
from electra_tf.training.peak_flops import measure_peak_flops
from electra_tf.training.run_directory import (
    check_resumable,
    checkpoint_config,
    lock_token,
    permanent_steps,
)
from electra_tf.training.strategy import is_chief
from electra_tf.training.worker_sync import WorkerSync, reraise_worker_errors


def run_pretraining(
    experiment: Experiment,
    devices: tf.distribute.Strategy,
    folder: str,
    found: RecordSet,
    held_out: RecordSet | None = None,
    init: str | None = None,
) -> tuple[int, str]:
    """Trains until the last step or until a signal.

    Args:
        experiment: What is done.
        devices: The replicas.
        folder: The run's folder, locked.
        found: The records to learn from.
        held_out: The records to measure on.
        init: A checkpoint whose weights a new run begins with; a run that goes on
            has its own.

    Returns:
        The signal that ended it, or 0, and the folder of the last checkpoint.
    """
    settings, steps = experiment.config.training, experiment.config.training.steps
    checkpoints = _checkpoints(experiment, folder)
    newest, metadata = check_run(experiment, found, folder, init)
    with contextlib.ExitStack() as stack:
        stack.enter_context(reraise_worker_errors())
        stack.enter_context(reraise_bad_records(found))
        pretrainer = experiment.pretrainer(devices)
        WorkerSync(devices).check(newest.step if newest else 0, lock_token(folder))
        begin = _begin(experiment, pretrainer, newest, init)
        writer, evaluate = None, None
        if is_chief(devices):
            resumed_at = newest.step if newest else 0
            reports = MetricLogger(folder, steps=steps, resumed_at=resumed_at)
            stack.enter_context(reports)
            notes = new_length(experiment, newest)
            for line in (begin, *notes, *experiment.config_warnings()):
                reports.log(line)
            writer = _writer(experiment, folder, checkpoints, reports, metadata)
        if held_out is not None:
            stack.enter_context(reraise_bad_records(held_out))
            evaluate = experiment.evaluation(
                pretrainer, devices, held_out, settings.evaluation_batches
            )
        loop = _loop(experiment, pretrainer, devices, found, evaluate, writer)
        ended = loop.run()
    return ended, checkpoints.newest().path


def check_run(
    experiment: Experiment,
    found: RecordSet,
    folder: str | None,
    init: str | None,
) -> tuple[Checkpoint | None, dict[str, Any]]:
    """Refuses a run that could not begin or go on, before anything is written.

    Args:
        experiment: What is to be done.
        found: The records to learn from.
        folder: The run's folder, if it is known.
        init: As for `train`.

    Returns:
        The checkpoint to go on from, and what each one notes about the run.

    Raises:
        InputError: Too few records, an initial checkpoint that is none, settings or
            data that are not those the run began with, fewer steps than are done.
    """
    training_batches(found, experiment.config.input)
    newest = None
    if folder and saved_steps(os.path.join(folder, CHECKPOINTS)):
        newest = open_checkpoint(folder)
    metadata = {
        **data_fingerprint(found, experiment.tokenizer),
        **_origin(newest, init),
    }
    if newest is not None:
        check_resumable(newest, experiment.config, metadata)
    return newest, metadata


def plan(
    experiment: Experiment,
    devices: tf.distribute.Strategy,
    found: RecordSet,
    folder: str | None,
    init: str | None,
) -> str:
    """Return what `train` would do, for people; nothing is trained or written.

    Args:
        experiment: What is to be done.
        devices: The replicas.
        found: The records to learn from.
        folder: The run's folder, if it is known.
        init: As for `train`.

    Returns:
        Lines: the resolved config, sizes, cost and time.

    Raises:
        InputError: As for `check`.
    """
    newest, _ = check_run(experiment, found, folder, init)
    text = experiment.describe(experiment.pretrainer(devices), devices)
    return "\n".join([text, *new_length(experiment, newest)])


def new_length(experiment: Experiment, newest: Checkpoint | None) -> list[str]:
    """Return lines on what another `training.steps` does to a run that goes on.

    Args:
        experiment: What is to be done.
        newest: The checkpoint to go on from, if there is one.

    Returns:
        None for a run of the length it had, or without a step left to do; one with the
        learning rate of the last step that was done and of the next one.
    """
    steps = experiment.config.training.steps
    if newest is None or newest.step == steps:
        return []
    before = checkpoint_config(newest).training.steps
    if before == steps:
        return []
    rule, done = experiment.config.optimizer, newest.step
    # The schedule counts the steps from 0.
    last = float(create_optimizer(rule, before).schedule(done - 1))
    following = float(create_optimizer(rule, steps).schedule(done))
    return [
        f"training.steps is {steps:,}, was {before:,}: the optimizer's state is kept, "
        f"the learning rate follows the schedule of {steps:,} steps from here on; it "
        f"was {last:.4g} at step {done:,} and is {following:.4g} at step {done + 1:,}"
    ]


def _origin(newest: Checkpoint | None, init: str | None) -> dict[str, Any]:
    """The weights a run began with, by name and content, as its checkpoints note it.

    A run that goes on may name them as it did, though a run of that name has trained
    on since, or name another copy of them, or not name them.
    """
    name = os.path.abspath(init) if init else None
    known = dict.fromkeys(("init_checkpoint", "begun_from"))
    if newest is not None:
        known = {detail: newest.metadata.get(detail) for detail in known}
        if name == known["init_checkpoint"] or not os.path.exists(init or ""):
            return known
    if not init:
        return known
    digest = hashlib.sha256(open_checkpoint(init).read(WEIGHTS)).hexdigest()
    if digest == known["begun_from"]:
        return known
    return {"init_checkpoint": name, "begun_from": digest}


def _checkpoints(experiment: Experiment, folder: str) -> CheckpointManager:
    """The run's, of which those stay that stayed when it had another length."""
    settings = experiment.config.training
    return CheckpointManager(
        os.path.join(folder, CHECKPOINTS),
        settings.keep,
        settings.keep_at,
        settings.steps,
        permanent_steps(folder, settings.keep_at),
    )


def _loop(
    experiment: Experiment,
    pretrainer: Pretrainer,
    devices: tf.distribute.Strategy,
    found: RecordSet,
    evaluate: Evaluation | None,
    writer: ChiefOutputs | None,
) -> TrainingLoop:
    config = experiment.config

    def batches(first: int, host: int, hosts: int) -> tf.data.Dataset:
        return training_batches(
            found, config.input, first_batch=first, host=host, hosts=hosts
        )

    peak = measure_peak_flops(devices, config.training.precision)
    return TrainingLoop(
        pretrainer,
        devices,
        config.training,
        batches,
        metrics.compute_metrics,
        StepCost(experiment.flops, peak),
        evaluate,
        writer,
    )


def _writer(
    experiment: Experiment,
    folder: str,
    checkpoints: CheckpointManager,
    reports: MetricLogger,
    metadata: dict[str, Any],
) -> ChiefOutputs:
    """What the one writing process writes with."""
    checkpoints.clean()
    health = _health(experiment, folder).check
    return ChiefOutputs(checkpoints, reports, health, metadata, experiment.files())


def _begin(
    experiment: Experiment, pretrainer: Pretrainer, newest, init: str | None
) -> str:
    """Puts the weights where the run begins or goes on, and says so."""
    steps = experiment.config.training.steps
    if newest is not None:
        restore(pretrainer, newest)
        if newest.step == steps:
            return (
                f"nothing is left to do: all {steps:,} steps are done; a greater "
                "training.steps goes on from here"
            )
        return f"going on after step {newest.step:,} of {steps:,}, from {newest.path}"
    if init:
        return warm_start.load_weights(pretrainer, init, experiment.files())
    return f"beginning with random weights of seed {experiment.config.training.seed}"


def _health(experiment: Experiment, folder: str) -> HealthCheck:
    """A health check that has seen what the folder tells of the run's past."""
    config = experiment.config
    found = HealthCheck(
        config.training.steps,
        config.optimizer.warmup_steps,
        len(experiment.tokenizer.vocabulary),
    )
    for line in read_metrics(folder):
        if line["kind"] == TRAIN:
            found.check(line["step"], line)
    return found
