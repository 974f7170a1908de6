"""Create, reset and check the optimizer of a fine-tuned model."""

import sys
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks import defaults
from electra_tf.training.optimizer import Optimizer, create_optimizer, rate_error


def prepare_training(
    model: Any, steps: int, arguments: dict[str, Any], epochs: int | None
) -> None:
    """Set epochs, dropout and optimizer of a `TextModel` for Keras's `fit`."""
    arguments["epochs"] = epochs = epochs or defaults.default_epochs(steps)
    prepare_optimizer(model, steps, arguments.get("initial_epoch", 0), epochs)
    callbacks = arguments.get("callbacks")
    callbacks = tf.nest.flatten(getattr(callbacks, "callbacks", callbacks))
    check_callbacks(callbacks, model.optimizer)
    model.choose_dropout(epochs)
    if arguments.get("verbose", "auto") == "auto":
        # A file would keep every state of a bar.
        shows_bars = sys.stdout.isatty() or "ipykernel" in sys.modules
        arguments["verbose"] = 1 if shows_bars else 2
    if arguments["verbose"] and model.settings_note:
        note, length = model.settings_note, defaults.describe_epochs(steps, epochs)
        if model.has_own_optimizer:
            own = type(model.optimizer).__name__
            note += f"; optimizer.* have no effect: compile() set {own}"
        print(f"{note}\n{length}, dropout {model.shape.dropout:g}")


def prepare_optimizer(model: Any, steps: int, first_epoch: int, epochs: int) -> None:
    """Create the published optimizer for this `fit`, or keep that of the caller."""
    optimizer = model.optimizer if model.compiled else None
    if optimizer is not None and (first_epoch or model.has_own_optimizer):
        check_updates_left(optimizer, steps * (epochs - first_epoch))
        return
    updates = int_value(optimizer.iterations) if optimizer else 0
    total = steps * epochs
    if optimizer is not None and optimizer.schedule.steps == total:
        # Another optimizer would compile the step again.
        for variable in optimizer.variables:
            variable.assign(tf.zeros_like(variable))
    else:
        with model.distribute_strategy.scope():
            rule, depth = model.settings.optimizer, model.shape.depth
            model.recompile(create_optimizer(rule, total, depth))
        model.has_own_optimizer = False
    if updates:
        model.seed.assign_add(1)  # another order, other dropout


def require_optimizer(model: Any) -> None:
    """Raise an error for a single update of a model without an optimizer for it."""
    if not model.compiled or model.optimizer is None:
        raise InputError(
            "train_on_batch needs an optimizer, as the published learning rate depends "
            "on the number of updates: call compile(optimizer=...) first"
        )
    check_updates_left(model.optimizer, 1)


def check_updates_left(optimizer: Any, more: int) -> None:
    """Raise an error if a schedule ends before a number of updates."""
    updates = int_value(optimizer.iterations)
    if isinstance(optimizer, Optimizer) and updates + more > optimizer.schedule.steps:
        raise InputError(
            "The published learning rate has fallen to 0 after "
            f"{optimizer.schedule.steps} updates, so there are no {more} updates after "
            f"the {updates} before; leave initial_epoch out, or call compile() with an "
            "optimizer for all updates"
        )


def check_callbacks(callbacks: Sequence[Any], optimizer: Any) -> None:
    """Raise an error if a callback would set the rate of a scheduled optimizer."""
    kinds = keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau
    for callback in callbacks:
        if isinstance(optimizer, Optimizer) and isinstance(callback, kinds):
            raise rate_error(type(callback).__name__)


def int_value(variable: keras.Variable) -> int:
    """Return the value of a scalar integer variable, on any number of replicas."""
    # int(variable) fails for a variable of several replicas.
    return int(variable.numpy())
