"""All that training changes, out of a trainer and back into it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from electra_tf.errors import InputError
from electra_tf.training.checkpoint import Checkpoint


def state(trainer: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """All that training changes, but the step.

    Args:
        trainer: What is trained.

    Returns:
        Weights by path, and slots by slot and path.
    """
    variables = trainer.trainable_variables
    weights = {v.path: np.asarray(v) for v in variables}
    slots = {
        f"{slot}/{variable.path}": np.asarray(values)
        for slot, per_variable in trainer.optimizer.slots().items()
        for variable, values in zip(variables, per_variable, strict=True)
    }
    return weights, slots


def restore(trainer: Any, checkpoint: Checkpoint) -> None:
    """Puts weights, slots and step where the checkpoint has them.

    Args:
        trainer: What is trained, with a built optimizer.
        checkpoint: One of the same model and optimizer.
    """
    restore_weights(trainer, checkpoint)
    slots, expected = checkpoint.slots(), {}
    for slot, per_variable in trainer.optimizer.slots().items():
        for variable, values in zip(
            trainer.trainable_variables, per_variable, strict=True
        ):
            expected[f"{slot}/{variable.path}"] = values
    assign(expected, slots, checkpoint.path)
    trainer.optimizer.iterations.assign(checkpoint.step)


def restore_weights(trainer: Any, checkpoint: Checkpoint) -> None:
    """Puts the weights where the checkpoint has them.

    Args:
        trainer: Something with the same variables.
        checkpoint: Whose weights to take.
    """
    expected = {v.path: v for v in trainer.trainable_variables}
    assign(expected, checkpoint.weights(), checkpoint.path)


def assign(
    variables: Mapping[str, Any], arrays: Mapping[str, np.ndarray], source: str
) -> None:
    """Assigns arrays to variables of the same names, all or none.

    Args:
        variables: By name.
        arrays: By name.
        source: Where the arrays are from, for the error.

    Raises:
        InputError: Names or shapes differ; it lists them.
    """
    problems = [f"no {name}" for name in variables.keys() - arrays.keys()]
    problems += [f"a surplus {name}" for name in arrays.keys() - variables.keys()]
    problems += [
        f"{name} of shape {arrays[name].shape}, not {tuple(variable.shape)}"
        for name, variable in variables.items()
        if name in arrays and tuple(variable.shape) != arrays[name].shape
    ]
    if problems:
        shown = sorted(problems)
        more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
        raise InputError(
            "A checkpoint holds the weights of the model of this config",
            f"{source}: {'; '.join(shown[:8])}{more}",
            "Use the config.yaml that lies in the checkpoint's folder",
        )
    for name, variable in variables.items():
        variable.assign(arrays[name])
