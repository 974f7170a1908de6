"""A function of ids with all heads, which is converted once for all tests."""

import functools

import numpy as np
import tensorflow as tf
import tiny

from electra_tf.model.layer_ops import LayerOps
from electra_tf.serving.export_spec import IDS
from electra_tf.serving.inference_encoder import InferenceEncoder
from electra_tf.serving.signatures import token_signature
from electra_tf.serving.validate import max_difference
from electra_tf.tasks.answerer import QuestionAnswerer
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.tagger import TokenClassifier

LABELS = ("bad", "neither", "good")
SHAPES = [(1, 5), (3, 17), (1, 64), (3, 64), (0, 5), (1, 5)]


@functools.cache
def models():
    start, plain = tiny.start(), tiny.settings(model_joint_prediction=False)
    beam = tiny.settings(model_start_n_top=4)
    return {
        "classifier": TextClassifier(start, LABELS, tiny.settings(), seed=1),
        "regressor": TextRegressor(start, 1, 5, tiny.settings(), seed=2),
        "tagger": TokenClassifier(start, ("O", "B", "I"), tiny.settings(), seed=3),
        "beam": QuestionAnswerer(start, settings=beam, seed=4),
        "spans": QuestionAnswerer(start, settings=plain, seed=5),
    }


def head_outputs(encoder, inputs):
    """Return the outputs of all heads on an encoder."""
    x_BLD = encoder(**inputs)
    results = {"vectors": x_BLD}
    for name, model in models().items():
        outputs = model.head_outputs(x_BLD, inputs, LayerOps(training=False))
        if not isinstance(outputs, dict):
            outputs = {"logits": outputs}
        results |= {f"{name}_{key}": tensor for key, tensor in outputs.items()}
    logits_BC = results["logits"] = results["classifier_logits"]
    results["probabilities"] = tf.nn.softmax(logits_BC)
    results["label"] = tf.gather(tf.constant(LABELS), tf.argmax(logits_BC, -1))
    return results


@functools.cache
def function():
    model = models()["classifier"]
    encoder = InferenceEncoder(model.encoder)
    return token_signature(lambda inputs: head_outputs(encoder, inputs), model.shape)


def request(rows, length):
    """Return random ids. Every row is one position shorter than the previous one."""
    rng = np.random.default_rng([rows, length])
    shape = rows, length
    ids_BL = rng.integers(5, len(tiny.start().tokenizer.vocabulary), shape, np.int32)
    real_BL = np.arange(length) < length - np.arange(rows)[:, None]
    second_BL = real_BL & (np.arange(length) >= 2)
    arrays = ids_BL * real_BL, second_BL, real_BL
    return {name: ids.astype(np.int32) for name, ids in zip(IDS, arrays, strict=True)}


def keras_outputs(ids):
    """Return the outputs of `function`, computed by Keras, without strings."""
    encoder = functools.partial(models()["classifier"].encoder, training=False)
    arrays = {
        name: tensor.numpy() for name, tensor in head_outputs(encoder, ids).items()
    }
    return {name: array for name, array in arrays.items() if array.dtype != object}


def assert_equal(actual, expected):
    assert actual.keys() == expected.keys()
    for name, array in actual.items():
        other = expected[name]
        assert (array.dtype, array.shape) == (other.dtype, other.shape), name
        assert max_difference(array, other) <= 1e-5, name


def task_function(model):
    """Return the logits of a model as a function of ids."""
    encoder = InferenceEncoder(model.encoder)

    def logits(inputs):
        x_BLD = encoder(**inputs)
        return {"logits": model.head_outputs(x_BLD, inputs, LayerOps(training=False))}

    return token_signature(logits, model.shape)


def unsupported_function():
    """Return a function of ids with an operation that no other format has."""

    def logits(inputs):
        x_BL = tf.cast(inputs["token_ids"], tf.float32)
        return {"logits": tf.math.igamma(x_BL, x_BL)}

    return token_signature(logits, models()["classifier"].shape)
