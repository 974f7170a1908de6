"""Remedies of errors about runs and evaluation."""

import pytest
import tensorflow as tf

from electra_tf.config.loader import load_config
from electra_tf.errors import InputError
from electra_tf.runs.evaluation import evaluate_checkpoint
from electra_tf.runs.experiment import Experiment
from electra_tf.runs.pretraining import Run
from remedies.bench import (
    DISCRIMINATOR,
    GENERATOR,
    PAIR,
    RECORDS,
    RUN,
    remedy_test,
)


def check(*sets, init=None):
    """Check a run with the config of the golden run and other settings."""
    config = str(RUN / "checkpoints" / "step_00000004" / "config.yaml")
    experiment = Experiment.resolve(
        str(RECORDS), None, lambda stored: load_config(config, sets, base=stored)
    )
    strategy = tf.distribute.get_strategy()
    run = Run(experiment, strategy, experiment.open(str(RECORDS)), None, None, init)
    run.check(None)


RUNS = {
    "a batch of more than all records": [
        lambda path, size=size: check(f"input.batch_size={size}") for size in (90, 89)
    ],
    "a frozen generator from nowhere": [
        lambda path, init=init: check(
            "objective.freeze_generator=true", "model.sharing=none", init=init
        )
        for init in (None, str(GENERATOR), PAIR)
    ],
}

test_a_remedy_works = remedy_test(RUNS)


def test_a_discriminator_alone_is_not_evaluated():
    devices = tf.distribute.get_strategy()
    with pytest.raises(InputError, match="a discriminator alone"):
        evaluate_checkpoint(str(DISCRIMINATOR), str(RECORDS), 1, devices)
