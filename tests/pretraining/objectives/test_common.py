import numpy as np
import tensorflow as tf

from electra_tf.config.pretraining import ObjectiveConfig
from electra_tf.pretraining.losses import WeightedSum
from electra_tf.pretraining.objectives import OBJECTIVES
from electra_tf.pretraining.objectives.common import Losses, encoder_inputs
from electra_tf.pretraining.objectives.electra import ElectraObjective
from electra_tf.pretraining.objectives.mlm import MaskedLMObjective
from pretraining.synthetic import batch


def pair(total, weight):
    return WeightedSum(tf.constant(total), tf.constant(weight))


def test_the_whole_loss_by_hand():
    parts = {"one": pair(6.0, 3.0), "other": pair(5.0, 2.0), "idle": pair(9.0, 1.0)}
    losses = Losses(parts, {"one": 2.0, "other": 50.0}, {})
    weights = {"one": tf.constant(4.0), "other": tf.constant(10.0)}
    # The weights are those of the global batch, not this replica's own.
    assert float(losses.combined(weights)) == 2 * 6 / 4 + 50 * 5 / 10


def test_a_part_without_weight_counts_0_and_has_a_gradient_of_0():
    total = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        parts = {"one": WeightedSum(total, tf.constant(0.0)), "other": pair(5.0, 2.0)}
        losses = Losses(parts, {"one": 1.0, "other": 1.0}, {})
        loss = losses.combined({"one": tf.constant(0.0), "other": tf.constant(2.0)})
    assert float(loss) == 2.5
    assert float(tape.gradient(loss, total)) == 0


def test_the_towers_read_segments_and_mask():
    given = batch([5, 8])
    found = encoder_inputs(given)
    assert set(found) == {"segment_ids", "padding_mask"}
    np.testing.assert_array_equal(found["segment_ids"], given.segment_ids_BL)
    np.testing.assert_array_equal(found["padding_mask"], given.input_mask_BL)


def test_every_objective_has_a_name_the_settings_know():
    assert {"electra": ElectraObjective, "mlm": MaskedLMObjective} == OBJECTIVES
    for name in OBJECTIVES:
        assert ObjectiveConfig(name=name).name == name
