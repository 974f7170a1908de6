"""Evaluate a pre-trained checkpoint on held-out records."""

import math
import sys
from typing import Any

import tensorflow as tf
from tqdm import tqdm

from electra_tf.pretraining import metrics
from electra_tf.runs.experiment import Experiment
from electra_tf.text.record_set import reraise_bad_records
from electra_tf.training.checkpoint import open_checkpoint, restore_weights


def evaluate_checkpoint(
    path: str, data: str, max_batches: int | None, devices: tf.distribute.Strategy
) -> dict[str, Any]:
    """Compute the metrics and print a table.

    Args:
        path: Path of a checkpoint or a run directory.
        data: Path or globs of the records.
        max_batches: Batches to evaluate, at most; None: all.
        devices: Strategy with the replicas.

    Returns:
        Checkpoint, step, number of records, and the metrics; an undefined metric is
        None.
    """
    checkpoint = open_checkpoint(path)
    experiment = Experiment.from_checkpoint(checkpoint)
    record_set = experiment.open(data)
    pretrainer = experiment.pretrainer(devices)
    restore_weights(pretrainer, checkpoint)
    with reraise_bad_records(record_set):
        evaluation = experiment.evaluation(pretrainer, devices, record_set, max_batches)
        batches = evaluation.count
        print(f"compiling, then evaluating {batches:,} batches", file=sys.stderr)
        # `disable=None` shows the progress bar on a terminal only.
        with tqdm(total=batches, unit="batch", disable=None) as bar:
            values = metrics.compute_metrics(evaluation(bar.update))
    rows = min(record_set.total, experiment.config.input.batch_size * batches)
    print(f"{checkpoint.path}, step {checkpoint.step:,}, on {rows:,} records")
    for name, value in values.items():
        print(f"  {name:<28}{value:>10.5f}" if math.isfinite(value) else f"  {name}: -")
    report = {"checkpoint": checkpoint.path, "step": checkpoint.step, "records": rows}
    return report | {k: v if math.isfinite(v) else None for k, v in values.items()}
