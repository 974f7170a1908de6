"""Saved models: from files of Keras and from the networks of other libraries."""

import contextlib
import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import keras

from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.model import EncoderConfig
from electra_tf.errors import InputError
from electra_tf.interop import keras_file
from electra_tf.interop.heads import TaskHead
from electra_tf.interop.model import PretrainedModel
from electra_tf.model.transformer import weights_of_zeros
from electra_tf.sources import PretrainedEncoder, Source
from electra_tf.tasks.defaults import complete_settings, longest
from electra_tf.training.checkpoint import assign

Model = TypeVar("Model", bound=keras.Model)
Resolve = Callable[..., FinetuningConfig]
_LONGEST = 512


def saved_config(model: Any) -> dict[str, Any]:
    """Return what `from_saved_config` needs of a `TextModel`, as values of JSON."""
    config = {
        "shape": dataclasses.asdict(model.shape),
        "vocabulary": model.tokenizer.vocabulary.text,
        "tokenization": dataclasses.asdict(model.tokenizer.settings),
        "settings": dataclasses.asdict(model.settings),
        **{name: getattr(model, name) for name in model.own_arguments},
    }
    return json.loads(json.dumps(config))


def from_saved_config(kind: Any, config: Mapping[str, Any]) -> Any:
    """Create a `TextModel` from its config, with initial weights."""
    stored = config["settings"], "the saved model", FinetuningConfig
    settings = loader.stored_config(*stored)
    shape = EncoderConfig(**config["shape"])
    tokenizer = keras_file.saved_tokenizer(config)
    start = PretrainedEncoder(shape, tokenizer, None, "the saved model")
    own = {name: config[name] for name in kind.own_arguments if name in config}
    model = kind(start, settings=settings, name=config.get("name"), **own)
    model.trainable = config.get("trainable", True)
    return model


def given_arguments(kind: Any, head: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a class that `from_preset` got; TypeError for others."""
    if unknown := head.keys() - set(kind.own_arguments):
        known = [*inspect.signature(kind.from_preset).parameters, *kind.own_arguments]
        known = dict.fromkeys(name for name in known if name != "head")
        found = any(loader.setting_named(name, FinetuningConfig) for name in unknown)
        remedy = "; settings go to settings={...}" if found else ""
        raise TypeError(
            f"{kind.__name__}.from_preset has no argument "
            f"{', '.join(sorted(unknown))}; it has {', '.join(known)}{remedy}"
        )
    # None is the value of the saved model.
    required = (*kind.head_arguments, kind.required_argument)
    return {n: v for n, v in head.items() if v is not None or n not in required}


def load_file(file: str, kind: type[Model], compile: bool = False) -> Model:
    """Load a model of a class from a .keras file, with Keras's safe mode."""
    with keras_file.report_damaged_model(file), weights_of_zeros():
        keras_file.checked_config(file)
        model = keras.saving.load_model(file, compile=compile)
    if not isinstance(model, kind):
        raise InputError(f"{file} is a {type(model).__name__}, not a {kind.__name__}")
    return model


def build_model(
    kind: type[Model],
    model: PretrainedModel,
    resolve: Resolve | None = None,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> Model:
    """Create the Keras model of a fine-tuned network.

    `resolve` maps the model's own settings, as `base`, to those to use; `given` are
    arguments of the class, of which those that the files lack are used.
    """
    network, tokenizer = model.main, model.require_tokenizer()
    head, weights = network.head, network.encoder_weights
    start = PretrainedEncoder(network.shape, tokenizer, weights, model.path)
    config = {
        "shape": dataclasses.asdict(network.shape),
        "vocabulary": tokenizer.vocabulary.text,
        "tokenization": dataclasses.asdict(tokenizer.settings),
        "labels": head.labels,
        "tags": head.labels,
    }
    with _reading_settings(kind, model.path):
        config |= _arguments(kind, head, start)
        own = loader.stored_config(config["settings"], model.path, FinetuningConfig)
    lacking = set(head.kind.arguments) - head.settings.keys()
    config |= {name: value for name, value in given.items() if name in lacking}
    if resolve is not None:
        settings = resolve(base=own)
        for name in ("pooler", "pooling", "joint_prediction", "answerable"):
            wanted, stored = (getattr(one.model, name) for one in (settings, own))
            if wanted != stored:
                raise InputError(
                    f"model.{name} must be {stored!r}, as in the head of "
                    f"{model.path!r}, not {wanted!r}; leave it out, or pass the "
                    "arguments of a new head, such as labels"
                )
        config["settings"] = dataclasses.asdict(settings)
    with _reading_settings(kind, model.path), weights_of_zeros():
        built = kind.from_config(config)
    start.load_into(built.encoder)
    own = {f"head/{v.path.split('head/', 1)[1]}": v for v in built.head.weights}
    arrays = {name: network.weights[name] for name in network.weights.keys() & own}
    assign(own, arrays, model.path)
    return built


@contextlib.contextmanager
def _reading_settings(kind: type[Model], path: str) -> Iterator[None]:
    """Raise an InputError with the path for settings that a file should not have."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} does not have the settings of a {kind.__name__}: "
            f"{type(error).__name__}: {error!s:.200}"
        ) from error


def _arguments(
    kind: type[Model], head: TaskHead, start: PretrainedEncoder
) -> Mapping[str, Any]:
    """Return the arguments of the model, with defaults for other libraries' models."""
    settings = head.arguments.get("settings")
    if settings is None:
        # Padding is dynamic, so a long limit costs nothing for short texts.
        length = {"data.max_length": longest(start, _LONGEST)}
        settings = dataclasses.asdict(complete_settings(length, start, kind)[0])
    chosen = {**settings.get("model", {}), **head.model_settings}
    return {**head.arguments, "settings": {**settings, "model": chosen}}


def from_source(
    kind: Any,
    source: Source,
    head: Mapping[str, Any],
    settings: Any,
    max_length: int | None,
    options: Mapping[str, Any],
) -> Any:
    """Load the saved model of a source, or create a model on its encoder.

    A saved model has its own arguments and settings: others are an error. `options`:
    `seed`, `name`, `dtype` and `trainable` of `TextModel`.
    """
    length = {} if max_length is None else {"data.max_length": max_length}
    resolve = functools.partial(
        loader.to_config, settings, FinetuningConfig, overrides=length
    )
    resolve()  # before other settings can be wrong
    is_new = any(name in head for name in kind.head_arguments)
    given = {n: options[n] for n in ("seed", "dtype") if options[n] is not None} | head
    if source.kind == "fine_tuned":
        given |= {"settings": settings} if settings is not None else {}
        given |= {"max_length": max_length} if max_length is not None else {}
        model = load_file(source.file, kind)
    elif source.head is not None and source.head.role == kind.kind and not is_new:
        model = build_model(kind, source.fine_tuned, resolve, head)
        lacking = set(source.head.kind.arguments) - source.head.settings.keys()
        given = {name: value for name, value in given.items() if name not in lacking}
    else:
        return _new_model(kind, source, head, (settings, length), options)
    if given:
        shown = ", ".join(f"{name}={value!r:.200}" for name, value in given.items())
        raise InputError(
            f"{source.path!r} is a saved model with its own settings; leave out {shown}"
        )
    model.name = options["name"] or model.name
    model.trainable = model.trainable and options["trainable"]
    return model


def _new_model(
    kind: Any,
    source: Source,
    head: Mapping[str, Any],
    settings: tuple[Any, Mapping[str, Any]],
    options: Mapping[str, Any],
) -> Any:
    """Create a model on an encoder; an error names another head of the source."""
    start, (given, overrides) = source.encoder, settings
    chosen, note = complete_settings(given, start, kind, overrides)
    try:
        own = kind.new_arguments(head)
    except InputError as error:
        if source.head is None:
            raise
        role = source.head.role
        raise InputError(
            f"{str(error).rstrip('.')}; {source.path!r} has the head of a {role}"
        ) from error
    options = {**options, "seed": options["seed"] or 0}
    model = kind(start, settings=chosen, **own, **options)
    model.settings_note = note
    return model
