"""The published optimizer of fine-tuning; its creation, reset and end."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from electra_tf.config.finetuning import TaskOptimizerConfig
from electra_tf.config.pretraining import OptimizerConfig as Rule
from electra_tf.errors import InputError
from electra_tf.training.optimizer import Optimizer, build_optimizer
from electra_tf.training.schedule import WarmupPolynomialDecay, layerwise_multipliers


def create_optimizer(
    settings: TaskOptimizerConfig | Rule, steps: int, depth: int | None = None
) -> Optimizer:
    """Create the published optimizer of fine-tuning or of pre-training.

    Both have a warm-up and a linear decay; fine-tuning has layer-wise rates too, as in
    the paper's appendix B.

    Args:
        settings: The section `optimizer` of a config of fine-tuning or pre-training.
        steps: Updates of the whole training; the warm-up may end between two steps.
        depth: Transformer layers of the encoder; required for fine-tuning with
            layer-wise rates (`optimizer.layer_decay` below 1).

    Returns:
        An optimizer that is not built yet.

    Raises:
        InputError: The number of steps is unknown, or the only step is the first of
            the warm-up, whose rate is 0, or layer-wise rates have
            no depth.

    Example:
        import electra_tf

        model = electra_tf.TextClassifier.from_preset("run", num_classes=2)
        rule = electra_tf.FinetuningConfig().optimizer
        depth = model.encoder.shape.depth
        model.compile(electra_tf.create_optimizer(rule, steps=100, depth=depth))
    """
    if isinstance(settings, Rule):
        return build_optimizer(settings, steps)
    if steps < 1:
        raise InputError(
            "The number of batches must be known, as the published learning rate falls "
            "to 0 with the last step",
            "a data set of unknown cardinality",
            "Call compile(optimizer=...) first, or assert the data set's cardinality",
        )
    if steps == 1 and settings.warmup_share:
        raise InputError(
            "Training must have two updates or more, as the warm-up begins with a rate "
            "of 0",
            "one update: a single batch, in a single epoch",
            "Train for more epochs or in smaller batches, or set "
            "optimizer.warmup_share=0",
        )
    schedule = WarmupPolynomialDecay(
        settings.learning_rate,
        steps,
        steps * settings.warmup_share,
        settings.decay_power,
    )
    rule = Rule(
        name=settings.name,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        epsilon=settings.epsilon,
        clip_norm=settings.clip_norm,
    )
    multipliers = None
    if settings.layer_decay != 1:
        if depth is None:
            raise InputError(
                "depth must be given for learning rates by layer",
                f"depth=None with optimizer.layer_decay={settings.layer_decay}",
                "Pass depth=model.encoder.shape.depth, or set layer_decay=1",
            )
        decay, kind = settings.layer_decay, settings.layer_rule
        multipliers = layerwise_multipliers(depth, decay, kind)
    return Optimizer(schedule, rule, multipliers)


def reset_optimizer(optimizer: Any, variables: Sequence[keras.Variable]) -> None:
    """Set an optimizer's variables to those before its first update.

    Args:
        optimizer: Ours or one of Keras's.
        variables: The model's trainable variables.
    """
    if isinstance(optimizer, Optimizer):
        for variable in optimizer.variables:
            variable.assign(tf.zeros_like(variable))
        return
    # Some optimizers of Keras have variables that begin with other values than 0.
    fresh = type(optimizer).from_config(optimizer.get_config())
    if optimizer.built:
        fresh.build(variables)
    for variable, value in zip(optimizer.variables, fresh.variables, strict=True):
        variable.assign(value)


def rate_used_up(optimizer: Optimizer, updates: int, more: int) -> InputError:
    """Return the error of updates after the last one of a schedule.

    Args:
        optimizer: The published optimizer.
        updates: Number of its updates so far.
        more: Number of further updates.

    Returns:
        The error to raise.
    """
    return InputError(
        "The published learning rate must be above 0, but it has fallen to 0 after "
        f"{optimizer.schedule.steps} updates",
        f"{more} updates after the {updates} before",
        "Leave initial_epoch out, which begins another training, or call "
        "compile() with an optimizer for all updates",
    )


def int_value(variable: keras.Variable) -> int:
    """Return the value of an integer variable, which may be held by replicas.

    Args:
        variable: A scalar.

    Returns:
        Its value; `int(variable)` fails for a variable of several replicas.
    """
    return int(variable.numpy())
