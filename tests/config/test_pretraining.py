"""What follows from a setting, and settings that contradict each other."""

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


def test_the_default_is_the_papers_small_model():
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
def test_the_generators_width_is_rounded_as_the_original_does(width, share, expected):
    model = ModelConfig(width=width, generator_width=share, embedding=None)
    assert model.generator.width == expected
    assert model.generator.heads == max(1, expected // 64)
    assert model.generator.embedding == width  # the shared tables are the larger's


def test_unshared_tables_are_as_narrow_as_the_generator():
    assert ModelConfig(sharing="none").generator.embedding == 64


def test_with_everything_shared_there_is_one_shape():
    model = ModelConfig(sharing="all", generator_width=1.0, generator_depth=1.0)
    assert model.generator == model.encoder


def test_tokenization_is_told_in_words():
    assert str(TokenizationConfig()) == "lower-cased, without accents"
    assert str(TokenizationConfig(lower_case=False)) == "cased, with accents"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: ModelConfig(sharing="all"),
            "generator_width and generator_depth to 1",
        ),
        (lambda: ModelConfig(heads=3), "width 256 must be a multiple of its 3 heads"),
        (lambda: ModelConfig(width=2, generator_width=0.1), "round to 1 or more"),
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
            "mlm: there is nothing that `temperature` could change",
        ),
        (
            lambda: ObjectiveConfig(name="mlm", uniform_generator=True),
            "mlm: there is nothing that `uniform_generator` could change",
        ),
        (
            lambda: ObjectiveConfig(uniform_generator=True, temperature=2.0),
            "uniform_generator: there is nothing that `temperature` could change",
        ),
        (
            lambda: ObjectiveConfig(name="mlm", generator_weight=0.0),
            "mlm needs a weight above 0",
        ),
        (
            lambda: ObjectiveConfig(generator_weight=0.0, discriminator_weight=0.0),
            "electra needs a weight above 0",
        ),
        (
            lambda: OptimizerConfig(no_decay=("bias", "(a")),
            r"'\(a' is no regular expression",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
