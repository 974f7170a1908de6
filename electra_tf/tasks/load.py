"""Load fine-tuned models from files of this package and of other libraries."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import keras

from electra_tf import sources
from electra_tf.errors import InputError
from electra_tf.interop import keras_file
from electra_tf.interop.network import Network
from electra_tf.interop.pretrained import ADD_VOCABULARY, PretrainedModel
from electra_tf.interop.task_heads import MODEL, TaskHead, TaskRole
from electra_tf.sources import PretrainedEncoder, Source
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.saved_file import load_saved_file
from electra_tf.tasks.saved_optimizer import restore_optimizer
from electra_tf.tasks.tagger import TokenClassifier
from electra_tf.tasks.text_model import TextModel
from electra_tf.training.checkpoint import assign

_CLASSES: dict[TaskRole, type[TextModel]] = {
    "classifier": TextClassifier,
    "regressor": TextRegressor,
    "token_classifier": TokenClassifier,
    "question_answerer": QuestionAnswerer,
}
_LONGEST = 512
_STS_RANGE = (0.0, 5.0)
_NULL_THRESHOLD = -2.75  # the original's `qa_na_threshold`


def load(source: Source) -> TextModel:
    """Load a fine-tuned model.

    Returns:
        The model, not compiled; `fit` compiles it with the published optimizer.
    """
    if source.kind == "fine_tuned":
        name = keras_file.class_name(keras_file.read_config(source.file))
        kind = keras.saving.get_registered_object(name)
        if not (isinstance(kind, type) and issubclass(kind, TextModel)):
            raise InputError(
                f"{source.file} must be a model that finetune wrote",
                f"a model of class {name!r:.100}",
                "Name the --output of finetune",
            )
        return load_saved_file(source.file)
    if source.fine_tuned is None:
        raise InputError(
            f"The model must be fine-tuned: a folder of finetune with a {MODEL}, a "
            ".keras file, or another library's model with the head of a task",
            f"{source.path!r}, a pre-trained model",
            "Fine-tune it with electra_tf.finetune --checkpoint, and name its --output",
        )
    return build(source.fine_tuned)


def load_model(path: str | os.PathLike) -> keras.Model:
    """Load a model that `save` wrote, compiled with its optimizer.

    No code in the file is run. Optimizers other than those of this package and of
    `keras.optimizers`, and other arguments of `compile`, are ignored with a line.

    Args:
        path: A `.keras` file, or a folder with `model.keras`, as finetune writes it.

    Returns:
        The model: one of a task, or any Keras model with layers of this package.

    Raises:
        InputError: There is no such file, or it is damaged.

    Example:
        import electra_tf

        model = electra_tf.load_model("model.keras")
        model.predict(["a fine film"])
    """
    source = sources.open(path)
    if source.kind != "fine_tuned":
        raise InputError(
            f"path must be a .keras file, or a folder with {MODEL}",
            repr(os.fspath(path)),
            "Check the path; load a checkpoint with from_preset of a model class",
        )
    config = keras_file.read_config(source.file)
    model = load_saved_file(source.file)
    restore_optimizer(model, source.file, config.get("compile_config") or {})
    return model


def write(model: PretrainedModel, path: str) -> list[Network]:
    """Write a folder that predict, evaluate and export take as `--model`.

    Returns:
        The network as it was written, read again from the file.
    """
    os.makedirs(path, exist_ok=True)
    build(model).save(os.path.join(path, MODEL))
    network = model.main
    known = {"config": dict(network.config), "dtypes": dict(network.dtypes)}
    pathlib.Path(path, keras_file.ORIGIN).write_text(json.dumps(known, indent=1))
    return [keras_file.read(path).main.origin]


def build(model: PretrainedModel) -> TextModel:
    """Create the Keras model of a fine-tuned network."""
    network, tokenizer = model.main, model.tokenizer
    if tokenizer is None:
        raise InputError(
            "A fine-tuned model must have a vocabulary",
            f"{model.path!r} without one",
            ADD_VOCABULARY,
        )
    head = network.head
    config = {
        "shape": dataclasses.asdict(network.shape),
        "vocabulary": tokenizer.vocabulary.text,
        "tokenization": dataclasses.asdict(tokenizer.settings),
        "labels": head.labels,
        "tags": head.labels,
    }
    try:
        config |= _arguments(head, network.shape)
        built = _CLASSES[head.role].from_config(config)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"The settings of the fine-tuned model in {model.path} must be those of a "
            f"{_CLASSES[head.role].__name__}",
            f"{type(error).__name__}: {error}"[:200],
            "Get or convert the model again",
        ) from error
    weights = network.encoder_weights
    start = PretrainedEncoder(network.shape, tokenizer, weights, model.path)
    start.load_into(built.encoder)
    own = {_head_path(variable.path): variable for variable in built.head.weights}
    arrays = {name: network.weights[name] for name in network.weights.keys() & own}
    assign(own, arrays, model.path)
    return built


def _arguments(head: TaskHead, shape: Any) -> Mapping[str, Any]:
    """Return the arguments of the model, with defaults for other libraries' models."""
    stored = {
        name: head.settings[name]
        for name in keras_file.ARGUMENTS
        if name in head.settings
    }
    settings = stored.get("settings")
    if settings is None:
        # Padding is dynamic, so a long limit costs nothing for short texts.
        length = min(_LONGEST, shape.max_positions)
        settings = {"data": {"max_length": length}, "model": {}}
        settings["model"]["dropout"] = shape.dropout
        settings["model"]["attention_dropout"] = shape.attention_dropout
    chosen = dict(settings.get("model", {}))
    if head.role == "question_answerer":
        chosen["joint_prediction"] = head.joint_prediction
        chosen["answerable"] = head.answerable
    low, high = _STS_RANGE if head.name == "sts" else (0.0, 1.0)
    threshold = _NULL_THRESHOLD if head.answerable else None
    defaults = {"null_threshold": threshold, "low": low, "high": high}
    return {**defaults, **stored, "settings": {**settings, "model": chosen}}


def _head_path(path: str) -> str:
    return f"head/{path.split('head/', 1)[1]}"
