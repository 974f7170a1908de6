"""Evaluate a pre-trained checkpoint on held-out records."""

import dataclasses
import math
import sys
from typing import Any

import tensorflow as tf
from tqdm import tqdm

from electra_tf.errors import InputError
from electra_tf.interop.conversion import is_foreign, open_as_checkpoint
from electra_tf.pretraining import metrics
from electra_tf.runs.experiment import Experiment
from electra_tf.text.record_set import record_length, reraise_bad_records
from electra_tf.training.trainer_state import restore_weights


def evaluate_checkpoint(
    path: str, data: str, max_batches: int | None, devices: tf.distribute.Strategy
) -> dict[str, Any]:
    """Compute the metrics and print a table.

    Args:
        path: A checkpoint, a run directory, or a model of another library.
        data: Path or globs of the records.
        max_batches: Batches to evaluate, at most; None: all.
        devices: Strategy with the replicas.

    Returns:
        Checkpoint, step, number of records, and the metrics; an undefined metric is
        None.
    """
    with open_as_checkpoint(path) as checkpoint:
        experiment = Experiment.from_checkpoint(checkpoint)
        if is_foreign(path):
            experiment = _with_length_of(experiment, data, path)
        record_set = experiment.open(data)
        pretrainer = experiment.pretrainer(devices)
        restore_weights(pretrainer, checkpoint)
        pretrainer.optimizer.iterations.assign(checkpoint.step)
        pretrainer.begin(checkpoint.step)
    with reraise_bad_records(record_set):
        evaluation = experiment.evaluation(pretrainer, devices, record_set, max_batches)
        batches = evaluation.count
        print(f"compiling, then evaluating {batches:,} batches", file=sys.stderr)
        # `disable=None` shows the progress bar on a terminal only.
        with tqdm(total=batches, unit="batch", disable=None) as bar:
            values = metrics.compute_metrics(evaluation(bar.update))
    rows = min(record_set.total, experiment.config.input.batch_size * batches)
    name = path if is_foreign(path) else checkpoint.path
    print(f"{name}, step {checkpoint.step:,}, on {rows:,} records")
    for metric, value in values.items():
        number = f"{value:>10.5f}" if math.isfinite(value) else "-"
        print(f"  {metric:<28}{number}")
    report = {"checkpoint": name, "step": checkpoint.step, "records": rows}
    return report | {k: v if math.isfinite(v) else None for k, v in values.items()}


def _with_length_of(experiment: Experiment, data: str, path: str) -> Experiment:
    """Return an experiment of the records' length; other libraries store none."""
    config = experiment.config
    length = record_length(data) or config.records.max_length
    if length > config.model.max_positions:
        raise InputError(
            f"Records must have the {config.model.max_positions} positions of the "
            "model, at most",
            f"{data}: {length}; model {path!r}",
            "Build shorter records",
        )
    shape = dataclasses.replace(config.records, max_length=length)
    return dataclasses.replace(
        experiment, config=dataclasses.replace(config, records=shape)
    )
