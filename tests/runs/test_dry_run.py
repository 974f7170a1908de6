"""The description of a run; `benchmark train` compares it with real runs."""

import math

import tensorflow as tf
from tiny import resolve

from electra_tf.runs import dry_run

NO_WEIGHTS = lambda pretrainer: None  # noqa: E731


def describe(experiment, load_weights=NO_WEIGHTS):
    strategy = tf.distribute.get_strategy()
    return dry_run.describe(experiment, strategy, 40, load_weights)


def test_a_description_has_time_memory_passes_sizes_and_flops(folder, monkeypatch):
    monkeypatch.setattr(dry_run, "_SECONDS", 0.0)
    experiment = resolve(folder, "model.depth=1")
    # Steps of 2 and 4 of the 8 rows.
    monkeypatch.setattr(dry_run, "_CPU_FLOPS", experiment.step_flops / 2)
    text = describe(experiment, lambda pretrainer: "loaded: all")
    assert text.startswith("time to train: about ")
    steps, rows = experiment.config.training.steps, experiment.config.input.batch_size
    passes = f"{steps * rows / 40:,.1f} ({steps:,} steps read {steps * rows:,} rows"
    shapes = dry_run.variable_shapes(experiment)
    built = experiment.pretrainer().trainable_variables
    assert shapes == {v.path: tuple(v.shape) for v in built}
    total = sum(map(math.prod, shapes.values()))
    assert sum(dry_run.parameter_counts(shapes).values()) == total
    for part in (
        f"all: {total:,} parameters, {len(built)} weights",
        "generator: 1 layers of width 16, heads: 1, feed-forward: 64, embeddings: 16",
        "discriminator/encoder/embeddings: ",
        f"{experiment.step_flops:.4g} FLOPs per step",
        "by the paper's rule",
        "GiB of this process",
        "measured on 2 and 4 rows of random ids and extrapolated linearly to 8",
        f"passes over the records: {passes}; the data has 40)",
    ):
        assert part in text
    assert text.endswith("loaded: all")


def test_a_model_that_cannot_be_built_gets_sizes_and_flops_alone(folder, monkeypatch):
    def fail(self, strategy):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM")

    for name, value in (("_kernel_bytes", lambda *_: 1000), (None, fail)):
        with monkeypatch.context() as patch:
            if name:
                patch.setattr(dry_run, name, value)
            else:
                patch.setattr(dry_run.Experiment, "pretrainer", value)
            text = describe(resolve(folder))
        assert "memory and time: not measured" in text
        assert "FLOPs per step" in text
        assert "step: about" not in text


def test_stages_are_weighted_by_their_steps(folder, monkeypatch):
    experiment = resolve(
        folder,
        *("objective.name=two_stage", "objective.first_stage=0.25"),
        *("model.sharing=none", "model.generator_width=1.0"),
        *("model.generator_heads=2", "model.generator_embedding=16"),
    )
    monkeypatch.setattr(
        dry_run,
        "_measure_stage",
        lambda pretrainer, strategy, measured, unit: (
            {n: 10.0**pretrainer.stage + n for n in measured},
            {n: 100 * pretrainer.stage + n for n in measured},
        ),
    )
    monkeypatch.setattr(dry_run, "_CPU_FLOPS", experiment.step_flops / 2)
    pretrainer, strategy = experiment.pretrainer(), tf.distribute.get_strategy()
    estimate = dry_run.measure_steps(pretrainer, strategy)
    share = experiment.config.generator_share
    assert share == 0.25
    assert estimate.seconds == share * (10 + 8) + (1 - share) * (100 + 8)
    assert (estimate.memory, estimate.measured) == (208, (2, 4))
