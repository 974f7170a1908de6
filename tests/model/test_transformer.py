import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.model.layer_ops import LayerOps, gelu
from electra_tf.tasks.encoder import Encoder
from tests.tiny import (
    ENCODER_INPUTS,
    config,
    encoder_inputs,
    functional_model,
    symbolic_inputs,
)


def shape_of(**changes):
    return config(**{"depth": 2, **changes}).model.encoder


def build_encoder(**changes):
    encoder = Encoder(shape_of(**changes))
    encoder.build()
    return encoder


def compiled_model(encoder):
    model = functional_model(encoder)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.02), loss, jit_compile=False)
    return model


@pytest.fixture(scope="module")
def encoder():
    return build_encoder()


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return compiled_model(Encoder(shape_of(depth=1)))


def test_attentions_are_the_maps_of_the_hidden_states(encoder):
    """Each map is softmax(q k / sqrt(H)) of the state below its layer, by NumPy."""
    inputs = encoder_inputs((12, 9, 1, 5))
    outputs = encoder(inputs, output_hidden_states=True, output_attentions=True)
    states, maps = outputs["hidden_states"], outputs["attentions"]
    assert (len(states), len(maps)) == (3, 2)
    last_BLD = outputs["last_hidden_state"]
    np.testing.assert_array_equal(states[-1], last_BLD)
    np.testing.assert_array_equal(encoder(**inputs), last_BLD)
    real_BL = inputs["padding_mask"] == 1
    for block, x_BLD, map_BNLK in zip(encoder.blocks, states[:-1], maps, strict=True):
        queries_BNLH, keys_BNKH = (
            np.asarray(x_BLD @ dense.kernel + dense.bias)
            .reshape(4, 12, 2, 8)
            .transpose(0, 2, 1, 3)
            for dense in (block.attention.query, block.attention.key)
        )
        scores_BNLK = queries_BNLH @ keys_BNKH.transpose(0, 1, 3, 2) / 8**0.5
        weights_BNLK = np.exp(scores_BNLK) * real_BL[:, None, None]
        expected = weights_BNLK / weights_BNLK.sum(-1, keepdims=True)
        np.testing.assert_allclose(map_BNLK, expected, atol=1e-6)
        np.testing.assert_allclose(np.sum(map_BNLK, -1), 1, atol=1e-6)
        assert not np.moveaxis(map_BNLK, 3, 1)[~real_BL].any()  # padding as keys


@pytest.mark.parametrize("ops", [LayerOps, lambda: FusedLayerOps(None, on_cpu=True)])
@pytest.mark.parametrize("side", ["all", "left", "right"])
def test_cls_only_computes_the_first_vector_and_its_gradients(encoder, side, ops):
    inputs = encoder_inputs((12, 9, 1, 5))

    def first_and_gradients(**options):
        with tf.GradientTape() as tape:
            x_BLD = encoder(**inputs, layer_ops=ops(), attends_to=side, **options)
            loss = tf.reduce_sum(x_BLD[:, 0] ** 3)
        weights = [weight.value for weight in encoder.trainable_variables]
        gradients = map(tf.convert_to_tensor, tape.gradient(loss, weights))
        return x_BLD.shape[1], x_BLD[:, 0], *gradients

    length, *expected = first_and_gradients()
    one, *actual = first_and_gradients(cls_only=True)
    assert (length, one) == (12, 1)
    for value, reference in zip(actual, expected, strict=True):
        np.testing.assert_allclose(value, reference, rtol=1e-4, atol=1e-5)


def test_a_dictionary_is_taken_in_place_of_three_inputs(encoder, tmp_path):
    inputs = encoder_inputs((12, 9, 1, 5))
    np.testing.assert_array_equal(encoder(inputs), encoder(**inputs))
    symbols = symbolic_inputs()
    outputs = Encoder(shape_of())(symbols, output_hidden_states=True)
    model = keras.Model(symbols, outputs["hidden_states"])
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for states_BLD, expected_BLD in zip(again(inputs), model(inputs), strict=True):
        np.testing.assert_array_equal(states_BLD, expected_BLD)
    ids_BL = inputs["token_ids"]
    without = {name: inputs[name] for name in ENCODER_INPUTS[:2]}
    wrong = [(ids_BL,), (without,), (inputs, ids_BL), ({**inputs, "mask": ids_BL},)]
    for arguments in wrong:
        with pytest.raises(InputError, match=r"token_ids, segment_ids, padding_mask"):
            encoder(*arguments)


def test_gelu_is_exact():
    x = np.linspace(-6, 6, 241).astype(np.float32)
    expected = [value * 0.5 * (1 + math.erf(value / 2**0.5)) for value in x.tolist()]
    np.testing.assert_allclose(gelu(tf.constant(x)), expected, atol=2e-6)


def test_dropout_is_applied_where_the_original_does():
    encoder = build_encoder(dropout=0.1, attention_dropout=0.2, depth=3)
    sites = []

    class RecordingLayerOps(LayerOps):
        def dropout(self, x, dropout):
            sites.append((tuple(x.shape), dropout.rate))
            return x

    inputs = encoder_inputs((12, 9, 1, 5))
    recorded_BLD = encoder(**inputs, layer_ops=RecordingLayerOps())
    attention, hidden = ((4, 2, 12, 12), 0.2), ((4, 12, 16), 0.1)
    assert sites == [((4, 12, 8), 0.1), *[attention, hidden, hidden] * 3]
    np.testing.assert_array_equal(recorded_BLD, encoder(**inputs))


def test_fit_trains_the_encoder_in_a_functional_model(model):
    inputs = encoder_inputs([12] * 64)
    labels = (inputs["token_ids"][:, 0] > 24).astype(np.int32)
    model.fit(inputs, labels, epochs=12, batch_size=16, verbose=0)
    assert model.evaluate(inputs, labels, verbose=0) < math.log(2) / 2


def stored_bytes(encoder, inputs, make_ops):
    """Return the size of the values that the backward pass uses of the forward pass."""
    boundary = []

    @tf.function(autograph=False)
    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(encoder(inputs, layer_ops=make_ops()))
        boundary.append(loss.op)
        return tape.gradient(loss, [v.value for v in encoder.trainable_variables])

    operations = gradients.get_concrete_function().graph.get_operations()
    end = operations.index(boundary[0])
    forward, backward = operations[:end], operations[end + 1 :]
    produced = {output.ref() for op in forward for output in op.outputs if op.inputs}
    used = {value.ref() for op in backward for value in op.inputs} & produced
    tensors = [reference.deref() for reference in used]
    tensors = [t for t in tensors if t.dtype != tf.resource and t.op.type not in READS]
    return sum(t.shape.num_elements() * t.dtype.size for t in tensors)


READS = {"ReadVariableOp", "Identity"}


def keras_ops():
    return LayerOps(training=True)


def fused_ops():
    return FusedLayerOps(make_rng(0, TRAINING, 0).dropout(), on_cpu=True)


EACH_OPS = pytest.mark.parametrize("make_ops", [keras_ops, fused_ops])


@EACH_OPS
def test_remat_gives_equal_gradients(make_ops):
    encoder = build_encoder(dropout=0.2, attention_dropout=0.3, depth=3)
    drops = [encoder.embeddings.dropout]
    drops += [drop for block in encoder.blocks for drop in block.dropouts]
    states = [drop.seed_generator.state for drop in drops]
    before, results = [state.numpy() for state in states], []
    for remat in (False, True, False):
        encoder.remat = remat
        with tf.GradientTape() as tape:
            x_BLD = encoder(encoder_inputs([12, 9]), layer_ops=make_ops())
            loss = tf.reduce_sum(x_BLD * tf.range(16.0))
        gradients = tape.gradient(loss, [v.value for v in encoder.trainable_variables])
        after = [state.numpy() for state in states]
        results.append([x_BLD, *map(tf.convert_to_tensor, gradients), *after])
        if len(results) == 1:
            for state, value in zip(states, before, strict=True):
                state.assign(value)
    for plain, recomputed in zip(*results[:2], strict=True):
        np.testing.assert_array_equal(plain, recomputed)
    is_same = np.array_equal(results[0][0], results[2][0])
    assert is_same == (make_ops is fused_ops)  # Keras's next call has other dropout


@EACH_OPS
def test_remat_stores_the_inputs_of_layers_alone(make_ops):
    shape, inputs = shape_of(depth=3, dropout=0.1), encoder_inputs([12] * 4)
    sizes = []
    for remat in (False, True):
        encoder = Encoder(shape, remat=remat)
        encoder.build()
        sizes.append(stored_bytes(encoder, inputs, make_ops))
    states = 4 * 12 * 16 * 4  # bytes of the input of a layer; four, masks and ids
    assert sizes[1] <= 6 * states < sizes[0] / 3
