"""Defaults, derived settings, and settings that contradict each other."""

import dataclasses

import pytest

from electra_tf.config import loader
from electra_tf.config.data import TokenizationConfig
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.config.model import ModelConfig
from electra_tf.errors import InputError


def test_default_is_the_small_model_of_the_paper():
    small = ModelConfig(vocabulary_size=30522)
    shape, generator = small.encoder, small.generator
    assert (shape.depth, shape.width, shape.heads) == (12, 256, 4)
    assert (shape.feed_forward, shape.embedding) == (1024, 128)
    assert (generator.depth, generator.width, generator.heads) == (12, 64, 1)
    assert (generator.feed_forward, generator.embedding) == (256, 128)


def test_defaults_of_fine_tuning_equal_the_original():
    settings = FinetuningConfig()
    optimizer, training = settings.optimizer, settings.training
    assert (optimizer.name, optimizer.learning_rate) == ("adam", 1e-4)
    assert optimizer.layer_decay == 0.8
    assert (optimizer.weight_decay, optimizer.warmup_share) == (0.01, 0.1)
    assert (optimizer.decay_power, optimizer.epsilon) == (1.0, 1e-6)
    assert optimizer.clip_norm == 1.0
    assert (training.epochs, training.batch_size) == (None, 32)
    assert settings.model.pooling == "cls"
    data = settings.data
    assert (data.max_length, data.double_unordered) == (128, True)
    assert (data.max_query_length, data.doc_stride) == (64, 128)
    model = settings.model
    assert (model.start_n_top, model.n_best, model.max_answer_length) == (20, 20, 30)
    assert (model.joint_prediction, model.answerable) == (True, True)
    assert model.answerable_weight == 0.5
    assert (model.dropout, model.attention_dropout) == (None, None)
    assert model.head_dropout == 0.1


@pytest.mark.parametrize(
    ("width", "share", "expected", "heads"),
    [
        (768, 0.33333, 256, 4),  # 255.997
        (768, 0.25, 192, 3),
        (1024, 0.25, 256, 4),
        (10, 0.25, 2, 1),  # 2.5, to even
        (14, 0.25, 4, 1),  # 3.5, to even
        (200, 0.64, 128, 2),
    ],
)
def test_generator_width_is_rounded_as_in_the_original(width, share, expected, heads):
    model = ModelConfig(width=width, heads=1, generator_width=share, embedding=None)
    shape = model.generator
    assert (shape.width, shape.heads, shape.feed_forward) == (
        *(expected, heads, 4 * expected),
    )
    assert shape.embedding == width  # shared tables have the discriminator's width
    unshared = dataclasses.replace(model, sharing="none")
    assert unshared.generator.embedding == expected


@pytest.mark.parametrize(
    ("depth", "share", "expected"),
    [(3, 0.5, 2), (5, 0.5, 2), (12, 1 / 3, 4), (7, 0.1, 1)],
)
def test_generator_depth_is_rounded_as_in_the_original(depth, share, expected):
    model = ModelConfig(depth=depth, generator_depth=share)
    assert (model.encoder.depth, model.generator.depth) == (depth, expected)


def test_shared_encoder_has_one_shape():
    model = ModelConfig(sharing="all", generator_width=1.0, generator_depth=1.0)
    assert model.generator == model.encoder


@pytest.mark.parametrize(
    ("settings", "strips", "text"),
    [
        ({}, True, "lower-cased, without accents"),
        ({"lower_case": False}, False, "cased, with accents"),
        (
            {"lower_case": False, "strip_accents": "always"},
            True,
            "cased, without accents",
        ),
        ({"strip_accents": "never"}, False, "lower-cased, with accents"),
    ],
)
def test_accents(settings, strips, text):
    assert TokenizationConfig(**settings).strips_accents == strips
    assert str(TokenizationConfig(**settings)) == text


# Values of `--set`, and words of the message.
CONTRADICTIONS = """
model.sharing=all | `model`: `sharing: all`.*generator_width.*generator_depth to 1
model.heads=3 | width 256 must be a multiple of its 3 heads
model.width=2 model.generator_width=0.1 | width 0 and depth 12 must be
records.max_length=1024 | 1024 must not exceed model.max_positions 512
training.accumulation=3 | 128 must be a multiple.*accumulation 3
masking.scheme=original masking.replacement=bert | replacement must be `mask` with
optimizer.no_decay=[bias,"(a"] | '\\(a' must be a regular expression
optimizer.no_decay=[LONG] | 200 characters
objective.temperature_schedule=[[0.5,1.0],[0.1,2.0]] | must rise
objective.temperature_schedule=[[0.0,0.0],[0.1,2.0]] | greater than 0
objective.temperature_schedule=[[0.0,1.0],[1.1,2.0]] | less than or equal
UNIFORM objective.temperature_schedule=[[0.0,2.0]] | temperature_schedule
UNIFORM objective.temperature=2.0 | `temperature` must.*`uniform_generator: true`
UNIFORM objective.unigram_generator=true | unigram_generator
objective.generator_weight=0.0 objective.discriminator_weight=0.0 | must have a weight
objective.first_stage=0.3 | `first_stage` must be left out with `name: electra`
objective.entropy_weight=0.1 | entropy_weight
FREEZE | model.sharing must be none or gdes.*freeze_generator: true`, not embeddings
FREEZE UNSHARED objective.generator_weight=2.0 | `generator_weight`.*freeze_generator
NAME=mlm objective.temperature=2.0 | `temperature` must be.*`name: mlm`
NAME=mlm objective.uniform_generator=true | `uniform_generator` must be.*`name: mlm`
NAME=mlm objective.generator_weight=0.0 | `name: mlm` must have a weight above 0
NAME=replace_mlm objective.discriminator_weight=3.0 | `discriminator_weight` must
NAME=replace_mlm model.sharing=gdes | model.sharing must be
NAME=replace_mlm FREEZE | model.sharing must be none with.*freeze_generator: true`
NAME=all_tokens_mlm model.sharing=gdes | model.sharing must be
NAME=electra_15 objective.disallow_correct=true | `disallow_correct` must.*electra_15
NAME=electra_15 UNIFORM | `uniform_generator` must.*`name: electra_15`
NAME=adversarial objective.disallow_correct=true | disallow_correct
NAME=adversarial UNIFORM | uniform_generator
NAME=adversarial FREEZE UNSHARED | freeze_generator
NAME=adversarial SHARE_ALL | model.sharing must be none or embeddings
NAME=electric masking.rate=1.0 | masking.rate must be below 1 with.*electric
NAME=electric masking.replacement=bert | masking.replacement must be.*electric
NAME=electric SHARE_ALL | model.sharing must be none or embeddings
NAME=two_stage | model.sharing must
NAME=two_stage objective.generator_weight=0.0 | generator_weight and disc.* above 0
NAME=two_stage UNSHARED | generator and discriminator must have one shape.*width 64
NAME=two_stage UNSHARED model.generator_width=1.0 | set model.generator_embedding=128
NAME=two_stage ONE_SHAPE training.steps=1 | first_stage 0.5 .* training.steps 1
"""
SHORT = {
    "NAME": "objective.name",
    "UNIFORM": "objective.uniform_generator=true",
    "FREEZE": "objective.freeze_generator=true",
    "UNSHARED": "model.sharing=none",
    "SHARE_ALL": "model.sharing=all model.generator_width=1.0",
    "ONE_SHAPE": "model.sharing=none model.generator_width=1.0 "
    "model.generator_embedding=128",
    "LONG": "x" * 201,
}


@pytest.mark.parametrize("case", CONTRADICTIONS.strip().splitlines())
def test_contradictory_settings_are_an_error(case):
    sets, words = case.split(" | ")
    for name, value in SHORT.items():
        sets = sets.replace(name, value)
    with pytest.raises(InputError, match=f"(?s){words}"):
        loader.load_config(overrides=sets.split())


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("data.dev_share=1.0", "data.dev_share"),
        ("data.window_labels=none", "exact.*original"),
        ("model.weights=pretraind", "pretrained.*random"),
        ("optimizer.learning_rate=.nan", "optimizer.learning_rate"),
        ("optimizer.clip_norm=.inf", "optimizer.clip_norm.* finite"),
        ("training.epochs=1_0", "training.epochs"),
        ("training.epochs=2.5", "training.epochs"),
        ("training.seed=-1", "training.seed"),
        ("training.precision=float16", "mixed_bfloat16"),
    ],
)
def test_error_names_the_invalid_setting_of_fine_tuning(item, words):
    with pytest.raises(InputError, match=words):
        loader.load_config(overrides=[item], root=FinetuningConfig)
