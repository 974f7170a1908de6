"""Start or resume a run of pre-training in its run directory."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.interop import warm_start
from electra_tf.pretraining import metrics
from electra_tf.pretraining.health import HealthCheck
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.runs import dry_run
from electra_tf.runs.experiment import Experiment, data_fingerprint
from electra_tf.runs.token_embeddings import load_token_embeddings
from electra_tf.storage.objects import is_url
from electra_tf.text.pipeline import training_batches
from electra_tf.text.record_set import (
    RecordSet,
    replace_bad_records,
    reraise_bad_records,
)
from electra_tf.text.records import records_lock
from electra_tf.training.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    CheckpointManager,
    newest_intact,
    open_checkpoint,
    restore,
    saved_steps,
    steps_at_shares,
)
from electra_tf.training.loop import ChiefOutputs, Evaluation, TrainingLoop
from electra_tf.training.metric_logger import TRAIN, MetricLogger, read_metrics
from electra_tf.training.optimizer import create_optimizer
from electra_tf.training.remote_run import RemoteRun, open_remote_run, open_run_copy
from electra_tf.training.run_directory import (
    check_resumable,
    lock_token,
    permanent_steps,
    run_lock,
)
from electra_tf.training.speed import measure_peak_flops
from electra_tf.training.strategy import is_chief
from electra_tf.training.watchdog import NoWatchdog, Watchdog, create_watchdog
from electra_tf.training.worker_sync import WorkerSync, reraise_worker_errors

_INTACT = "intact_records"  # of a run directory: copies of files with bad records


def run_pretraining(
    experiment: Experiment,
    devices: tf.distribute.Strategy,
    model_dir: str,
    record_set: RecordSet,
    evaluation_records: RecordSet | None = None,
    init_checkpoint: str | None = None,
    fallback: bool = False,
) -> tuple[int, str]:
    """Lock the run directory and train until the last step or until a signal.

    Returns:
        Number of the signal that stopped the run (0 without one), and the path of the
        newest checkpoint.
    """
    with _open_run(model_dir, devices, fallback) as (folder, remote):
        stop_signal, checkpoint = _train(
            experiment,
            devices,
            folder,
            record_set,
            evaluation_records,
            init_checkpoint,
            fallback,
            remote,
        )
        return stop_signal, remote.url_of(checkpoint) if remote else checkpoint


@contextlib.contextmanager
def _open_run(
    model_dir: str, devices: tf.distribute.Strategy, fallback: bool
) -> Iterator[tuple[str, RemoteRun | None]]:
    """Lock or lease the run directory; yield a local folder, and the run at a URL."""
    if is_url(model_dir):
        worker = None if is_chief(devices) else devices.cluster_resolver.task_id
        with open_remote_run(model_dir, worker, fallback) as remote:
            yield remote.folder, remote
        return
    with run_lock(model_dir) if is_chief(devices) else contextlib.nullcontext():
        yield model_dir, None


def _train(
    experiment: Experiment,
    devices: tf.distribute.Strategy,
    model_dir: str,
    record_set: RecordSet,
    evaluation_records: RecordSet | None,
    init_checkpoint: str | None,
    fallback: bool,
    remote: RemoteRun | None,
) -> tuple[int, str]:
    settings = experiment.config.training
    checkpoints = _checkpoint_manager(experiment, model_dir, remote)
    notes = list(remote.notes) if remote else []
    if fallback and is_chief(devices):
        notes += _set_damaged_aside(checkpoints, model_dir)
    newest, metadata, source = check_run(
        experiment, record_set, model_dir, init_checkpoint, fallback
    )
    first_step = newest.step if newest else 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(reraise_worker_errors())
        for folder in sorted({os.path.dirname(path) for path in record_set.paths}):
            stack.enter_context(records_lock(folder))
        pretrainer = experiment.pretrainer(devices)
        workers = WorkerSync(devices)
        watchdog = create_watchdog(devices, settings.worker_timeout)
        stack.enter_context(watchdog)
        with watchdog.expect("the start of the other workers"):
            token = remote.lock_token() if remote else lock_token(model_dir)
            workers.check(first_step, token)
        if experiment.config.input.on_error == "skip":
            folder = os.path.join(model_dir, _INTACT)
            if is_chief(devices) or remote:  # else the workers share the folder
                replace_bad_records(record_set, folder, notes.append)
            workers.all_gather(0)  # the chief has written the copies
            record_set = replace_bad_records(record_set, folder, lambda line: None)
        stack.enter_context(reraise_bad_records(record_set))
        summary = _load_weights(experiment, pretrainer, newest, source, record_set)
        outputs, evaluate = None, None
        if is_chief(devices):
            logger = MetricLogger(
                model_dir, steps=settings.steps, resumed_at=first_step
            )
            stack.enter_context(logger)
            notes += [summary, *explain_changed_steps(experiment, newest)]
            for line in (*notes, *experiment.config_warnings(), *checkpoints.clean()):
                logger.log(line)
            health = _health_check(experiment, model_dir, remote)
            outputs = ChiefOutputs(
                checkpoints, logger, health, metadata, experiment.files()
            )
        if evaluation_records is not None:
            stack.enter_context(reraise_bad_records(evaluation_records))
            evaluate = experiment.evaluation(
                pretrainer, devices, evaluation_records, settings.evaluation_batches
            )
        loop = _training_loop(
            experiment, pretrainer, devices, record_set, evaluate, outputs, watchdog
        )
        stop_signal = loop.run()
    return stop_signal, checkpoints.newest().path


def _set_damaged_aside(checkpoints: CheckpointManager, model_dir: str) -> list[str]:
    """Rename damaged checkpoints that are newer than an intact one."""
    if not saved_steps(os.path.join(model_dir, CHECKPOINTS)):
        return []
    newest, damaged = newest_intact(model_dir)
    return [
        f"{error} Set aside as {checkpoints.set_aside(path, 'damaged')}; resuming from "
        f"{newest.path}"
        for path, error in damaged.items()
    ]


def check_run(
    experiment: Experiment,
    record_set: RecordSet,
    model_dir: str | None,
    init_checkpoint: str | None,
    fallback: bool = False,
) -> tuple[Checkpoint | None, dict[str, Any], sources.Source | None]:
    """Raise an error if a run cannot start or resume; write nothing.

    Returns:
        The checkpoint to resume from, if there is one, the metadata of the run's
        checkpoints, and the model of `init_checkpoint`.
    """
    training_batches(record_set, experiment.config.input)
    newest = None
    frozen = experiment.config.objective.freeze_generator
    if model_dir and saved_steps(os.path.join(model_dir, CHECKPOINTS)):
        newest = newest_intact(model_dir)[0] if fallback else open_checkpoint(model_dir)
    if frozen and newest is None and not init_checkpoint:
        raise InputError(
            "With objective.freeze_generator a run must start from a generator",
            "no --init_checkpoint",
            "Pass --init_checkpoint=GENERATOR or DISCRIMINATOR,GENERATOR",
        )
    source = _open_initial(newest, init_checkpoint)
    metadata = {
        **data_fingerprint(record_set, experiment.tokenizer),
        **_init_metadata(newest, source),
    }
    if newest is not None:
        check_resumable(newest, experiment.config, metadata)
    return newest, metadata, source


def describe_run(
    experiment: Experiment,
    devices: tf.distribute.Strategy,
    record_set: RecordSet,
    model_dir: str | None,
    init_checkpoint: str | None,
    fallback: bool = False,
) -> str:
    """Describe a run as text: config, sizes, memory and time; write nothing."""
    with contextlib.ExitStack() as stack:
        if is_url(model_dir):
            model_dir = stack.enter_context(open_run_copy(model_dir, fallback))
        newest, _, source = check_run(
            experiment, record_set, model_dir, init_checkpoint, fallback
        )

        def load_weights(pretrainer: Pretrainer) -> str | None:
            if newest is not None or source is None:
                return None
            return _load_weights(experiment, pretrainer, None, source, record_set)

        text = dry_run.describe(experiment, devices, load_weights)
        return "\n".join([text, *explain_changed_steps(experiment, newest)])


def explain_changed_steps(
    experiment: Experiment, newest: Checkpoint | None
) -> list[str]:
    """Explain the effect of a changed `training.steps` on a resumed run.

    The line has the learning rates of the last completed step and the next one. There
    is none if `training.steps` is unchanged or all steps are completed.
    """
    steps = experiment.config.training.steps
    if newest is None or newest.step == steps:
        return []
    old_steps = newest.config().training.steps
    if old_steps == steps:
        return []
    settings, completed = experiment.config.optimizer, newest.step
    # The schedule counts steps from 0.
    last = float(create_optimizer(settings, old_steps).schedule(completed - 1))
    following = float(create_optimizer(settings, steps).schedule(completed))
    return [
        f"training.steps is {steps:,}, was {old_steps:,}: the optimizer's state is "
        f"restored and the learning rate follows the schedule of {steps:,} steps; it "
        f"was {last:.4g} at step {completed:,} and is {following:.4g} at step "
        f"{completed + 1:,}"
    ]


def _open_initial(
    newest: Checkpoint | None, init_checkpoint: str | None
) -> sources.Source | None:
    """Open the model to begin from; a run that is resumed does without."""
    if not init_checkpoint:
        return None
    try:
        return sources.open(init_checkpoint)
    except InputError:
        if newest is None:
            raise
        return None


def _init_metadata(
    newest: Checkpoint | None, source: sources.Source | None
) -> dict[str, Any]:
    """Return path and hash of a run's initial weights, for its checkpoints.

    A resumed run keeps its stored values if the source has the stored path or hash, or
    is missing. The checkpoint at the stored path may have changed.
    """
    stored = dict.fromkeys(("init_checkpoint", "begun_from"))
    if newest is not None:
        stored = {key: newest.metadata.get(key) for key in stored}
    if source is None:
        return stored
    path = ",".join(map(os.path.abspath, source.path.split(",")))
    if newest is not None and path == stored["init_checkpoint"]:
        return stored
    digest = source.weights_hash()
    if digest == stored["begun_from"]:
        return stored
    return {"init_checkpoint": path, "begun_from": digest}


def _checkpoint_manager(
    experiment: Experiment, model_dir: str, mirror: RemoteRun | None
) -> CheckpointManager:
    """Return a manager that also keeps the milestones of an earlier training.steps."""
    settings = experiment.config.training
    permanent = steps_at_shares(settings.keep_at, settings.steps)
    permanent |= permanent_steps(model_dir, settings.keep_at)
    folder = os.path.join(model_dir, CHECKPOINTS)
    return CheckpointManager(folder, settings.keep, permanent, mirror=mirror)


def _training_loop(
    experiment: Experiment,
    pretrainer: Pretrainer,
    devices: tf.distribute.Strategy,
    record_set: RecordSet,
    evaluate: Evaluation | None,
    outputs: ChiefOutputs | None,
    watchdog: Watchdog | NoWatchdog,
) -> TrainingLoop:
    config = experiment.config

    def batches(first: int, host: int, hosts: int) -> tf.data.Dataset:
        return training_batches(
            record_set, config.input, first_batch=first, host=host, hosts=hosts
        )

    return TrainingLoop(
        pretrainer,
        devices,
        config.training,
        batches,
        metrics.compute_metrics,
        experiment.step_flops,
        measure_peak_flops(devices, config.training.precision),
        evaluate,
        outputs,
        config.input,
        watchdog,
    )


def _load_weights(
    experiment: Experiment,
    pretrainer: Pretrainer,
    newest: Checkpoint | None,
    source: sources.Source | None,
    record_set: RecordSet,
) -> str:
    """Load or compute the initial weights of a run; return a summary to log."""
    steps = experiment.config.training.steps
    if newest is not None:
        restore(pretrainer, newest)
        if newest.step == steps:
            return (
                f"all {steps:,} steps are completed; set a greater training.steps to "
                "train on"
            )
        return f"resuming after step {newest.step:,} of {steps:,}, from {newest.path}"
    if source is not None:
        return warm_start.load_weights(
            pretrainer,
            source.pretrained,
            source.own_checkpoint,
            experiment.config,
            experiment.tokenizer,
        )
    summary = f"starting from random weights, seed {experiment.config.training.seed}"
    if experiment.config.training.token_embeddings == "counts":
        added = load_token_embeddings(pretrainer, record_set, experiment.tokenizer)
        return f"{summary}; {added}"
    return summary


def _health_check(
    experiment: Experiment, model_dir: str, remote: RemoteRun | None
) -> Callable[[int, Mapping[str, float]], Iterable[str]]:
    """Return a health check with the history of the run's logged metrics.

    It also stops a run that has lost its lease.
    """
    config = experiment.config
    health = HealthCheck(
        config.training.steps,
        config.optimizer.warmup_steps,
        len(experiment.tokenizer.vocabulary),
        config.objective.free_losses,
        sum(config.stage_starts),
    )
    for line in read_metrics(model_dir):
        if line["kind"] == TRAIN:
            health.check(line["step"], line)
    if remote is None:
        return health.check

    def check(step: int, values: Mapping[str, float]) -> Iterable[str]:
        remote.check()
        return health.check(step, values)

    return check
