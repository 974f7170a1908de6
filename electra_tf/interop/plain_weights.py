"""Read a checkpoint as two networks that share at most the embedding tables."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from electra_tf.config.pretraining import ModelConfig, PretrainingConfig
from electra_tf.model.transformer import DELTA

_DISCRIMINATOR, _GENERATOR = "electra/discriminator/", "electra/generator/"


def plain_weights(
    config: PretrainingConfig, step: int, weights: Mapping[str, np.ndarray]
) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    """Return the settings and weights of an equal model that needs no training state.

    With `sharing: gdes`, the difference is added to the generator's tables; the result
    has `sharing: none`. In the first stage of `two_stage`, the discriminator's encoder
    gets the generator's weights, as it will when the second begins.
    """
    model, plain = config.model, dict(weights)
    if config.restart and step < config.restart:
        for name in weights:
            source = name.replace(_DISCRIMINATOR, _GENERATOR)
            if name.startswith(f"{_DISCRIMINATOR}encoder/") and source in weights:
                plain[name] = weights[source]
    for name in [name for name in weights if name.endswith(DELTA)]:
        table = name.removesuffix(DELTA)
        base = weights[table.replace(_DISCRIMINATOR, _GENERATOR)]
        plain[table] = base + plain.pop(name)
    if model.sharing == "gdes":
        width = model.encoder.embedding
        model = dataclasses.replace(model, sharing="none", generator_embedding=width)
    return model, plain


def add_differences(
    arrays: Mapping[str, np.ndarray], variables: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return weights for `sharing: gdes`, the reverse of `plain_weights`."""
    result = dict(arrays)
    for name in variables:
        table = name.removesuffix(DELTA)
        if name.endswith(DELTA) and table in result:
            base = table.replace(_DISCRIMINATOR, _GENERATOR)
            base_table = arrays[base] if base in arrays else np.asarray(variables[base])
            result[name] = result.pop(table) - base_table
    return result
