"""Find which weights of a run begin with those of another run."""

import tempfile
from typing import Any

import numpy as np

from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.interop import warm_start
from electra_tf.runs.experiment import Experiment
from electra_tf.training import checkpoint as checkpoints


def begun_from(
    other: Experiment, metadata: dict[str, Any], experiment: Experiment
) -> dict[str, str]:
    """Return the paths of weights that begin with another run's, and those of its own.

    They are those of `pretrain --init_checkpoint`: it loads a checkpoint of the other
    run whose weights are filled with their numbers. `metadata` is the checkpoint's.
    """
    variables = other.pretrainer().trainable_variables
    pretrainer = experiment.pretrainer()
    with tempfile.TemporaryDirectory() as place:
        numbers = {
            v.path: np.full(v.shape, number, np.float32)  # 0 and 1 are initial values
            for number, v in enumerate(variables, 2)
        }
        manager = checkpoints.CheckpointManager(place)
        path = manager.save(1, numbers, {}, other.files(), metadata)
        warm_start.load_weights(
            pretrainer,
            sources.open_source(path).pretrained,
            checkpoints.open_checkpoint(path),
            experiment.config,
            experiment.tokenizer,
        )
    begun = {}
    for variable in pretrainer.trainable_variables:
        value = variable.numpy()
        number = value.flat[0]
        if value.min() != value.max() or number < 2 or not number.is_integer():
            continue
        source = variables[int(number) - 2]
        if source.shape != variable.shape:
            raise InputError(
                f"{variable.path} must have the shape of {source.path}, from which "
                f"--begin takes it: {tuple(source.shape)}, not "
                f"{tuple(variable.shape)}; use the same vocabulary and sizes"
            )
        begun[variable.path] = source.path
    return begun
