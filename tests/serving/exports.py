"""A small model of each kind with its export."""

import functools
import os

import numpy as np
import tensorflow as tf

from electra_tf.serving.export import ASSETS_EXTRA, max_difference, write_metadata
from electra_tf.serving.served_tasks import task_export
from electra_tf.tasks.choice_classifier import ChoiceClassifier
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.question_answerer import QuestionAnswerer
from electra_tf.tasks.token_classifier import TokenClassifier
from tests import tiny

LABELS = ("bad", "good", "neither")


def settings(**changes):
    return tiny.settings(
        data_max_length=32,
        data_max_query_length=8,
        data_doc_stride=8,
        model_start_n_top=4,
        **changes,
    )


LAYERS = tiny.start(depth=2)
MODELS = {
    "classifier": lambda: TextClassifier(LAYERS, LABELS, settings()),
    "pairs": lambda: TextClassifier(
        tiny.start(),
        LABELS,
        settings(data_text_columns=("Subject", "body")),
        pairs=True,
    ),
    "multi_label": lambda: TextClassifier(
        tiny.start(), LABELS, settings(), multi_label=True
    ),
    "choices": lambda: ChoiceClassifier(
        tiny.start(),
        2,
        settings(data_text_columns=("start",), data_choice_columns=("a", "b")),
    ),
    "pooled_pairs": lambda: TextClassifier(
        tiny.start(), LABELS, settings(model_pooling="pair"), pairs=True
    ),
    "regressor": lambda: TextRegressor(  # its embeddings are not projected
        tiny.start(embedding=16),
        1,
        5,
        settings(model_pooling="mean", model_pooler="gelu"),
    ),
    # `predict` and texts have other tags than the learned ones, which ids have.
    "tagger": lambda: TokenClassifier(
        LAYERS, ("B-X", "I-X", "O"), settings(), scheme="IOB1"
    ),
    "answerer": lambda: QuestionAnswerer(LAYERS, 0.0, settings()),
    "separate_spans": lambda: QuestionAnswerer(
        tiny.start(),
        None,
        settings(model_joint_prediction=False, model_answerable=False),
    ),
}


def with_noise(model):
    """Return a model whose biases and norms are not their initial 0 and 1."""
    random = np.random.default_rng(0)
    for weight in (*model.encoder.weights, *model.head.weights):
        weight.assign(weight + 0.1 * random.normal(size=weight.shape))
    return model


@functools.cache
def model(kind):
    return with_noise(MODELS[kind]())


@functools.cache
def exported(kind):
    return task_export(model(kind))


def write_version(served, folder):
    """Write a SavedModel with its metadata, without the checks of an export."""
    tf.saved_model.save(served.module, str(folder), served.signatures())
    write_metadata(served, os.path.join(folder, ASSETS_EXTRA))


def call(function, request):
    outputs = function(*map(tf.constant, request.values()))
    return {name: tensor.numpy() for name, tensor in outputs.items()}


TEXTS = (
    "A film to remember, and one I would see again tomorrow.",
    "The service was slow; the soup cold, the waiter rude!",
    "The [MASK] sat on the [MASK].",
    "Café crème à Zürich: ΟΔΥΣΣΕΥΣ, Ёлка, ﬁnancial ½ №5",
    "这家酒店的服务非常好,房间也很干净。",
    "un-be-liev-able 🙂🙃 e\u0301 \u200d \u00ad [MASK] [SEP] ##ing",
    "tab\there, new\nline, nul\x00, no\u00a0break, wide\u3000space",
    "",
    " ".join(f"word{number} of a text that is far too long" for number in range(90)),
)


def rows_of(served):
    """Return `TEXTS` as rows of the inputs of a model."""
    others = (*TEXTS[1:], TEXTS[0])
    if "question" in served.inputs and "context" in served.inputs:
        return [("Where was it?", text or "No text.") for text in TEXTS]
    columns = [
        [*zip(TEXTS, others, strict=True)] if axes == 2 else texts
        for axes, texts in zip(
            served.inputs.values(), [TEXTS, TEXTS[::-1], TEXTS], strict=False
        )
    ]
    return columns[0] if len(columns) == 1 else [*zip(*columns, strict=True)]


def assert_equals_keras(served):
    """Assert that the outputs of all signatures are those of Keras."""
    rows = rows_of(served)
    for name, function in served.signatures().items():
        if not function.input_signature:
            assert call(function, {}).keys() == {name}
            continue
        for request, expected in (served.case(function), served.case(function, rows)):
            outputs = call(function, request)
            sizes = {len(array) for array in (*outputs.values(), *request.values())}
            assert len(sizes) == 1
            assert name == "entities" or expected.keys() & outputs.keys()
            for output in expected.keys() & outputs.keys():
                assert max_difference(outputs[output], expected[output]) < 1e-5, output
        nothing = {
            of.name: np.zeros([0] * of.shape.rank, of.dtype.as_numpy_dtype)
            for of in function.input_signature
        }
        assert {len(array) for array in call(function, nothing).values()} == {0}


def graph_operations(function):
    """Return names and types of the operations of a function and those it calls."""
    graph = function.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    return [(node.name, node.op) for node in nodes]
