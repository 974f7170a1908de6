"""New runs that load the weights of another run."""

import json

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config import loader as config_lib
from electra_tf.errors import InputError
from electra_tf.training import warm_start
from electra_tf.training.checkpoint import CheckpointManager, training_state
from training.toy import Toy


def checkpoint_files(*sets, **vocabulary):
    return {
        "config.yaml": config_lib.dump_config(
            config_lib.load_config(sets=sets)
        ).encode(),
        "vocab.txt": b"[PAD]",
        "vocab.txt.settings.json": json.dumps({"size": 1, **vocabulary}).encode(),
    }


@pytest.fixture
def earlier_run(tmp_path):
    """Return a run directory with a checkpoint of step 2, and its weights."""
    toy = Toy()
    toy.train_step(tf.constant([5.0, 7.0]))
    toy.train_step(tf.constant([5.0, 7.0]))
    checkpoints = CheckpointManager(str(tmp_path / "checkpoints"), 1, (), 20)
    checkpoints.save(2, *training_state(toy), checkpoint_files("training.steps=20"), {})
    return tmp_path, training_state(toy)[0]


def test_only_the_weights_are_loaded(earlier_run):
    folder, weights = earlier_run
    toy = Toy()
    text = warm_start.load_weights(
        toy,
        str(folder),
        checkpoint_files("training.steps=30", "records.max_length=512"),
    )
    loaded, slots = training_state(toy)
    for name, values in weights.items():
        np.testing.assert_array_equal(loaded[name], values)
    assert not any(values.any() for values in slots.values())
    assert int(toy.optimizer.iterations) == 0
    lines = text.splitlines()
    assert f"{folder / 'checkpoints' / 'step_00000002'}, step 2:" in lines[0]
    assert "loaded: all 2 weights" in lines[1]
    assert "not loaded: optimizer" in lines[2]
    assert lines[4:] == [
        "  records.max_length: 128 -> 512",
        "  training.steps: 20 -> 30",
    ]


def test_equal_settings_are_not_listed(earlier_run):
    text = warm_start.load_weights(
        Toy(), str(earlier_run[0]), checkpoint_files("training.steps=20")
    )
    assert "->" not in text


def test_another_vocabulary_is_an_error(earlier_run):
    toy = Toy()
    with pytest.raises(InputError, match=r"'size': 1}, not {'size': 2.*vocab\.txt"):
        warm_start.load_weights(toy, str(earlier_run[0]), checkpoint_files(size=2))
    np.testing.assert_array_equal(toy.trainable_variables[0], [1, 2])


def test_another_model_is_an_error(earlier_run):
    toy = Toy()
    toy.trainable_variables.pop()
    with pytest.raises(InputError, match="surplus toy/layer_norm"):
        warm_start.load_weights(toy, str(earlier_run[0]), checkpoint_files())
    np.testing.assert_array_equal(toy.trainable_variables[0], [1, 2])


def test_a_missing_checkpoint_is_an_error(tmp_path):
    with pytest.raises(InputError, match=f"Received: '{tmp_path}'"):
        warm_start.load_weights(Toy(), str(tmp_path), checkpoint_files())
