"""The description of a run, with three steps that are measured."""

import math
import re

import tensorflow as tf

from electra_tf.model.cost import step_flops
from electra_tf.runs import describe
from tests.tiny import resolve


def lines(folder, experiment, load_weights=None):
    strategy, records = tf.distribute.get_strategy(), experiment.open(str(folder))
    return [*describe.describe(experiment, strategy, records, load_weights)]


def test_a_description_has_sizes_flops_epochs_time_and_memory(folder):
    experiment = resolve(folder, "model.depth=1", "optimizer.warmup_steps=7")
    text = "\n".join(lines(folder, experiment, lambda pretrainer: "loaded: all"))
    steps, rows = experiment.config.training.steps, experiment.config.input.batch_size
    total = experiment.open(str(folder)).total
    epochs = f"{steps * rows / total:,.1f} ({steps:,} steps read {steps * rows:,} rows"
    variables = experiment.pretrainer().trainable_variables
    numbers = sum(math.prod(variable.shape) for variable in variables)
    for part in (
        f"all: {numbers:,} parameters",
        "generator: 1 layers of width 16, heads: 1, feed-forward: 64, embeddings: 16",
        "discriminator/encoder/embeddings: ",
        f"{step_flops(experiment.config):.4g} FLOPs per step",
        f"epochs over the records: {epochs}; the data has {total:,})",
        f"warm-up: 7 of {steps:,} steps",
        "loaded: all",
        "GiB of this process",
    ):
        assert part in text
    seconds = float(re.search(r"step: about (\S+) s,", text)[1])
    fitting = re.search(r"10 minutes: about ([\d,]+) steps", text)[1]
    assert 0.9 < int(fitting.replace(",", "")) * seconds / 600 < 1.1


def test_a_model_that_cannot_be_built_gets_sizes_and_flops_alone(folder, monkeypatch):
    def fail(self, strategy):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM")

    monkeypatch.setattr(describe.Experiment, "pretrainer", fail)
    text = "\n".join(lines(folder, resolve(folder)))
    assert "memory and time: not measured" in text
    assert "FLOPs per step" in text
    assert "step: about" not in text


def test_both_stages_of_a_run_are_measured(folder):
    sets = "objective.name=two_stage", "model.sharing=none", "model.generator_width=1.0"
    more = "model.generator_heads=2", "model.generator_embedding=16"
    stages, experiment = [], resolve(folder, *sets, *more)

    def load(pretrainer):
        begin = pretrainer.begin
        pretrainer.begin = lambda step: (stages.append(step), begin(step))
        return "loaded"

    text = "\n".join(lines(folder, experiment, load))
    assert stages == [0, experiment.config.restart]
    assert "10 minutes: about " in text
