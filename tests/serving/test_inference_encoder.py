"""InferenceEncoder, compared with the Keras encoder."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.model import EncoderConfig
from electra_tf.model.encoder import TransformerEncoder
from electra_tf.serving.export_options import IDS
from electra_tf.serving.inference_encoder import Columns, InferenceEncoder, Rows


def small_encoder(embedding=8, depth=2):
    """Return an encoder whose biases and norms are not their initial 0 and 1."""
    shape = EncoderConfig(
        depth=depth, width=16, embedding=embedding, heads=2, feed_forward=32,
        vocabulary_size=50, max_positions=24, segments=2,
        dropout=0.1, attention_dropout=0.1, initializer_range=0.2,
    )  # fmt: skip
    encoder, random = TransformerEncoder(shape), np.random.default_rng(0)
    encoder.build()
    for weight in encoder.weights:
        weight.assign(weight + 0.2 * random.normal(size=weight.shape))
    return encoder


def batch(rows, length, seed=0):
    """Return ids, half of them of the second segment, in rows of different lengths."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, 50, (rows, length))
    lengths = random.integers(1, length + 1, (rows, 1))
    mask = np.arange(length) < lengths
    segments = (np.arange(length) > lengths // 2) & mask
    return [array.astype(np.int32) for array in (ids, segments, mask)]


in_both_layouts = pytest.mark.parametrize("layout", [Rows, Columns])


def graph(inference, layout):
    spec = [tf.TensorSpec([None, None], tf.int32, name=name) for name in IDS]
    form = functools.partial(inference, layout=layout)
    return tf.function(form, input_signature=spec)


@pytest.mark.parametrize(
    ("embedding", "depth"), [(8, 3), (16, 1)], ids=["projected", "not projected"]
)
@in_both_layouts
def test_outputs_equal_the_keras_encoders(embedding, depth, layout):
    encoder = small_encoder(embedding, depth)
    assert (encoder.embeddings_project is None) == (embedding == 16)
    inference = graph(InferenceEncoder(encoder), layout)
    for rows, length, full in (1, 1, 0), (3, 24, 0), (3, 24, 1), (8, 5, 0), (0, 4, 0):
        *inputs, mask = batch(rows, length)
        inputs.append(np.maximum(mask, full))
        expected = encoder(*inputs, training=False)
        states_BLD = inference(*inputs)
        assert states_BLD.shape == (rows, length, 16)
        assert states_BLD.dtype == tf.float32
        np.testing.assert_allclose(states_BLD, expected, atol=1e-5)
