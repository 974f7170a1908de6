"""Fine-tuning settings: defaults of the original, validation, descriptions."""

import dataclasses

import pytest

from electra_tf.config import loader
from electra_tf.config.finetuning import (
    DataConfig,
    FinetuningConfig,
    TaskOptimizerConfig,
)
from electra_tf.errors import InputError


def load(*sets):
    return loader.load_config(sets=sets, root=FinetuningConfig)


def test_defaults_equal_the_original():
    settings = FinetuningConfig()
    optimizer, training = settings.optimizer, settings.training
    assert (optimizer.name, optimizer.learning_rate) == ("adam", 1e-4)
    assert (optimizer.layer_decay, optimizer.layer_rule) == (0.8, "original")
    assert (optimizer.weight_decay, optimizer.warmup_share) == (0.01, 0.1)
    assert (optimizer.decay_power, optimizer.epsilon) == (1.0, 1e-6)
    assert optimizer.clip_norm == 1.0
    assert (training.epochs, training.batch_size) == (3, 32)
    data = settings.data
    assert (data.max_length, data.double_unordered) == (128, True)
    assert (data.max_query_length, data.doc_stride) == (64, 128)
    model = settings.model
    assert (model.start_n_top, model.n_best, model.max_answer_length) == (20, 20, 30)
    assert (model.joint_prediction, model.answerable) == (True, True)
    assert model.answerable_weight == 0.5
    assert (model.dropout, model.attention_dropout, model.head_dropout) == (0.1,) * 3


def test_dumped_config_is_parsed_to_an_equal_one():
    data = DataConfig(text_columns=("a", "b"), score_column="stars", word_column=-2)
    settings = FinetuningConfig(
        data=data, optimizer=TaskOptimizerConfig(clip_norm=None)
    )
    assert (
        loader.parse_config(loader.dump_config(settings), "a dump", FinetuningConfig)
        == settings
    )


def test_sets_override_every_section():
    settings = load(
        "data.text_columns=[review]",
        "model.weights=random",
        "optimizer.learning_rate=5e-5",
        "training.keep=best",
    )
    assert settings.data.text_columns == ("review",)
    assert settings.model.weights == "random"
    assert settings.optimizer.learning_rate == 5e-5
    assert settings.training.keep == "best"
    assert settings.data == dataclasses.replace(DataConfig(), text_columns=("review",))


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("data.max_length=7", "data.max_length"),
        ("data.dev_share=0.0", "data.dev_share"),
        ("data.dev_share=1.0", "data.dev_share"),
        ("data.tagging_segment=2", "data.tagging_segment"),
        ("data.on_error=ignore", "stop.*report"),
        ("data.max_lenght=64", "max_length"),
        ("model.dropout=1.0", "model.dropout"),
        ("model.head_dropout=-0.1", "model.head_dropout"),
        ("model.weights=pretraind", "pretrained.*random"),
        ("optimizer.learning_rate=0.0", "optimizer.learning_rate"),
        ("optimizer.learning_rate=.nan", "optimizer.learning_rate"),
        ("optimizer.warmup_share=1.5", "optimizer.warmup_share"),
        ("optimizer.layer_decay=0.0", "optimizer.layer_decay"),
        ("optimizer.layer_rule=none", "original.*exact"),
        ("optimizer.clip_norm=0.0", "optimizer.clip_norm"),
        ("training.batch_size=0", "training.batch_size"),
        ("training.epochs=2.5", "training.epochs"),
        ("training.seed=-1", "training.seed"),
        ("training.early_stopping=-1", "training.early_stopping"),
        ("training.precision=float16", "mixed_bfloat16"),
    ],
)
def test_error_names_the_invalid_setting(item, words):
    with pytest.raises(InputError, match=words):
        load(item)


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        FinetuningConfig().data.max_length = 64


def test_every_setting_has_a_description():
    for section in dataclasses.fields(FinetuningConfig):
        for field in dataclasses.fields(section.type):
            name = f"{section.name}.{field.name}"
            _, _, description, default = loader.describe_field(name, FinetuningConfig)
            assert len(description) > 10, name
            assert default == getattr(section.type(), field.name)
