"""A very small encoder, simple tasks, and weights of trained models."""

import functools

import numpy as np
import tensorflow as tf
from conftest import GOLDEN

from electra_tf.config import loader
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.pretraining import EncoderConfig, TokenizationConfig
from electra_tf.tasks.pretrained import PretrainedEncoder
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary
from electra_tf.training.optimizer import create_optimizer

# Whole words of the golden vocabulary.
GOOD, BAD = "the", "of"
FILLERS = ("in", "and", "to", "for", "with", "on")


@functools.cache
def start(max_positions=64):
    """Return an encoder of depth 2 and width 16, without weights."""
    vocabulary = Vocabulary.read(GOLDEN / "vocab.txt")
    shape = EncoderConfig(
        depth=2, width=16, embedding=8, heads=2, feed_forward=32,
        vocabulary_size=len(vocabulary), max_positions=max_positions, segments=2,
        dropout=0.1, attention_dropout=0.1,
    )  # fmt: skip
    tokenizer = Tokenizer(vocabulary, TokenizationConfig())
    return PretrainedEncoder(shape, tokenizer, None, "test")


def settings(**changes):
    """Return settings; `training_epochs=2` sets `training.epochs`."""
    overrides = {
        "data.max_length": 48,
        "training.batch_size": 8,
        "training.epochs": 2,
        "optimizer.learning_rate": 1e-2,
        "optimizer.layer_decay": 1.0,
    }
    overrides |= {name.replace("_", ".", 1): value for name, value in changes.items()}
    return loader.load_config(overrides=overrides, root=FinetuningConfig)


NO_DROPOUT = {
    "model_dropout": 0.0,
    "model_attention_dropout": 0.0,
    "model_head_dropout": 0.0,
}


def texts(count=40, seed=0, longest=19, shortest=1):
    """Return texts of various lengths, and a label that depends on one of two words."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    rows = []
    for label in labels:
        words = rng.choice(FILLERS, rng.integers(shortest, longest + 1)).tolist()
        words.insert(rng.integers(0, len(words) + 1), (BAD, GOOD)[label])
        rows.append(" ".join(words))
    return rows, labels.tolist()


def weights(model):
    return {v.path: v.numpy() for v in model.trainable_variables}


def slots(model):
    return [variable.numpy() for variable in model.optimizer.variables]


def assert_same_bits(model, other):
    first, second = weights(model), weights(other)
    assert first.keys() == second.keys()
    for path, values in first.items():
        np.testing.assert_array_equal(values, second[path], path)


def distance(one, other):
    assert one.keys() == other.keys()
    return max(float(np.abs(one[path] - other[path]).max()) for path in one)


def compiled(model, steps=10):
    """Compile with the published optimizer, and build it."""
    settings, depth = model.settings.optimizer, model.shape.depth
    model.compile(create_optimizer(settings, steps, depth))
    model.optimizer.build(model.trainable_variables)
    return model


def tensors(batch):
    return tf.nest.map_structure(tf.convert_to_tensor, batch)
