"""Evaluate a pre-trained checkpoint on held-out records."""

import dataclasses
import math
import sys
from typing import Any, NamedTuple

import tensorflow as tf
from tqdm import tqdm

from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.pretraining import metrics
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.runs.experiment import Experiment
from electra_tf.text.checks import UnknownCounter
from electra_tf.text.record_set import record_length, reraise_bad_records
from electra_tf.training.checkpoint import assign


def evaluate_checkpoint(
    path: str,
    data: str,
    max_batches: int | None,
    devices: tf.distribute.Strategy,
) -> dict[str, Any]:
    """Compute the metrics and print a table."""
    run = _open(path, devices, data)
    experiment = run.experiment
    record_set = experiment.open(data)
    if manifest := record_set.manifest:
        unknown = round(manifest.unknown_share * manifest.tokens)
        counter = UnknownCounter(experiment.tokenizer, manifest.tokens, unknown)
        for line in counter.lines(data):
            print(line, file=sys.stderr)
    with reraise_bad_records(record_set):
        evaluation = experiment.evaluation(
            run.pretrainer, devices, record_set, max_batches
        )
        batches = evaluation.count
        print(f"compiling, then evaluating {batches:,} batches", file=sys.stderr)
        # `disable=None` shows the progress bar on a terminal only.
        with tqdm(total=batches, unit="batch", disable=None) as bar:
            values = metrics.compute_metrics(evaluation(bar.update))
    rows = min(record_set.total, experiment.config.input.batch_size * batches)
    print(f"{run.name}, step {run.step:,}, on {rows:,} records")
    report = {"checkpoint": run.name, "step": run.step, "records": rows}
    for metric, value in values.items():
        number = f"{value:>10.5f}" if math.isfinite(value) else "-"
        print(f"  {metric:<28}{number}")
    return report | values


class _Run(NamedTuple):
    """A checkpoint with its restored model."""

    name: str
    step: int
    experiment: Experiment
    pretrainer: Pretrainer


def _open(path: str, devices: tf.distribute.Strategy, data: str) -> _Run:
    """Read a checkpoint; one of another library gets the length of the records."""
    source = sources.open_pretrained(path)
    run, own = source.run, source.own_checkpoint
    if own is not None:
        experiment = Experiment.from_checkpoint(own)
    else:
        experiment = Experiment(run.config, run.tokenizer)
    config, names = experiment.config, "\n".join(run.weights)
    if "/head/" not in names:
        raise InputError(
            f"{source.path!r} is an encoder without the head that it was pre-trained "
            "with; fine-tune it, and pass the --output of finetune as --model"
        )
    if config.objective.generator and "/generator/" not in names:
        raise InputError(
            f"{source.path!r} is a discriminator alone, without the generator that "
            "fills the masked positions; pass both: DISCRIMINATOR,GENERATOR"
        )
    if own is None:
        length = record_length(data) or config.records.max_length
        if length > config.model.max_positions:
            raise InputError(
                f"{data}: records of {length} positions are longer than the "
                f"{config.model.max_positions} of the model {source.path!r}"
            )
        shape = dataclasses.replace(config.records, max_length=length)
        config = dataclasses.replace(config, records=shape)
        experiment = dataclasses.replace(experiment, config=config)
    pretrainer = experiment.pretrainer(devices)
    name = own.path if own else source.path
    variables = {v.path: v for v in pretrainer.trainable_variables}
    assign(variables, run.weights, name)
    pretrainer.optimizer.iterations.assign(run.step)
    pretrainer.begin(run.step)
    return _Run(name, run.step, experiment, pretrainer)
