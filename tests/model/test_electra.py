import json
import math
import re

import keras
import numpy as np
import pytest

from electra_tf.config.loader import load_config
from electra_tf.config.model import ModelConfig
from electra_tf.model.electra import ElectraPair, bert
from tests.conftest import GOLDEN
from tests.pretraining.original import our_name
from tests.tiny import config, encoder_inputs

VOCABULARY = 30522
INPUTS = encoder_inputs()
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
    model = ElectraPair(settings(**changes), seed, generator, dtype)
    model.build()
    return model


def by_path(model):
    return {v.path.removeprefix(f"{model.name}/"): v for v in model.trainable_variables}


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


def test_mixed_precision_has_float32_logits(electra):
    exact, mixed = electra, build_electra(seed=7, dtype="mixed_bfloat16")
    assert {v.dtype for v in mixed.trainable_variables} == {"float32"}
    assert keras.backend.standardize_dtype(mixed.encoder(**INPUTS).dtype) == (
        "bfloat16"
    )
    positions_BM = np.array([[0, 5], [3, 11], [7, 7]], np.int32)
    for one, other in (
        (exact(**INPUTS), mixed(**INPUTS)),
        (
            exact.generator(**INPUTS, positions=positions_BM),
            mixed.generator(**INPUTS, positions=positions_BM),
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
    expected = plain(**INPUTS)
    np.testing.assert_allclose(model(**INPUTS), expected, rtol=1e-5, atol=1e-5)
