"""FLOPs compared with the matmuls of traced graphs."""

import math

import numpy as np
import pytest
import tensorflow as tf
from tiny import VOCABULARY, config, encoder_inputs

from electra_tf.model.cost import (
    BatchShape,
    recomputed_flops,
    step_flops,
)
from electra_tf.model.electra import Electra, bert

BATCH = BatchShape(batch_size=3, length=12, max_predictions_per_seq=2)


def settings(**changes):
    shape = {"depth": 2, "width": 32, "embedding": 16, "heads": 4}
    generator = {"generator_width": 0.25, "generator_depth": 0.5}
    return config(**{**shape, **generator, **changes}).model


SHAPES = (
    {},
    {
        **{"depth": 1, "embedding": None, "sharing": "none"},
        **{"feed_forward": 40, "generator_depth": 1.0},
    },
    {"depth": 1, "sharing": "all", "generator_width": 1.0, "generator_depth": 1.0},
)
MATMULS = {"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"}


def flops(function, *shapes):
    """Return the FLOPs of all matmuls in the traced graph."""
    traced = tf.function(function, autograph=False).get_concrete_function()
    total = 0
    for operation in traced.graph.get_operations():
        assert "Call" not in operation.type  # the graph has no nested functions
        assert operation.type not in {"Einsum", "Conv2D", "XlaDot"}
        if operation.type in MATMULS:
            left = operation.inputs[0].shape
            name = "transpose_a" if operation.type == "MatMul" else "adj_x"
            inner = left[-2] if operation.get_attr(name) else left[-1]
            total += 2 * math.prod(operation.outputs[0].shape) * inner
    return total


INPUTS = encoder_inputs()
POSITIONS_BM = np.array([[1, 2]] * BATCH.batch_size, np.int32)


def built(generator=True, **changes):
    model = Electra(settings(**changes), generator=generator)
    model.build()
    return model


@pytest.mark.parametrize("changes", SHAPES)
def test_flops_of_a_step_are_those_of_its_graph(changes):
    model = built(**changes)

    def step():
        with tf.GradientTape() as tape:
            logits = model.generator(**INPUTS, positions=POSITIONS_BM)
            loss = tf.reduce_sum(logits**2) + tf.reduce_sum(model(**INPUTS) ** 2)
        return tape.gradient(loss, [v.value for v in model.trainable_variables])

    assert flops(step) == step_flops(model.settings, "electra", True, BATCH)


def test_flops_of_steps_with_one_encoder():
    model = built(generator=False, depth=1, generator_depth=1.0)
    forward = flops(lambda: model(**INPUTS))
    assert step_flops(model.settings, "electra", False, BATCH) == 3 * forward
    single = bert(model.settings)
    single.build()
    forward = flops(lambda: single(**INPUTS, positions=POSITIONS_BM))
    assert step_flops(model.settings, "mlm", True, BATCH) == 3 * forward
    assert step_flops(model.settings, "mlm", False, BATCH) == 3 * forward


def test_logits_that_are_computed_twice_by_hand():
    shape = settings(sharing="none", generator_embedding=8)
    position = 2 * BATCH.batch_size * VOCABULARY
    length, drawn = BATCH.length, BATCH.max_predictions_per_seq
    again = {
        name: recomputed_flops(shape, name, BATCH)
        for name in ("electra", "replace_mlm", "all_tokens_mlm", "electric")
    }
    assert again == {
        "electra": 0,
        "replace_mlm": 0,
        "all_tokens_mlm": 16 * position * length,
        "electric": 8 * position * (length + drawn),
    }
