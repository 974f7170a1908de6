import numpy as np
import tensorflow as tf

from electra_tf.config.pretraining import ObjectiveConfig
from electra_tf.pretraining.losses import WeightedSum
from electra_tf.pretraining.objectives import OBJECTIVES
from electra_tf.pretraining.objectives.common import Losses, encoder_inputs
from electra_tf.pretraining.objectives.electra import ElectraObjective
from electra_tf.pretraining.objectives.mlm import MaskedLMObjective
from pretraining.synthetic import batch


def weighted_sum(total, weight):
    return WeightedSum(tf.constant(total), tf.constant(weight))


def test_combined_loss_divides_each_loss_by_its_global_weight():
    parts = {
        "one": weighted_sum(6.0, 3.0),
        "other": weighted_sum(5.0, 2.0),
        "idle": weighted_sum(9.0, 1.0),
    }
    losses = Losses(parts, {"one": 2.0, "other": 50.0}, {})
    weights = {"one": tf.constant(4.0), "other": tf.constant(10.0)}
    # Losses are divided by the weights of the global batch, not of the replica.
    assert float(losses.combined(weights)) == 2 * 6 / 4 + 50 * 5 / 10


def test_a_loss_of_zero_weight_has_zero_gradient():
    total = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        parts = {
            "one": WeightedSum(total, tf.constant(0.0)),
            "other": weighted_sum(5.0, 2.0),
        }
        losses = Losses(parts, {"one": 1.0, "other": 1.0}, {})
        loss = losses.combined({"one": tf.constant(0.0), "other": tf.constant(2.0)})
    assert float(loss) == 2.5
    assert float(tape.gradient(loss, total)) == 0


def test_encoder_inputs_are_segment_ids_and_padding_mask():
    records = batch([5, 8])
    inputs = encoder_inputs(records)
    assert set(inputs) == {"segment_ids", "padding_mask"}
    np.testing.assert_array_equal(inputs["segment_ids"], records.segment_ids_BL)
    np.testing.assert_array_equal(inputs["padding_mask"], records.input_mask_BL)


def test_objective_names_are_valid_in_a_config():
    assert {"electra": ElectraObjective, "mlm": MaskedLMObjective} == OBJECTIVES
    for name in OBJECTIVES:
        assert ObjectiveConfig(name=name).name == name
