"""A run of pre-training in a folder of its own, from its newest checkpoint on."""

import contextlib
import os
from typing import Any

import tensorflow as tf

from electra_tf.experiment import Experiment, identity
from electra_tf.pretraining import metrics
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.text.pipeline import training_batches
from electra_tf.text.record_set import RecordSet, explaining
from electra_tf.training import carry
from electra_tf.training.checkpoint import CHECKPOINTS, Checkpoints
from electra_tf.training.evaluation import Evaluation
from electra_tf.training.health import HealthCheck
from electra_tf.training.loop import Loop, Work, Writer
from electra_tf.training.peak import measure_peak
from electra_tf.training.reports import TRAIN, Reports, read_metrics
from electra_tf.training.run_folder import check_resumable
from electra_tf.training.state import restore
from electra_tf.training.strategy import is_chief


def train(
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
    config = experiment.config
    settings, steps = config.training, config.training.steps
    training_batches(found, config.input)  # refuses too few before anything is written
    details = identity(found, experiment.tokenizer)
    checkpoints = Checkpoints(
        os.path.join(folder, CHECKPOINTS), settings.keep, settings.keep_at, steps
    )
    newest = checkpoints.newest()
    if newest is not None:
        check_resumable(newest, config, details)
    pretrainer = experiment.pretrainer(devices)
    begin = _begin(experiment, pretrainer, newest, init)
    with contextlib.ExitStack() as stack:
        stack.enter_context(explaining(found))
        writer, evaluate = None, None
        if is_chief(devices):
            resumed_at = newest.step if newest else 0
            reports = Reports(folder, steps=steps, resumed_at=resumed_at)
            stack.enter_context(reports).say(begin)
            writer = _writer(experiment, folder, checkpoints, reports, details)
        if held_out is not None:
            stack.enter_context(explaining(held_out))
            evaluate = experiment.evaluation(
                pretrainer, devices, held_out, settings.evaluation_batches
            )
        loop = _loop(experiment, pretrainer, devices, found, evaluate, writer)
        ended = loop.run()
    return ended, checkpoints.newest().path


def _loop(
    experiment: Experiment,
    pretrainer: Pretrainer,
    devices: tf.distribute.Strategy,
    found: RecordSet,
    evaluate: Evaluation | None,
    writer: Writer | None,
) -> Loop:
    config = experiment.config

    def batches(first: int, host: int, hosts: int) -> tf.data.Dataset:
        return training_batches(
            found, config.input, first_batch=first, host=host, hosts=hosts
        )

    peak = measure_peak(devices, config.training.precision)
    return Loop(
        pretrainer,
        devices,
        config.training,
        batches,
        metrics.read,
        Work(experiment.flops, peak),
        evaluate,
        writer,
    )


def _writer(
    experiment: Experiment,
    folder: str,
    checkpoints: Checkpoints,
    reports: Reports,
    details: dict[str, Any],
) -> Writer:
    """What the one writing process writes with."""
    checkpoints.clean()
    health = _health(experiment, folder)
    return Writer(checkpoints, reports, health, details, experiment.files())


def _begin(
    experiment: Experiment, pretrainer: Pretrainer, newest, init: str | None
) -> str:
    """Puts the weights where the run begins or goes on, and says so."""
    steps = experiment.config.training.steps
    if newest is not None:
        restore(pretrainer, newest)
        if newest.step == steps:
            return f"nothing is left to do: all {steps:,} steps are done"
        return f"going on after step {newest.step:,} of {steps:,}, from {newest.path}"
    if init:
        return carry.over(pretrainer, init, experiment.files())
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
