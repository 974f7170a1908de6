"""Convert layers and dtype policies to JSON and back, for Keras's saving."""

from typing import Any, TypeVar

import keras

Layer = TypeVar("Layer", bound=keras.layers.Layer)

PACKAGE = "electra_tf"
"""Package name of the registered Keras classes."""


def policy_config(dtype: Any) -> dict[str, Any]:
    """Return a dtype policy, its name, or the global one (None) as JSON."""
    return keras.dtype_policies.serialize(keras.dtype_policies.get(dtype))


def build_layer(kind: type[Layer], config: dict[str, Any], **kinds: type) -> Layer:
    """Create a layer from its config."""
    arguments = {**config}
    for name, argument_kind in kinds.items():
        arguments[name] = argument_kind(**arguments[name])
    if isinstance(arguments.get("dtype"), dict):
        arguments["dtype"] = keras.dtype_policies.deserialize(arguments["dtype"])
    trainable = arguments.pop("trainable", True)
    layer = kind(**arguments)
    layer.trainable = trainable  # Keras does not pass the argument on to sublayers
    return layer
