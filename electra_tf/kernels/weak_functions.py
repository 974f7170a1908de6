"""Functions that TensorFlow keeps for the life of the process, made weak."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf import compat

_GRADIENTS = "electra_tf_gradients"  # collection of a graph


def weak_function(function: Callable) -> Callable:
    """Return a function that calls `function`, but does not keep it alive.

    TensorFlow never frees a Python function of a data set, nor what it refers to. The
    data set must hold `function` in an attribute: its iterators, and data sets that are
    derived from it, keep it alive.
    """
    reference = weakref.ref(function)
    return lambda *arguments: reference()(*arguments)


def custom_gradient(function: Callable) -> Callable:
    """Decorate as `tf.custom_gradient`, with gradients that are freed with their graph.

    TensorFlow's registry holds each gradient of a graph, and through it the graph. Here
    the graph holds the gradient, and the registry a weak reference.
    """
    decorated = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        if tf.executing_eagerly():
            return decorated(*arguments)
        graph = tf.compat.v1.get_default_graph()
        registry = compat.gradient_registry()
        names = set(registry.list())
        result = decorated(*arguments)
        for name in registry.list() - names:
            gradient = registry.lookup(name)
            graph.add_to_collection(_GRADIENTS, gradient)
            compat.replace_gradient(name, weak_function(gradient))
        return result

    return call
