"""Check a .keras file before Keras builds the model that it describes.

Keras reads the config, creates the whole model, then reads weights. A small file can so
describe a model of any size, and a compressed one expand to any size.
"""

import contextlib
import json
import math
import threading
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import keras
import pydantic

from electra_tf.config.pretraining import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.interop.network import COUNTS, expected_shapes

_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_MAX_CONFIG = 2**24  # bytes; most of them are the vocabulary
_MAX_DEPTH = 10_000
_MAX_RATIO = 20  # of the size of all parts and the size of the file
_FLOAT = 4  # bytes
_REMEDY = "Copy it again, or train it again"


def check_saved_file(path: str) -> str:
    """Raise an InputError for a file whose config and weights do not fit together.

    Returns:
        The registered name of the model's class, or its own name.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist()}
            stored = sum(info.compress_size for info in archive.infolist())
            if sum(sizes.values()) > _MAX_RATIO * stored + _MAX_CONFIG:
                raise ValueError("it expands to more than 20 times its size")
            if sizes[_CONFIG] > _MAX_CONFIG:
                raise ValueError(f"{_CONFIG} of {sizes[_CONFIG]:,} bytes")
            with archive.open(_CONFIG) as file:
                config = json.loads(file.read(_MAX_CONFIG + 1))
            weights = sizes[_WEIGHTS]
        needed = _encoder_bytes(config)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        NotImplementedError,
        RuntimeError,
        zipfile.BadZipFile,
    ) as error:
        raise InputError(
            f"{path} must be a complete model that finetune wrote",
            f"{type(error).__name__}: {error}"[:300],
            _REMEDY,
        ) from error
    if needed > weights:
        raise InputError(
            f"{path} must have the weights of the model in its {_CONFIG}",
            f"{weights:,} bytes for an encoder of {needed:,}",
            _REMEDY,
        )
    return str(config.get("registered_name") or config["class_name"])


def load_saved_file(path: str) -> keras.Model:
    """Load a checked .keras file, without compiling the model or running its code."""
    try:
        with zipfile.ZipFile(path) as archive:
            limit = archive.getinfo(_WEIGHTS).file_size
        with _limited_weights(limit):
            return keras.saving.load_model(path, compile=False, safe_mode=True)
    except InputError as error:
        raise InputError(
            f"{path}: {error.required}", error.received, _REMEDY
        ) from error
    except Exception as error:  # Keras raises errors of many classes
        lines = str(error).strip().splitlines() or [""]
        raise InputError(
            f"{path} must be a complete model that finetune wrote",
            f"{type(error).__name__}: {lines[0]}"[:300],
            _REMEDY,
        ) from error


def _encoder_bytes(config: dict[str, Any]) -> int:
    """Return the bytes of the encoder's weights; 0 for a model of another kind."""
    shape = config["config"].get("shape")
    if config["class_name"] is None or not isinstance(shape, dict):
        return 0
    try:
        shape = EncoderConfig(**shape)
    except pydantic.ValidationError as error:
        raise ValueError(f"shape: {error.errors()[0]['msg']}") from error
    if shape.depth > _MAX_DEPTH:
        raise ValueError(f"a depth of {shape.depth}")
    sizes = {name: getattr(shape, name) for name in COUNTS}
    if min(sizes.values()) < 1 or shape.width % shape.heads:
        raise ValueError(f"shape: {sizes} are not the sizes of an encoder")
    weights = expected_shapes("encoder", shape)
    if shape.embedding == shape.width:
        weights = {n: s for n, s in weights.items() if "embeddings_project" not in n}
    return _FLOAT * sum(map(math.prod, weights.values()))


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
