"""Fine-tuned models of this package between their files and other libraries' names."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from electra_tf.errors import InputError
from electra_tf.interop.conversion import read_model
from electra_tf.interop.network import Network
from electra_tf.interop.pretrained import ADD_VOCABULARY, PretrainedModel
from electra_tf.interop.task_heads import MODEL, HeadOptions, TaskHead, TaskRole
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.inference import load
from electra_tf.tasks.pretrained import PretrainedEncoder, path_below_encoder
from electra_tf.tasks.run_folder import stored_task
from electra_tf.tasks.tagger import TokenClassifier
from electra_tf.tasks.text_model import TextModel
from electra_tf.text.json_file import read_json
from electra_tf.training.checkpoint import assign

_CLASSES: dict[TaskRole, type[TextModel]] = {
    "classifier": TextClassifier,
    "regressor": TextRegressor,
    "token_classifier": TokenClassifier,
    "question_answerer": QuestionAnswerer,
}
_SOURCE = "source.json"
# Arguments of the models that the weights of a head do not show.
_ARGUMENTS = (
    *("settings", "pairs", "low", "high", "scheme", "null_threshold"),
    *("name", "trainable"),
)
# The released code's names of tasks.
_TF1_NAMES = {
    "sst2": "sst",
    "stsb": "sts",
    "chunking": "chunk",
    "squad1": "squadv1",
    "squad2": "squad",
}
_LONGEST = 512
_STS_RANGE = (0.0, 5.0)
_NULL_THRESHOLD = -2.75  # the original's `qa_na_threshold`


def read(path: str) -> PretrainedModel:
    """Read a fine-tuned model of this package as a network."""
    model = load(path)
    role = next(role for role, kind in _CLASSES.items() if type(model) is kind)
    weights = {
        f"encoder/{path_below_encoder(v.path)}": v.numpy()
        for v in model.encoder.weights
    }
    weights |= {_head_path(v.path): v.numpy() for v in model.head.weights}
    task, config, known = stored_task(path) or "", model.get_config(), _source(path)
    chosen = model.settings.model
    is_span = role == "question_answerer"
    head = TaskHead(
        role,
        tuple(config.get("labels", config.get("tags", ()))),
        joint_prediction=is_span and chosen.joint_prediction,
        answerable=is_span and chosen.answerable,
        name=_TF1_NAMES.get(task, task),
        settings={name: config[name] for name in _ARGUMENTS if name in config},
    )
    network = Network(role, model.shape, weights, head, source=path).to_ours(
        config=known.get("config", {}), dtypes=known.get("dtypes", {})
    )
    facts = {"Task": task} if task else {}
    return PretrainedModel.of_networks(
        [network], model.tokenizer, path, run={"facts": facts}
    )


def write(model: PretrainedModel, path: str) -> list[Network]:
    """Write a folder that predict, evaluate and export take as `--model`.

    Returns:
        The network as it was written, read again from the file.
    """
    os.makedirs(path, exist_ok=True)
    build(model).save(os.path.join(path, MODEL))
    network = model.main
    known = {"config": dict(network.config), "dtypes": dict(network.dtypes)}
    pathlib.Path(path, _SOURCE).write_text(json.dumps(known, indent=1))
    return [read(path).main.origin]


def load_finished(path: str) -> TextModel | None:
    """Load a fine-tuned model of another library.

    Returns:
        The model; None if it has no head of a task.
    """
    model, _ = read_model(path, head=HeadOptions())
    return None if model.head is None else build(model)


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
    stored = {name: head.settings[name] for name in _ARGUMENTS if name in head.settings}
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


def _source(path: str) -> Mapping[str, Any]:
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    file = os.path.join(folder, _SOURCE)
    return read_json(file) if os.path.isfile(file) else {}
