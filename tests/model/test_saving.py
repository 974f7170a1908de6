"""Layers in Keras models that are saved, loaded, cloned and shared."""

import json

import keras
import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.encoder import Encoder
from electra_tf.tasks.pretrained_heads import Electra, MaskedLanguageModel
from tests.tiny import (
    ENCODER_INPUTS,
    config,
    encoder_inputs,
    functional_model,
    symbolic_inputs,
)

SETTINGS = config(depth=2).model
SHAPE = SETTINGS.encoder
INPUTS = encoder_inputs((5, 12, 9))


@pytest.mark.parametrize("dtype", [None, "mixed_bfloat16", "float16"])
def test_a_loaded_functional_model_equals_the_saved_one(dtype, tmp_path):
    model = functional_model(Encoder(SHAPE, 3, dtype=dtype, name="mine"))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(INPUTS), model(INPUTS))
    encoder, other = model.get_layer("mine"), again.get_layer("mine")
    assert other.dtype_policy.name == encoder.dtype_policy.name
    assert other.blocks[0].intermediate.dtype_policy.name == (dtype or "float32")
    assert (other.shape, other.seed) == (SHAPE, 3)


def test_a_shared_layer_is_shared_after_loading(tmp_path):
    encoder = Encoder(SHAPE)
    first, second = symbolic_inputs("a_"), symbolic_inputs("b_")
    states = [
        encoder(**{name: symbolic[name] for name in ENCODER_INPUTS})[:, 0]
        for symbolic in (first, second)
    ]
    all_inputs = {v.name: v for part in (first, second) for v in part.values()}
    model = keras.Model(all_inputs, keras.layers.Dot(axes=1)(states))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert len(again.weights) == len(model.weights) == len(encoder.weights)
    arrays = {"a_" + n: v for n, v in INPUTS.items()}
    arrays |= {"b_" + n: v for n, v in encoder_inputs((5, 12, 9), seed=1).items()}
    np.testing.assert_array_equal(again(arrays), model(arrays))


def test_get_config_of_an_encoder_with_shared_tables_is_an_error():
    model = Electra(SETTINGS)
    with pytest.raises(InputError, match=r"'encoder'.*another"):
        model.generator.encoder.get_config()
    assert model.discriminator.encoder.get_config()["seed"] == 0


LAYERS = [
    Encoder(SHAPE, 4, dtype="mixed_bfloat16"),
    MaskedLanguageModel(Encoder(SHAPE), 7, "bert", "mixed_bfloat16"),
    Electra(SETTINGS, 3, False, "mixed_bfloat16"),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_a_layer_is_restored_from_json(layer):
    stored = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    assert stored["registered_name"] == f"electra_tf>{type(layer).__name__}"
    again = keras.saving.deserialize_keras_object(stored)
    assert again.get_config() == layer.get_config()
    layer.build()
    again.build()
    assert len(layer.weights) == len(again.weights) > 0
    for one, other in zip(layer.weights, again.weights, strict=True):
        assert one.path == other.path
        np.testing.assert_array_equal(one, other)
    policies = [
        [sublayer.dtype_policy.name for sublayer in outer._flatten_layers()]
        for outer in (layer, again)
    ]
    assert policies[0] == policies[1]
