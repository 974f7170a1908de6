"""Load a checked .keras file without building more than its weights.

Keras reads the config, creates the whole model, then reads weights. A small file can so
describe a model of any size.
"""

import contextlib
import math
import threading
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import keras

from electra_tf.errors import InputError
from electra_tf.interop.keras_file import WEIGHTS, damaged


def load_saved_file(path: str) -> keras.Model:
    """Load a checked .keras file, without compiling the model or running its code."""
    try:
        with zipfile.ZipFile(path) as archive:
            limit = archive.getinfo(WEIGHTS).file_size
        with _limited_weights(limit):
            return keras.saving.load_model(path, compile=False, safe_mode=True)
    except InputError as error:
        raise InputError(
            f"{path}: {error.required}", error.received, error.remedy
        ) from error
    except Exception as error:  # Keras raises errors of many classes
        raise damaged(path, error) from error


@contextlib.contextmanager
def _limited_weights(limit: int) -> Iterator[None]:
    """Return a context in which layers of this thread have at most `limit` values.

    Keras builds a whole model before it reads weights, and a config can describe layers
    of any class and size. Every stored value takes a byte or more. Models within the
    model are not compiled.
    """
    original, thread, values = keras.layers.Layer.add_weight, threading.get_ident(), 0

    def add_weight(layer: Any, shape: Any = None, *args: Any, **kwargs: Any) -> Any:
        nonlocal values
        if threading.get_ident() == thread:
            values += math.prod(() if shape is None else shape)
            if values > limit:
                raise ValueError(f"{limit:,} bytes of weights for a larger model")
        return original(layer, shape, *args, **kwargs)

    inner_models = []

    def not_compiled(compile_from_config: Callable) -> Callable:
        def call(model: keras.Model, *args: Any, **kwargs: Any) -> None:
            if threading.get_ident() == thread:
                inner_models.append(model)
            else:
                compile_from_config(model, *args, **kwargs)

        return call

    with contextlib.ExitStack() as stack:
        stack.enter_context(_replaced(keras.layers.Layer, "add_weight", add_weight))
        for kind in _defining("compile_from_config", keras.Model):
            new = not_compiled(kind.compile_from_config)
            stack.enter_context(_replaced(kind, "compile_from_config", new))
        yield
    for model in inner_models:
        model.compiled = False  # which Keras sets


def _defining(name: str, kind: type) -> set[type]:
    """Return the classes above and below a class that define an attribute."""
    kinds, below = {*kind.__mro__}, [kind]
    while below:
        kinds.update(below := [k for b in below for k in b.__subclasses__()])
    return {k for k in kinds if name in vars(k)}


@contextlib.contextmanager
def _replaced(kind: type, name: str, value: Any) -> Iterator[None]:
    original = getattr(kind, name)
    setattr(kind, name, value)
    try:
        yield
    finally:
        setattr(kind, name, original)
