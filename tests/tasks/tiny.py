"""A very small encoder, tasks it can learn, and what a training leaves."""

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
    """Depth 2, width 16, random weights."""
    vocabulary = Vocabulary.read(GOLDEN / "vocab.txt")
    shape = EncoderConfig(
        depth=2, width=16, embedding=8, heads=2, feed_forward=32,
        vocabulary_size=len(vocabulary), max_positions=max_positions, segments=2,
        dropout=0.1, attention_dropout=0.1,
    )  # fmt: skip
    tokenizer = Tokenizer(vocabulary, TokenizationConfig())
    return PretrainedEncoder(shape, tokenizer, None, "test")


def settings(**changes):
    """Short inputs and small batches; `training_epochs=2` sets `training.epochs`."""
    named = {
        "data.max_length": 48,
        "training.batch_size": 8,
        "training.epochs": 2,
        "optimizer.learning_rate": 1e-2,
        "optimizer.layer_decay": 1.0,
    }
    named |= {name.replace("_", ".", 1): value for name, value in changes.items()}
    return loader.load_config(overrides=named, root=FinetuningConfig)


NO_DROPOUT = {
    "model_dropout": 0.0,
    "model_attention_dropout": 0.0,
    "model_head_dropout": 0.0,
}


def texts(count=40, seed=0, longest=19, shortest=1):
    """Texts of unlike length, and whether they hold one word or another."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, count)
    made = []
    for label in labels:
        words = draw.choice(FILLERS, draw.integers(shortest, longest + 1)).tolist()
        words.insert(draw.integers(0, len(words) + 1), (BAD, GOOD)[label])
        made.append(" ".join(words))
    return made, labels.tolist()


def weights(model):
    return {v.path: v.numpy() for v in model.trainable_variables}


def slots(model):
    return [variable.numpy() for variable in model.optimizer.variables]


def assert_same_bits(model, other):
    mine, its = weights(model), weights(other)
    assert mine.keys() == its.keys()
    for path, values in mine.items():
        np.testing.assert_array_equal(values, its[path], path)


def distance(one, other):
    assert one.keys() == other.keys()
    return max(float(np.abs(one[path] - other[path]).max()) for path in one)


def compiled(model, steps=10):
    """With the published optimizer, built."""
    rule = create_optimizer(model.settings.optimizer, steps, model.shape.depth)
    model.compile(rule)
    model.optimizer.build(model.trainable_variables)
    return model


def tensors(batch):
    return tf.nest.map_structure(tf.convert_to_tensor, batch)
