"""Defaults of fine-tuning, by the shape of the encoder and what its weights are.

The page Results of the documentation has the measurements behind these numbers.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig, TaskModelConfig
from electra_tf.config.model import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.interop.heads import TASK_HEADS, TaskHead
from electra_tf.sources import PretrainedEncoder

# Learning rate and layer decay by depth and width (paper, appendix B, table 7).
_PUBLISHED = {(12, 256): (3e-4, 0.8), (12, 768): (1e-4, 0.8), (24, 1024): (5e-5, 0.9)}
# Weights of these shapes that were trained on fewer positions, 6.25% of those of the
# paper's small model, have the defaults of small encoders.
_TRAINED = 1_000_000_000
# Learning rates of other encoders up to a width.
_RATES = ((128, 6e-4), (256, 3e-4), (512, 1e-4), (math.inf, 5e-5))
MOST_DROPOUT = 0.1  # the highest rate, and that of `_MANY_EPOCHS` or more
_MANY_EPOCHS = 10
_LENGTH = 128
_UPDATES, _FEWEST_EPOCHS, _MOST_EPOCHS = 1000, 3, 30


def is_published(start: PretrainedEncoder) -> bool:
    """Return whether an encoder is one that the paper's settings are for."""
    trained = start.trained_positions is None or start.trained_positions >= _TRAINED
    shape = start.shape.depth, start.shape.width
    return shape in _PUBLISHED and start.weights is not None and trained


def default_settings(
    start: PretrainedEncoder, rate_scale: float = 1.0
) -> dict[str, Any]:
    """Return settings by dotted name; `rate_scale` is that of the model's class."""
    shape = start.shape
    if is_published(start):
        rate, decay = _PUBLISHED[shape.depth, shape.width]
        optimizer, pooling = "adam", "cls"
    else:
        rate = next(rate for width, rate in _RATES if shape.width <= width)
        rate *= rate_scale
        optimizer, decay, pooling = "adamw", 1.0, "pair"
    return {
        "optimizer.name": optimizer,
        "optimizer.learning_rate": rate,
        "optimizer.layer_decay": decay,
        "model.pooling": pooling,
        "data.max_length": longest(start, _LENGTH),
    }


def longest(start: PretrainedEncoder, length: int) -> int:
    """Return a length, or the positions that an encoder has or was trained with."""
    limit = start.trained_length or start.shape.max_positions
    return min(length, limit, start.shape.max_positions)


def dropout_rates(
    chosen: TaskModelConfig, trained: EncoderConfig, epochs: float = math.inf
) -> dict[str, float]:
    """Return the rates that are set, or those of a training, by their names."""
    rates = {}
    for name in ("dropout", "attention_dropout"):
        few = min(MOST_DROPOUT, getattr(trained, name))
        default = few if epochs < _MANY_EPOCHS else MOST_DROPOUT
        rate = getattr(chosen, name)
        rates[name] = default if rate is None else rate
    return rates


def default_epochs(steps: int) -> int:
    """Return the default epochs for the updates of one; below 1: not known."""
    if steps < 1:
        return _FEWEST_EPOCHS
    return min(_MOST_EPOCHS, max(_FEWEST_EPOCHS, math.ceil(_UPDATES / steps)))


def describe_epochs(steps: int, epochs: int) -> str:
    """Return the length of a training, and that for so many rows if it is longer."""
    words = f"{epochs} epoch{'s' * (epochs > 1)}"
    if steps < 1:
        return words
    line, default = f"{epochs * steps:,} steps in {words}", default_epochs(steps)
    if epochs < default:
        line += f" (by the number of rows: {default})"
    return line


def complete_settings(
    settings: Any,
    start: PretrainedEncoder,
    model: Any,
    overrides: Mapping[str, Any] | None = None,
) -> tuple[FinetuningConfig, str]:
    """Return settings, completed by the defaults of a class, and a line about them.

    `settings`: in any form of `loader.to_config`.
    """
    defaults = default_settings(start, model.rate_scale)
    base = loader.to_config(defaults, FinetuningConfig)
    settings = loader.to_config(settings, FinetuningConfig, base, overrides)
    return settings, describe_settings(start, settings, defaults, model.kind)


def describe_settings(
    start: PretrainedEncoder,
    settings: FinetuningConfig,
    defaults: Mapping[str, Any],
    kind: str = "",
) -> str:
    """Return a line with an encoder's defaults, and all settings that differ.

    Those of data are named only where the encoder has a default. Other lines warn of
    positions that were not trained, and name what the encoder's library lacks for the
    head of this kind.
    """
    both = map(dataclasses.asdict, (FinetuningConfig(), settings))
    fixed, values = map(loader.flatten, both)
    chosen, changed = [], []
    for name in dict.fromkeys([*defaults, *values]):
        value, default = values[name], defaults.get(name, fixed[name])
        shown = f"{name}={value:g}" if type(value) is float else f"{name}={value}"
        if value != default and (name in defaults or not name.startswith("data.")):
            instead = "" if default is None else f" in place of {default}"
            changed.append(f"{shown}{instead}")
        elif name in defaults:
            chosen.append(shown)
    shape = f"{start.shape.depth} x {start.shape.width}"
    page = "see the page Defaults of fine-tuning"
    reason = "as published" if is_published(start) else page
    line = f"defaults of a {shape} encoder ({reason}): {', '.join(chosen)}"
    line += f"; set otherwise: {', '.join(changed)}" if changed else ""
    trained, length = start.trained_length, settings.data.max_length
    # Above `max_positions`, the rows of the position table, an error follows.
    if trained is not None and trained < length <= start.shape.max_positions:
        line += (
            f"\nwarning: the encoder was trained on records of {trained} positions, "
            f"and data.max_length is {length}: the rows of its position table for "
            "later positions have their initial values. Set "
            f"data.max_length={trained}, or pre-train with longer records."
        )
    if kind in TASK_HEADS and start.format != "electra_tf":
        head = TaskHead.of_model(kind, {"settings": dataclasses.asdict(settings)})
        line = "\n".join(filter(None, [line, head.describe_way_back(start.format)]))
    return line


def checked_settings(
    settings: FinetuningConfig, max_positions: int, dtype: Any
) -> FinetuningConfig:
    """Return the settings with the precision of a dtype policy."""
    if (length := settings.data.max_length) > max_positions:
        raise InputError(
            f"data.max_length={length} exceeds the encoder's {max_positions} positions;"
            f" pass --set=data.max_length={max_positions} or less, or in Python "
            f"max_length={max_positions}"
        )
    if dtype is None:
        return settings
    precision = {"training.precision": getattr(dtype, "name", dtype)}
    return loader.to_config(precision, FinetuningConfig, settings)
