"""Load .keras files, which may come from strangers.

Keras builds a model from its config before it reads the weights. So a small file can
describe a model of any size and of any class. Here the classes are those of this
package, those that the user has registered, and a closed list of Keras's; the weights
of the config's model are counted first, on variables without values.
"""

import concurrent.futures
import copy
import math
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from electra_tf.errors import InputError
from electra_tf.interop import keras_file
from electra_tf.interop.keras_file import WEIGHTS, report_damaged_model
from electra_tf.model.transformer import weights_of_zeros

_LAYERS = (
    *("InputLayer", "Dense", "EinsumDense", "Embedding", "Activation", "ReLU"),
    *("LeakyReLU", "Softmax", "Identity", "Masking", "Dropout", "SpatialDropout1D"),
    *("GaussianNoise", "LayerNormalization", "BatchNormalization"),
    *("UnitNormalization", "Add", "Subtract", "Multiply", "Average", "Maximum"),
    *("Minimum", "Concatenate", "Dot", "Flatten", "Reshape", "Permute"),
    *("RepeatVector", "GlobalAveragePooling1D", "GlobalMaxPooling1D", "Attention"),
    *("AveragePooling1D", "MaxPooling1D", "AdditiveAttention", "MultiHeadAttention"),
    *("Conv1D", "LSTM", "GRU", "SimpleRNN", "LSTMCell", "GRUCell", "SimpleRNNCell"),
    *("Bidirectional", "TimeDistributed"),
)
_CLASSES = {
    "keras.layers": _LAYERS,
    "keras": ("Functional", "Sequential", "Model", "DTypePolicy"),
    "keras.src.models.functional": ("Functional",),
    "builtins": ("__tuple__", "__slice__", "__ellipsis__", "__keras_tensor__"),
}
# Modules all of whose classes have no weights of their own.
_MODULES = (
    *("keras.initializers", "keras.regularizers", "keras.constraints"),
    *("keras.dtype_policies", "keras.src.ops."),
)
_MAX_DEPTH = 10_000  # of all encoders: Python's objects of a layer take 50 KB
_FLOAT = 4  # bytes


def load_keras_model(path: str, config: Mapping[str, Any]) -> keras.Model:
    """Load a .keras file with this config, without compiling or running its code."""
    try:
        # Keras raises errors of many classes.
        with report_damaged_model(path, Exception):
            config = _without_compilation(config)
            with zipfile.ZipFile(path) as archive:
                stored = archive.getinfo(WEIGHTS).file_size
            _check_classes(config)
            if (needed := _weight_bytes(config)) > stored:
                raise keras_file.too_large(path, needed, stored)
            with weights_of_zeros():
                model = keras.saving.deserialize_keras_object(config, safe_mode=True)
            with keras_file.extracted_weights(path) as weights:
                model.load_weights(weights)
            return model
    except InputError as error:
        if path in str(error):
            raise
        raise InputError(
            f"{path}: {error.required}", error.received, error.remedy
        ) from error


def unknown_class(name: Any) -> InputError:
    """Return the error of a class that is neither known nor registered."""
    return InputError(
        "The classes of a .keras file must be those of this package, plain layers of "
        "Keras, or registered by imported modules",
        f"{name!s:.100}",
        "If it is your own class, import its module first; otherwise do not trust the "
        "file",
    )


def _without_compilation(config: Any) -> Any:
    """Return a config whose models, and those within them, are not compiled."""
    if isinstance(config, list):
        return [_without_compilation(value) for value in config]
    if not isinstance(config, Mapping):
        return config
    return {
        name: _without_compilation(value)
        for name, value in config.items()
        if name != "compile_config"
    }


def _check_classes(config: Any) -> None:
    """Raise a ValueError for classes that are not known, and for too many layers."""
    depth = 0
    for entry in mappings(config):
        if "class_name" in entry and not _is_known(entry):
            raise unknown_class(entry.get("registered_name") or entry["class_name"])
        if isinstance(entry.get("depth"), int | float):
            depth += entry["depth"] * max(1, entry.get("generator_depth") or 1)
    if depth > _MAX_DEPTH:
        raise ValueError(f"a depth of {depth:,}")


def mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a config's objects, those within others too."""
    if isinstance(value, Mapping):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from mappings(part)


def _is_known(entry: Mapping[str, Any]) -> bool:
    name, module = entry["class_name"], entry.get("module")
    if keras.saving.get_registered_object(entry.get("registered_name")) is not None:
        return True
    if module is None:
        return name in _CLASSES["builtins"]
    return name in _CLASSES.get(module, ()) or module.startswith(_MODULES)


def _weight_bytes(config: Mapping[str, Any]) -> int:
    """Return the bytes of the weights of a config's model, which get no memory."""

    def count() -> int:
        # In this scope a variable has a shape, but no value. It is of this thread, as
        # is Keras's list of variables that wait for a value, which ends with it.
        with keras.StatelessScope(initialize_variables=False):
            own = copy.deepcopy(config)  # Keras changes it
            model = keras.saving.deserialize_keras_object(own, safe_mode=True)
        return _FLOAT * sum(math.prod(variable.shape) for variable in model.weights)

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(count).result()
