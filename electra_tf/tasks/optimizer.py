"""Reset optimizers, and read their state."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.training.optimizer import Optimizer


def reset_optimizer(optimizer: Any, variables: Sequence[keras.Variable]) -> None:
    """Reset an optimizer's variables to their values before the first update."""
    if isinstance(optimizer, Optimizer):
        for variable in optimizer.variables:
            variable.assign(tf.zeros_like(variable))
        return
    # Some variables of Keras's optimizers do not start at 0.
    fresh = type(optimizer).from_config(optimizer.get_config())
    if optimizer.built:
        fresh.build(variables)
    for variable, value in zip(optimizer.variables, fresh.variables, strict=True):
        variable.assign(value)


def schedule_end_error(optimizer: Optimizer, updates: int, more: int) -> InputError:
    """Return the error for updates after the end of a schedule."""
    return InputError(
        "The published learning rate must be above 0, but it has fallen to 0 after "
        f"{optimizer.schedule.steps} updates",
        f"{more} updates after the {updates} before",
        "Leave initial_epoch out, which begins another training, or call "
        "compile() with an optimizer for all updates",
    )


def check_updates_left(optimizer: Any) -> None:
    """Raise an error if an optimizer cannot make another update."""
    if optimizer is None:
        raise InputError(
            "train_on_batch must have an optimizer: the published learning rate "
            "depends on the number of updates, which only fit can compute",
            "no optimizer",
            "Call compile(optimizer=...) first, or call fit",
        )
    updates = int_value(optimizer.iterations)
    if isinstance(optimizer, Optimizer) and updates >= optimizer.schedule.steps:
        raise schedule_end_error(optimizer, updates, 1)


def int_value(variable: keras.Variable) -> int:
    """Return the value of an integer variable, on any number of replicas.

    Args:
        variable: A scalar.
    """
    # int(variable) fails for a variable of several replicas.
    return int(variable.numpy())
