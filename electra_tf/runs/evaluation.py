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
    path: str, data: str, batches: int | None, devices: tf.distribute.Strategy
) -> dict[str, Any]:
    """Compute the metrics and print a table.

    Args:
        path: A checkpoint, or a run's folder.
        data: The records.
        batches: How many at most; None: all.
        devices: The replicas.

    Returns:
        Checkpoint, step, number of records, and the metrics; None where one is not
        defined.
    """
    checkpoint = open_checkpoint(path)
    experiment = Experiment.from_checkpoint(checkpoint)
    found = experiment.open(data)
    pretrainer = experiment.pretrainer(devices)
    restore_weights(pretrainer, checkpoint)
    with reraise_bad_records(found):
        evaluation = experiment.evaluation(pretrainer, devices, found, batches)
        number = evaluation.count
        print(f"compiling, then measuring {number:,} batches", file=sys.stderr)
        # A bar on a terminal, nothing elsewhere.
        with tqdm(total=number, unit="batch", disable=None) as bar:
            values = metrics.compute_metrics(evaluation(bar.update))
    rows = min(found.total, experiment.config.input.batch_size * number)
    print(f"{checkpoint.path}, step {checkpoint.step:,}, on {rows:,} records")
    for name, value in values.items():
        print(f"  {name:<28}{value:>10.5f}" if math.isfinite(value) else f"  {name}: -")
    report = {"checkpoint": checkpoint.path, "step": checkpoint.step, "records": rows}
    return report | {k: v if math.isfinite(v) else None for k, v in values.items()}
