"""Restore the optimizer of a .keras file, which may come from a stranger."""

import inspect
import re
import sys
from collections.abc import Mapping
from typing import Any

import keras

from electra_tf.errors import InputError
from electra_tf.interop.keras_file import open_weights, read_item
from electra_tf.tasks.saved_file import mappings
from electra_tf.training.optimizer import Optimizer

_OPTIMIZER = "electra_tf>Optimizer"
_OURS = (
    _OPTIMIZER,
    "electra_tf>WarmupPolynomialDecay",
    "electra_tf>_GeneratorMultipliers",
    "electra_tf>_LayerwiseMultipliers",
)
_MODULES = ("keras.optimizers", "keras.optimizers.schedules")
_PATTERN = r"[\w/.^$|-]*"  # without repetitions, which can take very long
# Arguments of `compile` that need no line if they have these values.
_DEFAULTS = {
    "run_eagerly": (False,),
    "steps_per_execution": (1,),
    "jit_compile": (False, True, "auto"),
    "auto_scale_loss": (True,),
}


def compile_as_saved(model: keras.Model, config: dict[str, Any]) -> None:
    """Compile a model with all that the saved one was compiled with."""
    arguments = keras.saving.deserialize_keras_object(config)
    try:
        model.compile(**{name: value for name, value in arguments.items() if value})
    except InputError as error:
        remedy = "Load the model with electra_tf.load_model, which ignores metrics"
        raise InputError(error.required, error.received, remedy) from error
    _set_owner(model)
    if model.optimizer is not None:
        model.optimizer.build(model.trainable_variables)


def _set_owner(model: keras.Model) -> None:
    # The file does not store whether `fit` created the optimizer, so its class decides:
    # `fit` creates an `Optimizer`.
    model.has_own_optimizer = not isinstance(model.optimizer, Optimizer)


def restore_optimizer(model: keras.Model, path: str, config: Any) -> None:
    """Compile a model with the optimizer of its file, and print what is ignored.

    Only optimizers and schedules of this package and of Keras are created. Other
    arguments of `compile`, such as metrics, are not read. `config` is the file's
    `compile_config`.
    """
    if not isinstance(config, dict):
        _print(path, "compile_config", f"a {type(config).__name__}")
        return
    arguments = dict(config)
    if (optimizer := arguments.pop("optimizer", None)) is not None:
        name = optimizer.get("class_name") if isinstance(optimizer, dict) else ""
        try:
            _check(optimizer)
            restored = _restored(model, optimizer, path)
            model.compile(optimizer=restored)
            _set_owner(model)
        except Exception as error:  # Keras raises errors of many classes
            lines = str(error).strip().splitlines() or [""]
            reason = f"{type(error).__name__}: {lines[0]}"[:300]
            _print(path, f"optimizer {name}", f"{reason}; pass one to compile")
    ignored = [
        name
        for name, value in arguments.items()
        if value and value not in _DEFAULTS.get(name, ())
    ]
    if ignored:
        restored = "model.optimizer" if model.compiled else "..."
        reason = f"pass what you need to compile(optimizer={restored}, ...)"
        _print(path, ", ".join(ignored)[:200], reason)


def _print(path: str, names: str, reason: str) -> None:
    print(f"{path}: ignored {names} of compile: {reason}", file=sys.stderr)


def _check(config: Any) -> None:
    """Raise a ValueError unless all classes in a config are known and not nested."""
    entries = list(mappings(config))
    for entry in entries:
        patterns = entry.get("no_decay", ())
        if not all(re.fullmatch(_PATTERN, pattern) for pattern in patterns):
            raise ValueError(f"no_decay={patterns!r:.100}")
    names = [_known_class(entry) for entry in entries if "class_name" in entry]
    optimizers = [n for n in names if n in (("", _OPTIMIZER), (_MODULES[0], n[1]))]
    if len(optimizers) != 1:
        raise ValueError("not one optimizer of electra_tf or keras.optimizers")


def _known_class(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return module and name of a class; raise a ValueError for an unknown one."""
    module, name = config.get("module"), config["class_name"]
    registered = config.get("registered_name")
    if isinstance(registered, str) and registered in _OURS:
        return "", registered
    if isinstance(name, str) and module in _MODULES and registered in (None, name):
        namespace = keras.optimizers
        if module == _MODULES[1]:
            namespace = keras.optimizers.schedules
        if inspect.isclass(getattr(namespace, name, None)):
            return module, name
    name = f"{module}.{name}" if module else registered or name
    raise ValueError(f"{name!s:.150} is no class of electra_tf or keras.optimizers")


def _restored(model: keras.Model, config: Any, path: str) -> keras.optimizers.Optimizer:
    """Return the optimizer with its variables."""
    optimizer = keras.optimizers.deserialize(config)
    optimizer.build(model.trainable_variables)
    with open_weights(path) as weights:
        stored = read_item(weights, "optimizer", "vars")
        if len(stored) != len(optimizer.variables):
            raise ValueError(f"{len(stored)} variables for {len(optimizer.variables)}")
        for index, variable in enumerate(optimizer.variables):
            dataset = read_item(stored, str(index))
            if dataset.shape != tuple(variable.shape):
                raise ValueError(f"the shape {dataset.shape} for {variable.shape}")
            variable.assign(dataset[()])
    return optimizer
