"""A new run that begins with another run's weights."""

import json

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config import loader as config_lib
from electra_tf.errors import InputError
from electra_tf.training import warm_start
from electra_tf.training.checkpoint import CheckpointManager, training_state
from training.toy import Toy


def files(*sets, **vocabulary):
    return {
        "config.yaml": config_lib.dump_config(
            config_lib.load_config(sets=sets)
        ).encode(),
        "vocab.txt": b"[PAD]",
        "vocab.txt.settings.json": json.dumps({"size": 1, **vocabulary}).encode(),
    }


@pytest.fixture
def earlier(tmp_path):
    """A run's folder with a checkpoint of step 2."""
    toy = Toy()
    toy.train_step(tf.constant([5.0, 7.0]))
    toy.train_step(tf.constant([5.0, 7.0]))
    checkpoints = CheckpointManager(str(tmp_path / "checkpoints"), 1, (), 20)
    checkpoints.save(2, *training_state(toy), files("training.steps=20"), {})
    return tmp_path, training_state(toy)[0]


def test_weights_carry_over_and_all_else_begins_anew(earlier):
    folder, weights = earlier
    toy = Toy()
    text = warm_start.load_weights(
        toy, str(folder), files("training.steps=30", "records.max_length=512")
    )
    found, slots = training_state(toy)
    for name, values in weights.items():
        np.testing.assert_array_equal(found[name], values)
    assert not any(values.any() for values in slots.values())
    assert int(toy.optimizer.iterations) == 0
    assert text.splitlines() == [
        f"from {folder / 'checkpoints' / 'step_00000002'}, step 2:",
        "  carried over: all 2 weights",
        "  begun anew: the optimizer's moments, the step, the learning rate's "
        "schedule, the order of the records",
        "settings that differ:",
        "  records.max_length: 128 -> 512",
        "  training.steps: 20 -> 30",
    ]


def test_equal_settings_are_not_told(earlier):
    text = warm_start.load_weights(Toy(), str(earlier[0]), files("training.steps=20"))
    assert "differ" not in text


def test_another_vocabulary_is_refused(earlier):
    toy = Toy()
    with pytest.raises(InputError, match=r"'size': 1}, not {'size': 2.*vocab\.txt"):
        warm_start.load_weights(toy, str(earlier[0]), files(size=2))
    np.testing.assert_array_equal(toy.trainable_variables[0], [1, 2])


def test_another_model_is_refused(earlier):
    toy = Toy()
    toy.trainable_variables.pop()
    with pytest.raises(InputError, match="a surplus toy/layer_norm"):
        warm_start.load_weights(toy, str(earlier[0]), files())
    np.testing.assert_array_equal(toy.trainable_variables[0], [1, 2])


def test_no_checkpoint_is_told(tmp_path):
    with pytest.raises(InputError, match="neither"):
        warm_start.load_weights(Toy(), str(tmp_path), files())
