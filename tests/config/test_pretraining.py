"""Derived settings, and settings that contradict each other."""

import pytest

from electra_tf.config.pretraining import (
    InputConfig,
    MaskingConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    PretrainingConfig,
    RecordsConfig,
    TokenizationConfig,
    TrainingConfig,
)


def test_default_is_the_small_model_of_the_paper():
    small = ModelConfig(vocabulary_size=30522)
    shape, generator = small.encoder, small.generator
    assert (shape.depth, shape.width, shape.heads) == (12, 256, 4)
    assert (shape.feed_forward, shape.embedding) == (1024, 128)
    assert (generator.depth, generator.width, generator.heads) == (12, 64, 1)
    assert (generator.feed_forward, generator.embedding) == (256, 128)


@pytest.mark.parametrize(
    ("width", "share", "expected"),
    [(768, 0.33333, 256), (768, 0.25, 192), (1024, 0.25, 256), (32, 0.5, 16)],
)
def test_generator_width_is_rounded_as_in_the_original(width, share, expected):
    model = ModelConfig(width=width, generator_width=share, embedding=None)
    assert model.generator.width == expected
    assert model.generator.heads == max(1, expected // 64)
    assert (
        model.generator.embedding == width
    )  # shared tables have the discriminator's width


def test_unshared_tables_have_the_width_of_the_generator():
    assert ModelConfig(sharing="none").generator.embedding == 64


def test_shared_encoder_has_one_shape():
    model = ModelConfig(sharing="all", generator_width=1.0, generator_depth=1.0)
    assert model.generator == model.encoder


def test_tokenization_as_string():
    assert str(TokenizationConfig()) == "lower-cased, without accents"
    assert str(TokenizationConfig(lower_case=False)) == "cased, with accents"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: ModelConfig(sharing="all"),
            "`sharing: all`.*generator_width.*generator_depth",
        ),
        (lambda: ModelConfig(heads=3), "width 256 must be a multiple of its 3 heads"),
        (
            lambda: ModelConfig(width=2, generator_width=0.1),
            "width 0 and depth 12 must be",
        ),
        (
            lambda: MaskingConfig(scheme="original", replacement="bert"),
            "replacement must be `mask` with scheme `original`",
        ),
        (
            lambda: PretrainingConfig(records=RecordsConfig(max_length=513)),
            "513 must not exceed model.max_positions 512",
        ),
        (
            lambda: PretrainingConfig(
                input=InputConfig(batch_size=6), training=TrainingConfig(accumulation=4)
            ),
            "6 must be a multiple of training.accumulation 4",
        ),
        (
            lambda: ObjectiveConfig(name="mlm", temperature=2.0),
            "`temperature` must be.*`name: mlm`",
        ),
        (
            lambda: ObjectiveConfig(name="mlm", uniform_generator=True),
            "`uniform_generator` must be.*`name: mlm`",
        ),
        (
            lambda: ObjectiveConfig(uniform_generator=True, temperature=2.0),
            "`temperature` must be.*`uniform_generator: true`",
        ),
        (
            lambda: ObjectiveConfig(name="mlm", generator_weight=0.0),
            "`name: mlm` must have a weight above 0",
        ),
        (
            lambda: ObjectiveConfig(generator_weight=0.0, discriminator_weight=0.0),
            "`name: electra` must have a weight above 0",
        ),
        (
            lambda: ObjectiveConfig(name="replace_mlm", discriminator_weight=3.0),
            "`discriminator_weight` must be.*`name: replace_mlm`",
        ),
        (
            lambda: ObjectiveConfig(
                name="all_tokens_mlm", discriminator_weight_schedule=((0.0, 1.0),)
            ),
            "`discriminator_weight_schedule` must be.*`name: all_tokens_mlm`",
        ),
        (
            lambda: ObjectiveConfig(
                name="mlm", discriminator_weight_schedule=((0.0, 1.0),)
            ),
            "`discriminator_weight_schedule` must be.*`name: mlm`",
        ),
        (
            lambda: ObjectiveConfig(freeze_generator=True, generator_weight=2.0),
            "`generator_weight` must be.*`freeze_generator: true`",
        ),
        (
            lambda: ObjectiveConfig(name="two_stage", generator_weight=0.0),
            "generator_weight and discriminator_weight must be above 0.*`name: two_st",
        ),
        (
            lambda: PretrainingConfig(
                objective=ObjectiveConfig(freeze_generator=True),
                model=ModelConfig(sharing="none"),
                optimizer=OptimizerConfig(generator_learning_rate=1e-3),
            ),
            "generator_learning_rate must be null with.*freeze_generator: true",
        ),
        (
            lambda: PretrainingConfig(
                objective=ObjectiveConfig(name="replace_mlm", freeze_generator=True)
            ),
            "model.sharing must be none with.*freeze_generator: true`, not embeddings",
        ),
        (
            lambda: PretrainingConfig(
                objective=ObjectiveConfig(name="electric"),
                masking=MaskingConfig(rate=1.0),
            ),
            "masking.rate must be below 1 with `objective.name: electric`",
        ),
        (
            lambda: PretrainingConfig(
                objective=ObjectiveConfig(name="electric"),
                masking=MaskingConfig(replacement="bert"),
            ),
            "masking.replacement must be.*`objective.name: electric`",
        ),
        (
            lambda: OptimizerConfig(no_decay=("bias", "(a")),
            r"'\(a' must be a regular expression",
        ),
    ],
)
def test_contradictory_settings_are_an_error(make, words):
    with pytest.raises(ValueError, match=words):
        make()
