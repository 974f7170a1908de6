"""Restore weights, slots and step of a trainer in another one."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.training.checkpoint_manager import CheckpointManager
from electra_tf.training.trainer_state import (
    assign,
    restore,
    restore_weights,
    training_state,
)
from training.toy import Toy


@pytest.fixture
def trained():
    toy = Toy()
    for number in range(3):
        toy.train_step(tf.constant([number, number], tf.float32))
    return toy


@pytest.fixture
def checkpoint(trained, tmp_path):
    checkpoints = CheckpointManager(str(tmp_path), 1, (), 20)
    checkpoints.save(3, *training_state(trained), {"config.yaml": b""}, {})
    return checkpoints.newest()


def test_state_is_named_by_path_and_slot(trained):
    weights, slots = training_state(trained)
    assert list(weights) == ["toy/pull", "toy/layer_norm"]
    assert sorted(slots) == sorted(f"{s}/{path}" for s in "mv" for path in weights)
    np.testing.assert_array_equal(weights["toy/pull"], trained.trainable_variables[0])
    assert weights["toy/layer_norm"].shape == slots["v/toy/layer_norm"].shape == (2, 2)
    assert np.abs(slots["m/toy/pull"]).min() > 0


def test_a_restored_trainer_continues_bit_for_bit(trained, checkpoint):
    other = Toy()
    restore(other, checkpoint)
    assert int(other.optimizer.iterations) == 3
    for toy in (trained, other):
        toy.train_step(tf.constant([4.0, 4.0]))
    states = zip(training_state(trained), training_state(other), strict=True)
    for expected, actual in states:
        for name, values in expected.items():
            np.testing.assert_array_equal(actual[name], values, name)


def test_restore_weights_does_not_change_the_optimizer(trained, checkpoint):
    other = Toy()
    restore_weights(other, checkpoint)
    weights, slots = training_state(other)
    np.testing.assert_array_equal(
        weights["toy/pull"], training_state(trained)[0]["toy/pull"]
    )
    assert int(other.optimizer.iterations) == 0
    assert not any(np.any(values) for values in slots.values())


def test_assign_lists_all_differences_and_assigns_nothing():
    variables = {name: tf.Variable(tf.zeros([2])) for name in ("same", "long", "new")}
    arrays = {"same": np.ones(2, "f"), "long": np.ones(3, "f"), "old": np.ones(2, "f")}
    with pytest.raises(InputError) as error:
        assign(variables, arrays, "source")
    for text in ("source", "surplus old", "long has shape (3,), not (2,)"):
        assert text in error.value.received
    assert "missing new" in error.value.received
    assert not any(variable.numpy().any() for variable in variables.values())


def test_a_long_list_of_differences_is_truncated():
    with pytest.raises(InputError, match=r"missing 17 and 12 more"):
        assign({str(10 + n): tf.Variable(0.0) for n in range(20)}, {}, "source")
