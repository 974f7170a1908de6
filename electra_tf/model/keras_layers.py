"""Configs and inputs of all layers, for Keras."""

from collections.abc import Mapping
from typing import Any, TypeVar

import keras

from electra_tf.errors import InputError

Tensor = Any
Layer = TypeVar("Layer", bound=keras.layers.Layer)

PACKAGE = "electra_tf"  # package name of the registered Keras classes


def policy_config(dtype: Any) -> dict[str, Any]:
    """Return a dtype policy, its name, or the global one (None) as JSON."""
    return keras.dtype_policies.serialize(keras.dtype_policies.get(dtype))


def build_layer(kind: type[Layer], config: dict[str, Any], **kinds: type) -> Layer:
    """Create a layer from its config; `kinds` are classes of arguments by name."""
    arguments = {**config}
    for name, argument_kind in kinds.items():
        arguments[name] = argument_kind(**arguments[name])
    if isinstance(arguments.get("dtype"), dict):
        arguments["dtype"] = keras.dtype_policies.deserialize(arguments["dtype"])
    trainable = arguments.pop("trainable", True)
    layer = kind(**arguments)
    layer.trainable = trainable  # Keras does not pass the argument on to sublayers
    return layer


def unpack_inputs(
    token_ids: Tensor | Mapping[str, Tensor],
    segment_ids: Tensor | None,
    padding_mask: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the inputs of an encoder, given one by one or as one dictionary."""
    others = {"segment_ids": segment_ids, "padding_mask": padding_mask}
    names = ["token_ids", *others]
    given = {name: x for name, x in others.items() if x is not None}
    if not isinstance(token_ids, Mapping):
        inputs = {"token_ids": token_ids, **given}
    else:
        inputs = {**token_ids, **{f"{name}=": x for name, x in given.items()}}
    if {*inputs} != {*names} or any(x is None for x in inputs.values()):
        raise InputError(
            f"An encoder must be called with {', '.join(names)}, or with one "
            f"dictionary of these from a tokenizer, not with "
            f"{', '.join(n for n, x in inputs.items() if x is not None) or 'none'}"
        )
    return tuple(inputs[name] for name in names)
