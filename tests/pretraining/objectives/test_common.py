import numpy as np
import pytest
import tensorflow as tf
from tiny import TOKENS, VOCABULARY, batch, config, model_of

from electra_tf.config.objectives import FACTS
from electra_tf.config.pretraining import ObjectiveConfig
from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.pretraining.losses import WeightedSum
from electra_tf.pretraining.objectives import OBJECTIVES
from electra_tf.pretraining.objectives.common import Losses, encoder_inputs


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
    assert set(OBJECTIVES) == set(FACTS) >= {"electra", "electra_15", "mlm"}
    for name in OBJECTIVES:
        assert ObjectiveConfig(name=name).name == name


@pytest.mark.parametrize("name", FACTS)
def test_facts_are_those_of_the_networks_and_losses(name):
    facts = FACTS[name]
    settings = config(objective={"name": name}, **model_of(name))
    objective = OBJECTIVES[name](settings, TOKENS)
    discriminator = getattr(objective.model, "discriminator", None)
    name_of_generator = "cloze" if facts.towers == 2 else "generator"
    generator = getattr(objective.model, name_of_generator, None)
    assert (discriminator is not None) == (facts.head == "replaced_token")
    assert (
        (generator is not None) == facts.generator == settings.objective.has_generator
    )
    none = dict.fromkeys(facts.weights, 0.0)
    with pytest.raises(ValueError, match=f"`name: {name}` must have a weight"):
        ObjectiveConfig(name=name, **none)
    for weight in facts.weights if facts.stages == 1 else ():
        ObjectiveConfig(name=name, **{**none, weight: 1.0})
    fields = ObjectiveConfig.__dataclass_fields__
    assert {*facts.weights, *facts.unused} <= set(fields)


@pytest.mark.parametrize("name", FACTS)
def test_rows_without_an_entry_are_never_sampled_or_predicted(name):
    spare = 6
    shape = {"vocabulary_size": VOCABULARY + spare, "spare_rows": spare}
    settings = config(objective={"name": name}, **{**model_of(name), **shape})
    objective = OBJECTIVES[name](settings, TOKENS)
    objective.model.build()
    biases = [v for v in objective.model.weights if v.path.endswith("output_bias")]
    tables = [v for v in objective.model.weights if "word_embeddings" in v.path]
    assert biases
    for bias in biases:
        bias.assign(np.where(np.arange(VOCABULARY + spare) < VOCABULARY, 0.0, 50.0))
    masked_rows = objective.mask(batch([16, 12]), make_rng(0, 0, TRAINING))
    with tf.GradientTape() as tape:
        losses = objective.losses(masked_rows, make_rng(0, 0, TRAINING), training=True)
        total = sum(part.total for part in losses.parts.values())
    # A row that is predicted would have nearly all of the probability.
    assert float(total) < 5 * 28 * np.log(VOCABULARY)
    for gradient in tape.gradient(total, [*biases, *tables]):
        if gradient is not None:
            dense = tf.convert_to_tensor(gradient)
            np.testing.assert_array_equal(dense[VOCABULARY:], 0)
