"""Private interfaces of TensorFlow, Keras and Python that have no public equivalent.

Each is checked with TensorFlow 2.20.0 and 2.21.0, or with Keras 3.15.0 and 3.15.1, the
oldest and newest that setup.cfg allows, or with Python 3.11. A test of its caller, or
`tests/test_compat.py`, fails if one vanishes. The module imports neither library, so
that errors and commands need neither.
"""

import pickle
from collections.abc import Callable
from typing import Any

RAISED_AS_IT_IS = "_keras_call_info_injected"
"""Keras: an error with this attribute leaves a layer's call without a new message."""


def sublayers(layer: Any) -> list[Any]:
    """Return a layer and all layers in it, at any depth (`Layer._flatten_layers`)."""
    return list(layer._flatten_layers())


def variable_index(optimizer: Any, variable: Any) -> int:
    """Return a variable's place in an optimizer (`Optimizer._get_variable_index`)."""
    return optimizer._get_variable_index(variable)


def summary_resource(writer: Any) -> Any:
    """Return the resource of a `SummaryWriter`, for `tf.raw_ops.ImportEvent`."""
    return writer._resource


def gradient_registry() -> Any:
    """Return the registry of gradient functions, with `list` and `lookup`."""
    from tensorflow.python.framework import ops

    return ops.gradient_registry


def replace_gradient(name: str, gradient: Callable) -> None:
    """Register another gradient function of a name, which is accepted once."""
    registry = gradient_registry()
    del registry._registry[name]
    registry.register(gradient, name)


def bundle_messages() -> tuple[Any, Any]:
    """Return the messages of an entry and of the header of a checkpoint's index."""
    from tensorflow.core.protobuf import tensor_bundle_pb2

    return tensor_bundle_pb2.BundleEntryProto, tensor_bundle_pb2.BundleHeaderProto


def dtype_name(dtype: Any) -> str:
    """Return the name of a `tf.DType` in messages, such as DT_FLOAT."""
    from tensorflow.core.framework import types_pb2

    return types_pb2.DataType.Name(dtype.as_datatype_enum)


def python_unpickler() -> Any:
    """Return the unpickler in Python, with its `dispatch` (`pickle._Unpickler`)."""
    return pickle._Unpickler


def without_autocast(variable: Any) -> Any:
    """Return the `tf.Variable` of a Keras variable, which no dtype policy casts."""
    return variable._value
