"""One function of ids with all heads there are, to be converted once for all."""

import functools

import numpy as np
import tensorflow as tf
from tasks import tiny

from electra_tf.model.layer_ops import LayerOps
from electra_tf.serving.export_spec import IDS
from electra_tf.serving.inference_encoder import InferenceEncoder
from electra_tf.serving.signatures import token_signature
from electra_tf.serving.validate import difference
from electra_tf.tasks.classification.model import TextClassifier, TextRegressor
from electra_tf.tasks.squad.model import QuestionAnswerer
from electra_tf.tasks.tagging.model import TokenClassifier

LABELS = ("bad", "neither", "good")
SHAPES = [(1, 5), (3, 17), (1, 64), (3, 64), (0, 5), (1, 5)]


@functools.cache
def models():
    start, plain = tiny.start(), tiny.settings(model_joint=False)
    beam = tiny.settings(model_start_n_top=4)
    return {
        "classifier": TextClassifier(start, LABELS, tiny.settings(), seed=1),
        "regressor": TextRegressor(start, 1, 5, tiny.settings(), seed=2),
        "tagger": TokenClassifier(start, ("O", "B", "I"), tiny.settings(), seed=3),
        "beam": QuestionAnswerer(start, settings=beam, seed=4),
        "ends": QuestionAnswerer(start, settings=plain, seed=5),
    }


def said(encoder, inputs):
    """All heads on an encoder's vectors."""
    x_BLD = encoder(**inputs)
    found = {"vectors": x_BLD}
    for name, model in models().items():
        outputs = model.head_outputs(x_BLD, inputs, LayerOps(training=False))
        if not isinstance(outputs, dict):
            outputs = {"logits": outputs}
        found |= {f"{name}_{part}": of for part, of in outputs.items()}
    logits_BC = found["logits"] = found["classifier_logits"]
    found["probabilities"] = tf.nn.softmax(logits_BC)
    found["label"] = tf.gather(tf.constant(LABELS), tf.argmax(logits_BC, -1))
    return found


@functools.cache
def function():
    model = models()["classifier"]
    encoder = InferenceEncoder(model.encoder)
    return token_signature(lambda inputs: said(encoder, inputs), model.shape)


def request(rows, length):
    """Random ids; every row is shorter than the one before it."""
    draw = np.random.default_rng([rows, length])
    shape = rows, length
    ids_BL = draw.integers(5, len(tiny.start().tokenizer.vocabulary), shape, np.int32)
    real_BL = np.arange(length) < length - np.arange(rows)[:, None]
    second_BL = real_BL & (np.arange(length) >= 2)
    arrays = ids_BL * real_BL, second_BL, real_BL
    return {name: of.astype(np.int32) for name, of in zip(IDS, arrays, strict=True)}


def by_keras(ids):
    """The numbers of `function`, and no strings."""
    by_layers = functools.partial(models()["classifier"].encoder, training=False)
    found = {name: of.numpy() for name, of in said(by_layers, ids).items()}
    return {name: of for name, of in found.items() if of.dtype != object}


def assert_equal(answer, right):
    assert answer.keys() == right.keys()
    for name, of in answer.items():
        assert (of.dtype, of.shape) == (right[name].dtype, right[name].shape), name
        assert difference(of, right[name]) <= 1e-5, name


def of_one_task(model):
    """What a model's own head says, as a function of ids."""

    encoder = InferenceEncoder(model.encoder)

    def logits(inputs):
        x_BLD = encoder(**inputs)
        return {"logits": model.head_outputs(x_BLD, inputs, LayerOps(training=False))}

    return token_signature(logits, model.shape)


def out_of_reach():
    """A function of ids with an operation that no other format has."""

    def logits(inputs):
        x_BL = tf.cast(inputs["token_ids"], tf.float32)
        return {"logits": tf.math.igamma(x_BL, x_BL)}

    return token_signature(logits, models()["classifier"].shape)
