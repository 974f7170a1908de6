"""InferenceEncoder, compared with the Keras encoder."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.model import EncoderConfig
from electra_tf.model.encoder import TransformerEncoder
from electra_tf.serving.export_options import IDS
from electra_tf.serving.inference_encoder import InferenceEncoder


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


FORMS = {
    "rows": lambda inference: inference.__call__,
    "onednn_graph": lambda inference: functools.partial(inference, onednn_graph=True),
    "transposed": lambda inference: inference.call_transposed,
}
in_all_forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def graph(inference, form=FORMS["rows"]):
    spec = [tf.TensorSpec([None, None], tf.int32, name=name) for name in IDS]
    return tf.function(form(inference), input_signature=spec)


@pytest.mark.parametrize(
    ("embedding", "depth"), [(8, 3), (16, 1)], ids=["projected", "not projected"]
)
@in_all_forms
def test_outputs_equal_the_keras_encoders(embedding, depth, form):
    encoder = small_encoder(embedding, depth)
    assert (encoder.embeddings_project is None) == (embedding == 16)
    inference = graph(InferenceEncoder(encoder), form)
    for rows, length, full in (1, 1, 0), (3, 24, 0), (3, 24, 1), (8, 5, 0), (0, 4, 0):
        *inputs, mask = batch(rows, length)
        inputs.append(np.maximum(mask, full))
        expected = encoder(*inputs, training=False)
        states_BLD = inference(*inputs)
        assert states_BLD.shape == (rows, length, 16)
        assert states_BLD.dtype == tf.float32
        np.testing.assert_allclose(states_BLD, expected, atol=1e-5)


@in_all_forms
def test_graph_has_few_matmuls_and_variable_reads(form):
    # One matmul for query, key and value, and stacked weights.
    function = graph(
        InferenceEncoder(small_encoder(depth=3)), form
    ).get_concrete_function()
    operations = [node.op for node in function.graph.as_graph_def().node]
    matmuls = [operations.count(name) for name in ("MatMul", "BatchMatMulV2")]
    transposed = form is FORMS["transposed"]
    assert matmuls == ([1, 6 * 3] if transposed else [1 + 4 * 3, 2 * 3])
    assert operations.count("ReadVariableOp") + operations.count("ResourceGather") == (
        3 + 2 + 2 + 4 + 1 + 1
    )


def test_gamma_is_the_only_output_of_its_operation():
    # TensorFlow's optimizer takes the first output of gamma's operation.
    inference = graph(InferenceEncoder(small_encoder(depth=3)), FORMS["onednn_graph"])
    operations = inference.get_concrete_function().graph.get_operations()
    norms = [op for op in operations if op.type == "FusedBatchNormV3"]
    assert len(norms) == 1 + 2 * 3
    for norm in norms:
        (reshaped,) = norm.outputs[0].consumers()
        (scaled,) = reshaped.outputs[0].consumers()
        gamma = scaled.inputs[1].op
        assert (scaled.type, len(gamma.outputs)) == ("Mul", 1)
