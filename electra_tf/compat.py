"""Private interfaces of TensorFlow and Keras that have no public equivalent.

Each is checked with TensorFlow 2.20.0 and 2.21.0, or with Keras 3.15.0 and 3.15.1, the
oldest and newest that setup.cfg allows. `tests/test_compat.py` fails if one vanishes.
The module imports neither library, so that errors and commands need neither.
"""

from collections.abc import Callable, Sequence
from typing import Any

RAISED_AS_IT_IS = "_keras_call_info_injected"
"""Keras: an error with this attribute leaves a layer's call without a new message."""


def remat_mode(layer: Any) -> Any:
    """Return the mode of the `keras.RematScope` in which a layer was created, or None.

    Keras: `Layer._remat_mode`, with `mode` and `layer_names`.
    """
    return layer._remat_mode


def sublayers(layer: Any) -> list[Any]:
    """Return a layer and all layers in it, at any depth.

    Keras: `Layer._flatten_layers`; `Model.layers` has those of the first level alone.
    """
    return list(layer._flatten_layers())


def variable_index(optimizer: Any, variable: Any) -> int:
    """Return the place of a variable among those that an optimizer was built with.

    Keras: `Optimizer._get_variable_index`, as its guide to own optimizers calls it.
    """
    return optimizer._get_variable_index(variable)


def summary_resource(writer: Any) -> Any:
    """Return the resource of a `tf.summary.SummaryWriter`.

    TensorFlow: `tf.raw_ops.ImportEvent` needs it, and `tf.summary` has no function for
    events other than summaries.
    """
    return writer._resource


def gradient_registry() -> Any:
    """Return the registry of gradient functions, with `list` and `lookup`.

    TensorFlow: `tf.RegisterGradient` only adds to it.
    """
    from tensorflow.python.framework import ops

    return ops.gradient_registry


def replace_gradient(name: str, gradient: Callable) -> None:
    """Register another gradient function of a name.

    TensorFlow: the registry accepts a name once.
    """
    registry = gradient_registry()
    del registry._registry[name]
    registry.register(gradient, name)


def custom_call(
    operands: Sequence[Any], name: str, settings: str, dtypes: Any, shapes: Any
) -> list[Any]:
    """Call a function of another library by name, in a program that XLA compiles.

    TensorFlow: the operation is not in `tf.raw_ops`.
    """
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    return gen_xla_ops.xla_custom_call_v2(
        operands=operands,
        call_target_name=name,
        backend_config=settings,
        has_side_effect=False,
        result_dtypes=dtypes,
        result_shapes=shapes,
    )


def optimization_barrier(tensor: Any) -> Any:
    """Return a tensor that XLA computes once, and not in each operation that reads it.

    TensorFlow: the operation is not in `tf.raw_ops`.
    """
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops

    (result,) = gen_xla_ops.xla_optimization_barrier(input=[tensor])
    return result
