"""Print the parts of a layer as `keras.Model.summary` prints those of a model.

Keras takes the shape of a part's output from its attribute `output_shape`. It would
compute it by a call with one input, and most layers of this package get several.
"""

from collections.abc import Callable
from typing import Any

import keras


def summary(layer: keras.layers.Layer, **arguments: Any) -> None:
    """Print the layer's parts with output shapes and numbers of parameters.

    Args:
        layer: A layer with the attribute `layers`, `self` of `layer.summary`.
        arguments: Those of `keras.Model.summary`.
    """
    if not layer.built:
        layer.build((None, None))
    view = keras.Model(name=layer.name)
    view.parts, view.built = layer.layers, True
    view.summary(**arguments)


def rows_of(size: Callable[[Any], int] | None = None) -> property:
    """Return the attribute `output_shape` of a layer.

    `size`: function of the layer that returns the last size of an output [B, L, size];
    None: the output is [B, L].
    """
    return property(lambda layer: (None, None) + ((size(layer),) if size else ()))
