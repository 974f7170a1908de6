"""Layers as plain JSON, and layers made from it, as Keras's saving needs both."""

from typing import Any, TypeVar

import keras

Layer = TypeVar("Layer", bound=keras.layers.Layer)

PACKAGE = "electra_tf"
"""The name under which Keras's registry holds the classes of this package."""


def policy_config(dtype: Any) -> dict[str, Any]:
    """Return a dtype policy as JSON.

    Args:
        dtype: A policy or its name; None: Keras's global policy of now.

    Returns:
        What `keras.dtype_policies.deserialize` takes.
    """
    return keras.dtype_policies.serialize(keras.dtype_policies.get(dtype))


def build_layer(kind: type[Layer], config: dict[str, Any], **kinds: type) -> Layer:
    """Make a layer from its config.

    Args:
        kind: Class of the layer.
        config: What its `get_config` returned.
        kinds: Classes of those arguments that the config holds as a dictionary of
            their own arguments, by name of the argument.

    Returns:
        The layer, whose sublayers are trainable where it is.
    """
    given = {**config}
    for name, made in kinds.items():
        given[name] = made(**given[name])
    if isinstance(given.get("dtype"), dict):
        given["dtype"] = keras.dtype_policies.deserialize(given["dtype"])
    trainable = given.pop("trainable", True)
    layer = kind(**given)
    layer.trainable = trainable  # the constructor's would not reach the sublayers
    return layer
