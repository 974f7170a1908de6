"""Read and restore the variables of a trainer."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from electra_tf.errors import InputError
from electra_tf.training.checkpoint import Checkpoint


class VariableArray:
    """Array of a variable that is copied when it is read, not before."""

    def __init__(self, variable: Any):
        self._variable = variable
        self.shape = tuple(variable.shape)
        self.dtype = np.dtype(getattr(variable.dtype, "name", variable.dtype))

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the current values."""
        return np.asarray(self._variable, dtype)


def training_state(
    trainer: Any,
) -> tuple[dict[str, VariableArray], dict[str, VariableArray]]:
    """Return the weights and optimizer slots of a trainer, to be read one by one.

    Returns:
        Weights by path, and slots by slot and path. They change with the variables.
    """
    variables = trainer.trainable_variables
    weights = {v.path: VariableArray(v) for v in variables}
    slots = {
        f"{slot}/{variable.path}": VariableArray(values)
        for slot, per_variable in trainer.optimizer.slots().items()
        for variable, values in zip(variables, per_variable, strict=True)
        if values is not None
    }
    return weights, slots


def restore(trainer: Any, checkpoint: Checkpoint) -> None:
    """Restore weights, optimizer slots and step from a checkpoint."""
    restore_weights(trainer, checkpoint)
    slots, expected = checkpoint.slots(), {}
    for slot, per_variable in trainer.optimizer.slots().items():
        for variable, values in zip(
            trainer.trainable_variables, per_variable, strict=True
        ):
            if values is not None:
                expected[f"{slot}/{variable.path}"] = values
    assign(expected, slots, checkpoint.path)
    trainer.optimizer.iterations.assign(checkpoint.step)


def restore_weights(trainer: Any, checkpoint: Checkpoint) -> None:
    """Restore only the weights from a checkpoint."""
    expected = {v.path: v for v in trainer.trainable_variables}
    assign(expected, checkpoint.weights(), checkpoint.path)


def assign(
    variables: Mapping[str, Any], arrays: Mapping[str, np.ndarray], source: str
) -> None:
    """Assign arrays to variables of the same names, all or none."""
    problems = [f"missing {name}" for name in variables.keys() - arrays.keys()]
    problems += [f"surplus {name}" for name in arrays.keys() - variables.keys()]
    problems += [
        f"{name} has shape {arrays[name].shape}, not {tuple(variable.shape)}"
        for name, variable in variables.items()
        if name in arrays and tuple(variable.shape) != arrays[name].shape
    ]
    if problems:
        shown = sorted(problems)
        more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
        raise InputError(
            "A checkpoint must have the weights of the configured model",
            f"{source}: {'; '.join(shown[:8])}{more}",
            "Use the config.yaml of the checkpoint folder",
        )
    for name, variable in variables.items():
        variable.assign(arrays[name])
