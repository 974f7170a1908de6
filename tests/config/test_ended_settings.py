"""Stored configs that name settings which ended."""

import pytest

import electra_tf
from electra_tf.config import loader
from electra_tf.config.model import ModelConfig
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError


def stored(value):
    return f"optimizer: {{learning_rate: 0.25, generator_learning_rate: {value}}}"


def read_by_path(text, folder):
    path = folder / "config.yaml"
    path.write_text(text)
    return loader.load_config(path, root=PretrainingConfig)


def read_as_text(text, folder):
    return loader.parse_config(text, str(folder))


READERS = pytest.mark.parametrize("read", [read_by_path, read_as_text])


@READERS
def test_an_ended_setting_at_its_former_default_is_ignored(read, tmp_path):
    config = read(stored("null"), tmp_path)
    assert config == loader.load_config(overrides=["optimizer.learning_rate=0.25"])


@READERS
def test_an_ended_setting_at_another_value_is_an_error(read, tmp_path):
    words = f"{tmp_path}.*`optimizer.generator_learning_rate`.*None.*0.5"
    with pytest.raises(InputError, match=words):
        read(stored("0.5"), tmp_path)


@READERS
def test_an_ended_objective_is_an_error(read, tmp_path):
    words = f"{tmp_path}.*`objective.name` must.*'mlm'.*not 'corrective'"
    with pytest.raises(InputError, match=words):
        read("objective: {name: corrective}", tmp_path)


def test_an_ended_setting_is_unknown_in_a_file_of_the_user(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(stored("null"))
    with pytest.raises(InputError, match=r"unknown key.*generator_learning_rate"):
        loader.load_config(path)


def test_an_ended_argument_of_a_saved_layer_is_ignored_at_its_former_default():
    settings = ModelConfig(vocabulary_size=50, width=16, embedding=8, heads=2, depth=1)
    config = electra_tf.Electra(settings).get_config()
    loaded = electra_tf.Electra.from_config({**config, "corrector": False})
    assert loaded.get_config() == config
    with pytest.raises(InputError, match=r"`Electra.corrector`.*not True"):
        electra_tf.Electra.from_config({**config, "corrector": True})


FLAT = {
    "name": "mlm",
    "generator_weight": 1.0,
    "discriminator_weight": 50.0,
    "temperature": 1.0,
    "temperature_schedule": [],
    "first_stage": 0.5,
    "freeze_generator": False,
}


def test_settings_of_other_objectives_at_their_defaults_are_ignored_in_stored_configs():
    stored = loader.stored_config({"objective": FLAT}, "x", PretrainingConfig)
    assert stored == loader.load_config(overrides=["objective.name=mlm"])
    changed = {"objective": FLAT | {"temperature": 2.0}}
    with pytest.raises(InputError, match=r"`temperature` must.*`name: mlm`"):
        loader.stored_config(changed, "x", PretrainingConfig)
