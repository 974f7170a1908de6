import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.pretraining import ModelConfig
from electra_tf.model.layer_ops import LayerOps
from electra_tf.model.transformer import Encoder, InitializerFactory

TINY = {
    "depth": 2,
    "width": 16,
    "embedding": 8,
    "heads": 2,
    "vocabulary_size": 50,
    "max_positions": 24,
}
INPUTS = ("token_ids", "segment_ids", "padding_mask")


def shape_of(**changes):
    return ModelConfig(**{**TINY, **changes}).encoder


def built(seed=0, dtype=None, **changes):
    encoder = Encoder(shape_of(**changes), seed, dtype=dtype)
    encoder.build()
    return encoder


def by_path(layer):
    return {v.path: v for v in layer.trainable_variables}


def text(lengths=(12, 9, 1, 5), length=12, seed=0):
    random = np.random.default_rng(seed)
    mask_BL = (np.arange(length) < np.array(lengths)[:, None]).astype(np.int32)
    return {
        "token_ids": random.integers(1, 50, mask_BL.shape).astype(np.int32) * mask_BL,
        "segment_ids": random.integers(0, 2, mask_BL.shape).astype(np.int32) * mask_BL,
        "padding_mask": mask_BL,
    }


def users_model(dtype=None, **changes):
    """What somebody builds around the encoder, for texts of any length."""
    given = {name: keras.Input((None,), dtype="int32", name=name) for name in INPUTS}
    states_BLD = Encoder(shape_of(depth=1, **changes), dtype=dtype)(**given)
    logits = keras.layers.Dense(2, dtype="float32")(states_BLD[:, 0])
    model = keras.Model(given, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.02), loss, jit_compile=False)
    return model


@pytest.fixture(scope="module")
def encoder():
    return built()


@pytest.fixture(scope="module")
def users():
    keras.utils.set_random_seed(0)
    return users_model()


def test_initial_values_are_the_originals():
    encoder = built(width=256, embedding=128, depth=1, vocabulary_size=2000)
    drawn = 0
    for path, variable in by_path(encoder).items():
        values = variable.numpy()
        if path.endswith(("bias", "beta")):
            assert not values.any(), path
        elif path.endswith("gamma"):
            assert (values == 1).all(), path
        elif path.endswith("embeddings_project/kernel"):
            # Glorot-uniform of 128 x 256.
            assert 0.1249 < np.abs(values).max() <= 0.125
            assert abs(values.std() - 0.125 / 3**0.5) < 1e-3
        else:
            # 0.02, cut at two standard deviations: 0.0176 remain.
            assert np.abs(values).max() <= 0.04, path
            error = 0.0176 / (2 * values.size) ** 0.5
            assert abs(values.std() - 0.0176) < 5 * error + 1e-4, path
            assert abs(values.mean()) < 5 * 0.0176 / values.size**0.5, path
            drawn += 1
    assert drawn == 3 + 6


def test_initial_values_follow_the_seed_and_nothing_else(encoder):
    expected = by_path(encoder)
    longer, again, other = built(depth=3), built(), built(seed=1)
    assert set(by_path(longer)) > set(expected)
    for path, variable in expected.items():
        np.testing.assert_array_equal(by_path(again)[path], variable)
        np.testing.assert_array_equal(by_path(longer)[path], variable)
        if path.endswith(("kernel", "embeddings")):
            same = variable.numpy() == by_path(other)[path].numpy()
            assert same.mean() < 0.01, path


def test_no_two_initialisers_have_one_seed():
    seeds = [InitializerFactory(seed) for seed in range(50)]
    initialisers = [
        one.normal() if i % 2 else one.glorot() for i in range(100) for one in seeds
    ]
    drawn = [initialiser.get_config()["seed"] for initialiser in initialisers]
    assert len(set(drawn)) == len(drawn)
    assert all(0 <= seed < 2**31 for seed in drawn)


def test_every_norm_has_berts_epsilon(encoder):
    norms = [
        layer
        for layer in encoder._flatten_layers()
        if isinstance(layer, keras.layers.LayerNormalization)
    ]
    assert len(norms) == 1 + 2 * 2
    assert {norm.epsilon for norm in norms} == {1e-12}


def test_what_stands_in_the_padding_does_not_matter(encoder):
    given = text()
    real_BL = given["padding_mask"] == 1
    junk = {
        "token_ids": np.where(real_BL, given["token_ids"], 33),
        "segment_ids": np.where(real_BL, given["segment_ids"], 1),
        "padding_mask": given["padding_mask"],
    }
    states_BLD, others_BLD = encoder(**given).numpy(), encoder(**junk).numpy()
    np.testing.assert_allclose(states_BLD[real_BL], others_BLD[real_BL], atol=1e-6)
    assert np.abs(states_BLD - others_BLD)[~real_BL].max() > 0.01
    wide = {name: np.pad(values, [(0, 0), (0, 6)]) for name, values in given.items()}
    wide_BLD = encoder(**wide).numpy()[:, :12]
    np.testing.assert_allclose(wide_BLD[real_BL], states_BLD[real_BL], atol=1e-6)


def test_rows_know_nothing_of_each_other(encoder):
    given, order = text(), [2, 0, 3, 1]
    states_BLD = encoder(**given).numpy()
    moved = encoder(**{name: values[order] for name, values in given.items()}).numpy()
    np.testing.assert_allclose(moved, states_BLD[order], atol=1e-6)
    for row in range(4):
        alone = encoder(**{name: x[row : row + 1] for name, x in given.items()})
        np.testing.assert_allclose(alone[0], states_BLD[row], atol=1e-6)


def test_every_real_position_is_seen_by_all_and_has_its_place(encoder):
    given = text(lengths=(12,))
    states_BLD = encoder(**given).numpy()
    for name, position in (("token_ids", 11), ("segment_ids", 0), ("token_ids", 4)):
        changed = given[name].copy()
        changed[0, position] = (changed[0, position] + 1) % 2
        moved = encoder(**{**given, name: changed}).numpy() - states_BLD
        assert (np.abs(moved).max(-1) > 1e-5).all()
    swapped = dict(given, token_ids=given["token_ids"][:, ::-1].copy())
    back_BLD = encoder(**swapped).numpy()[:, ::-1]
    assert np.abs(back_BLD - states_BLD).max() > 0.01


def test_an_empty_row_has_finite_states(encoder):
    assert np.isfinite(encoder(**text(lengths=(0, 3)))).all()


def test_a_tower_has_the_originals_dropout_sites():
    encoder = built(dropout=0.1, attention_dropout=0.2, depth=3)
    sites = []

    class Recorded(LayerOps):
        def dropout(self, x, dropout):
            sites.append((tuple(x.shape), dropout.rate))
            return x

    given = text()
    recorded_BLD = encoder(**given, layer_ops=Recorded())
    attention, hidden = ((4, 2, 12, 12), 0.2), ((4, 12, 16), 0.1)
    assert sites == [((4, 12, 8), 0.1), *[attention, hidden, hidden] * 3]
    np.testing.assert_array_equal(recorded_BLD, encoder(**given))


def test_what_chains_drop_is_dropped():
    encoder = built(depth=1)

    class NothingLeft(LayerOps):
        def dropout(self, x, dropout):
            return 0 * x

    # Nothing of the embeddings, of attention, of the inner layer: the norms' shifts.
    states_BLD = encoder(**text(), layer_ops=NothingLeft()).numpy()
    np.testing.assert_allclose(states_BLD, 0, atol=1e-3)


def test_the_encoder_is_an_ordinary_layer_that_fit_trains(users):
    given = text(lengths=[12] * 64)
    labels = (given["token_ids"][:, 0] > 24).astype(np.int32)
    users.fit(given, labels, epochs=12, batch_size=16, verbose=0)
    assert users.evaluate(given, labels, verbose=0) < math.log(2) / 2


def test_kerass_own_dropout_works_in_training_alone(users):
    given = text()
    first, second = (users(given, training=True).numpy() for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    one, other = (users(given).numpy() for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert np.abs(first - one).max() > 1e-3


def test_one_graph_reads_texts_of_any_length(users):
    for length in (5, 12, 24):
        given = text(lengths=(length, 3), length=length)
        found = users.predict(given, verbose=0)
        np.testing.assert_allclose(found, users(given), atol=1e-5)


def test_from_config_makes_an_equal_encoder():
    for dtype in (None, "mixed_bfloat16"):
        encoder = Encoder(shape_of(), seed=3, name="mine", dtype=dtype)
        encoder.trainable = dtype is None
        config = json.loads(json.dumps(encoder.get_config()))
        again = Encoder.from_config(config)
        assert again.get_config() == encoder.get_config()
        assert again.trainable == encoder.trainable
        assert again.name == "mine"
        assert again.compute_dtype == encoder.compute_dtype
        encoder.build(), again.build()
        for one, other in zip(encoder.weights[:20], again.weights[:20], strict=True):
            assert one.path == other.path
            np.testing.assert_array_equal(one, other)


def test_a_saved_model_is_the_same_after_loading(users, tmp_path):
    given = text()
    users.save(tmp_path / "model.keras")
    again = keras.models.load_model(
        tmp_path / "model.keras", {"Encoder": Encoder}, compile=False
    )
    np.testing.assert_array_equal(again(given), users(given))


def test_low_precision_keeps_its_weights_and_stays_close(encoder):
    mixed, given = built(dtype="mixed_bfloat16"), text()
    states_BLD = mixed(**given)
    assert states_BLD.dtype == tf.bfloat16
    assert {v.dtype for v in mixed.trainable_variables} == {"float32"}
    difference = np.abs(tf.cast(states_BLD, tf.float32) - encoder(**given))
    assert 0 < difference.max() < 0.1
    assert users_model(dtype="mixed_bfloat16")(given).dtype == tf.float32
