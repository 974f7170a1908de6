"""What is served is the Keras encoder, number for number, in fewer operations."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.pretraining import EncoderConfig
from electra_tf.model.transformer import Embeddings, Encoder, InitializerFactory
from electra_tf.serving.inference_encoder import InferenceEncoder

IDS = ("token_ids", "segment_ids", "padding_mask")


def made(embedding=8, depth=2, **arguments):
    """A small encoder whose biases and norms are not as new ones are, 0 and 1."""
    shape = EncoderConfig(
        depth=depth, width=16, embedding=embedding, heads=2, feed_forward=32,
        vocabulary_size=50, max_positions=24, segments=2,
        dropout=0.1, attention_dropout=0.1, initializer_range=0.2,
    )  # fmt: skip
    encoder, draw = Encoder(shape, **arguments), np.random.default_rng(0)
    encoder.build()
    for weight in encoder.weights:
        weight.assign(weight + 0.2 * draw.normal(size=weight.shape))
    return encoder


def batch(rows, length, seed=0):
    """Ids, half of them of the second segment, and rows of unlike length."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(0, 50, (rows, length))
    lengths = draw.integers(1, length + 1, (rows, 1))
    mask = np.arange(length) < lengths
    segments = (np.arange(length) > lengths // 2) & mask
    return [array.astype(np.int32) for array in (ids, segments, mask)]


ORDERS = {
    "rows": lambda network: network.__call__,
    "onednn_graph": lambda network: functools.partial(network, onednn_graph=True),
    "transposed": lambda network: network.call_transposed,
}
in_all_orders = pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)


def graph(network, order=ORDERS["rows"]):
    spec = [tf.TensorSpec([None, None], tf.int32, name=name) for name in IDS]
    return tf.function(order(network), input_signature=spec)


@pytest.mark.parametrize("embedding", [8, 16], ids=["projected", "as wide"])
@pytest.mark.parametrize("depth", [1, 3])
@in_all_orders
def test_it_says_what_the_encoder_says(embedding, depth, order):
    encoder = made(embedding, depth)
    assert (encoder.embeddings_project is None) == (embedding == 16)
    network = graph(InferenceEncoder(encoder), order)
    for rows, length, full in (1, 1, 0), (1, 16, 0), (3, 24, 0), (3, 24, 1), (8, 5, 0):
        *inputs, mask = batch(rows, length)
        inputs.append(np.maximum(mask, full))
        expected = encoder(*inputs, training=False)
        found = network(*inputs)
        assert (found.shape, found.dtype) == ((rows, length, 16), tf.float32)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@in_all_orders
def test_each_part_of_the_encoder_is_heard(order):
    # Or a bias that is 0 in the test might be left out.
    encoder, inputs = made(depth=1), batch(3, 7)
    before = order(InferenceEncoder(encoder))(*inputs).numpy()
    for weight in encoder.weights:
        value = weight.numpy()
        # A constant on all keys moves no softmax, so one place is moved; so would the
        # key's bias, as the same for each key.
        weight.assign(value + np.where(np.arange(value.shape[-1]) == 3, 0.5, 0))
        after = order(InferenceEncoder(encoder))(*inputs).numpy()
        np.testing.assert_allclose(after, encoder(*inputs, training=False), atol=1e-5)
        moved = np.abs(after - before).max()
        assert moved > 1e-3 or "key/bias" in weight.path, weight.path
        weight.assign(value)


@in_all_orders
def test_no_rows_are_a_batch_too(order):
    network = graph(InferenceEncoder(made()), order)
    assert network(*(np.zeros((0, 4), np.int32) for _ in IDS)).shape == (0, 4, 16)


@in_all_orders
def test_padding_changes_no_row(order):
    network = graph(InferenceEncoder(made()), order)
    short = batch(4, 9)
    # A key at -10000 is not quite nothing beside a score of ordinary size: exp is 0.
    long = [np.pad(array, [(0, 0), (0, 11)]) for array in short]
    np.testing.assert_allclose(network(*long)[:, :9], network(*short), atol=1e-5)


def test_weights_are_held_once_and_shared_tables_stay_shared():
    encoder = made()
    network = InferenceEncoder(encoder)
    count = sum(int(np.prod(variable.shape)) for variable in network.variables)
    assert count == encoder.count_params()
    shape = encoder.shape
    tables = Embeddings(shape, InitializerFactory(0))
    tables.build()
    towers = [Encoder(shape, seed, embeddings=tables) for seed in (1, 2)]
    both = tf.Module()
    both.networks = []
    for tower in towers:
        tower.build()
        both.networks.append(InferenceEncoder(tower))
    table = tables.word_embeddings.value
    assert sum(variable is table for variable in both.variables) == 1


def test_a_training_in_bfloat16_is_served_in_float32():
    encoder, inputs = made(dtype="mixed_bfloat16"), batch(2, 9)
    exact = made()
    for weight, other in zip(exact.weights, encoder.weights, strict=True):
        weight.assign(other)
    found = InferenceEncoder(encoder)(*inputs)
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, exact(*inputs, training=False), atol=1e-5)


@in_all_orders
def test_products_and_what_follows_them_are_few_operations(order):
    # What the speed rests on: one product for query, key and value, and few variables.
    function = graph(InferenceEncoder(made(depth=3)), order).get_concrete_function()
    operations = [node.op for node in function.graph.as_graph_def().node]
    products = [operations.count(name) for name in ("MatMul", "BatchMatMulV2")]
    in_columns = order is ORDERS["transposed"]
    assert products == ([1, 6 * 3] if in_columns else [1 + 4 * 3, 2 * 3])
    assert operations.count("ReadVariableOp") + operations.count("ResourceGather") == (
        3 + 2 + 2 + 4 + 1 + 1
    )


def test_each_norm_has_a_gamma_that_the_optimizer_finds():
    # Where it joins a norm's operations it takes the first output of gamma's own.
    network = graph(InferenceEncoder(made(depth=3)), ORDERS["onednn_graph"])
    operations = network.get_concrete_function().graph.get_operations()
    norms = [op for op in operations if op.type == "FusedBatchNormV3"]
    assert len(norms) == 1 + 2 * 3
    for norm in norms:
        (reshaped,) = norm.outputs[0].consumers()
        (scaled,) = reshaped.outputs[0].consumers()
        gamma = scaled.inputs[1].op
        assert (scaled.type, len(gamma.outputs)) == ("Mul", 1)
