import json
import math
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN
from pretraining.original import our_name
from tiny import config

from electra_tf.config.loader import load_config
from electra_tf.config.model import ModelConfig
from electra_tf.model.electra import Electra, bert

VOCABULARY = 30522
KERAS_HUB = {"small": 13_548_800, "base": 109_482_240, "large": 335_141_888}
# Numbers of weights of the original: discriminator's encoder, generator's encoder
# without shared weights, heads of generator and discriminator; number of variables.
SMALL = (13_483_008, 608_064, 39_098, 66_049, 402)
SMALL_PLUS_PLUS = (13_483_008, 9_510_144, 63_674, 66_049, 402)
BASE = (108_891_648, 9_673_984, 229_434, 591_361, 400)
LARGE = (334_092_288, 19_216_640, 295_738, 1_050_625, 784)
TOTAL = {SMALL: 14_196_219, SMALL_PLUS_PLUS: 23_122_875, BASE: 119_386_427}
TOTAL[LARGE] = 354_655_291


def settings(**changes):
    return config(**{"width": 32, "embedding": 16, "heads": 4, **changes}).model


def build_electra(seed=0, generator=True, dtype=None, **changes):
    model = Electra(settings(**changes), seed, generator, dtype)
    model.build()
    return model


def by_path(model):
    return {v.path.removeprefix(f"{model.name}/"): v for v in model.trainable_variables}


def inputs(rows=3, length=12):
    rng = np.random.default_rng(0)
    return {
        "token_ids": rng.integers(0, 50, (rows, length)).astype(np.int32),
        "segment_ids": rng.integers(0, 2, (rows, length)).astype(np.int32),
        "padding_mask": np.ones((rows, length), np.int32),
    }


@pytest.fixture
def without_values():
    """Create variables without values, so that large models need no memory."""
    with keras.StatelessScope(initialize_variables=False):
        yield
    # Otherwise the next scope would initialize the variables.
    keras.utils.clear_session(free_memory=False)


@pytest.fixture(scope="module")
def electra():
    return build_electra(seed=7)


def weight_counts(model):
    """Return the number of weights of each part of the model."""
    parts = "discriminator/encoder", "generator/encoder"
    counts = dict.fromkeys((*parts, "generator/head", "discriminator/head"), 0)
    for path, variable in by_path(model).items():
        counts["/".join(path.split("/")[:2])] += math.prod(variable.shape)
    return tuple(counts.values())


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        *(("small", SMALL), ("small++", SMALL_PLUS_PLUS)),
        *(("base", BASE), ("base++", BASE)),
        *(("large-400k", LARGE), ("large-1.75M", LARGE)),
    ],
)
def test_published_models_have_their_numbers_of_weights(
    config, expected, without_values
):
    shape = load_config(config).model
    model = build_electra(**{**vars(shape), "vocabulary_size": VOCABULARY})
    counts = weight_counts(model)
    assert (*counts, len(model.trainable_variables)) == expected
    assert sum(counts) == TOTAL[expected]
    # KerasHub's encoder has an unused pooler.
    pooler = shape.width * shape.width + shape.width
    assert counts[0] + pooler == KERAS_HUB[config.split("-")[0].removesuffix("++")]


def test_weight_shapes_equal_the_original(without_values):
    model = build_electra(**{**vars(ModelConfig()), "vocabulary_size": VOCABULARY})
    shapes = {path: list(v.shape) for path, v in by_path(model).items()}
    lines = (GOLDEN / "electra_small_variables.txt").read_text().splitlines()
    expected = {
        our_name(name): json.loads(shape)
        for name, shape in (line.split(maxsplit=1) for line in lines)
    }
    assert len(lines) == len(expected) == 402
    # The order decides the rounding of the gradient's norm, and so of resumed runs.
    assert next(iter(shapes)) == "discriminator/encoder/embeddings/word_embeddings"
    assert shapes == expected


@pytest.mark.parametrize("sharing", ["none", "embeddings", "all"])
def test_generator_and_discriminator_share(sharing, without_values):
    share = 1.0 if sharing == "all" else 0.25
    model = build_electra(sharing=sharing, generator_width=share)
    generator, discriminator = model.generator.encoder, model.encoder
    variables = by_path(model)
    assert len({id(v) for v in variables.values()}) == len(variables)
    own = [path for path in variables if path.startswith("generator/")]
    assert (generator.embeddings is discriminator.embeddings) == (sharing != "none")
    assert (generator is discriminator) == (sharing == "all")
    assert any("embeddings/" in path for path in own) == (sharing == "none")
    if sharing == "all":
        assert all(path.startswith("generator/head/") for path in own)
    elif sharing == "embeddings":  # each network has its own projection
        assert generator.embeddings_project.kernel.shape == (16, 8)
        assert discriminator.embeddings_project.kernel.shape == (16, 32)
        assert model.generator.head.dense.kernel.shape == (8, 16)
    else:  # the generator's tables are as wide as the generator
        assert generator.embeddings.word_embeddings.shape == (50, 8)
        assert generator.embeddings_project is None
    alone = build_electra(generator=False)
    assert all(path.startswith("discriminator/") for path in by_path(alone))
    assert set(by_path(alone)) < set(by_path(build_electra()))


def test_initial_weights_depend_only_on_the_seed_and_the_path(electra):
    other_generator = build_electra(seed=7, generator_width=0.25, sharing="none")
    others = {
        "again": build_electra(seed=7),
        "no generator": build_electra(seed=7, generator=False),
        "another generator": other_generator,
        "bert": bert(settings(), seed=7),
    }
    others["bert"].build()
    expected = by_path(electra)
    for name, other in others.items():
        prefix = "discriminator/" if name != "again" else ""
        start = "discriminator/encoder/" if name == "bert" else prefix
        paths = [path for path in expected if path.startswith(start)]
        for path in paths:
            other_path = path.removeprefix("discriminator/") if name == "bert" else path
            np.testing.assert_array_equal(expected[path], by_path(other)[other_path])
    other = by_path(build_electra(seed=8))
    for path, variable in expected.items():
        if not re.search(r"bias|beta|gamma", path):
            assert (variable.numpy() != other[path].numpy()).mean() > 0.99, path


def test_the_generator_uses_the_token_table_as_output_matrix():
    model = build_electra()
    positions_BM = np.array([[0, 5], [3, 11], [7, 7]], np.int32)
    logits_BMV = model.generator(**inputs(), positions=positions_BM).numpy()
    assert logits_BMV.shape == (3, 2, 50)
    table_VE = model.encoder.embeddings.word_embeddings
    unseen = min(set(range(50)) - set(inputs()["token_ids"].ravel()))
    changed_VE = table_VE.numpy()
    changed_VE[unseen] += 1
    table_VE.assign(changed_VE)
    changed = model.generator(**inputs(), positions=positions_BM).numpy() != logits_BMV
    assert changed[..., unseen].all()
    assert not np.delete(changed, unseen, axis=-1).any()


def test_mixed_precision_has_float32_logits(electra):
    exact, mixed = electra, build_electra(seed=7, dtype="mixed_bfloat16")
    assert {v.dtype for v in mixed.trainable_variables} == {"float32"}
    assert keras.backend.standardize_dtype(mixed.encoder(**inputs()).dtype) == (
        "bfloat16"
    )
    positions_BM = np.array([[0, 5], [3, 11], [7, 7]], np.int32)
    for one, other in (
        (exact(**inputs()), mixed(**inputs())),
        (
            exact.generator(**inputs(), positions=positions_BM),
            mixed.generator(**inputs(), positions=positions_BM),
        ),
    ):
        assert keras.backend.standardize_dtype(other.dtype) == "float32"
        difference = np.abs(one.numpy() - other.numpy()).max()
        assert 0 < difference < 0.05
        rounded = keras.ops.cast(keras.ops.cast(other, "bfloat16"), "float32")
        assert (rounded.numpy() != other.numpy()).mean() > 0.9


def test_disentangled_tables_are_the_generators_plus_a_difference():
    model = build_electra(sharing="gdes", generator_width=0.25)
    ours = model.encoder.embeddings
    base = model.generator.encoder.embeddings
    paths = [v.path for v in model.trainable_variables]
    assert len(paths) == len(set(paths))
    own_table = "electra/discriminator/encoder/embeddings/word_embeddings"
    assert own_table not in paths
    assert f"{own_table}_delta" in paths
    assert ours.layer_norm is not base.layer_norm
    assert base.word_embeddings.shape == (50, 16)
    np.testing.assert_array_equal(ours.word_embeddings, base.word_embeddings)
    # The output is that of an encoder whose tables are the sums.
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(0, 0.1, variable.shape))
    plain = build_electra(sharing="none", generator_width=0.25, generator_embedding=16)
    values = {v.path: v.numpy() for v in model.trainable_variables}
    for variable in plain.trainable_variables:
        array = values.get(variable.path)
        if array is None:
            source = variable.path.replace("/discriminator/", "/generator/")
            array = values[source] + values[f"{variable.path}_delta"]
        variable.assign(array)
    expected = plain(**inputs())
    np.testing.assert_allclose(model(**inputs()), expected, rtol=1e-5, atol=1e-5)


def test_the_discriminators_loss_does_not_reach_the_generators_tables():
    model = build_electra(sharing="gdes")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(**inputs()) ** 2)
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    reached = {
        v.path
        for v, g in zip(model.trainable_variables, gradients, strict=True)
        if g is not None and np.any(tf.convert_to_tensor(g))
    }
    assert not [path for path in reached if "/generator/" in path]
    deltas = [path for path in reached if path.endswith("_delta")]
    assert len(deltas) == 3
