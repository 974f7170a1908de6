"""FLOPs compared with the matmuls of traced graphs."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.data import InputConfig
from electra_tf.model.cost import step_flops
from electra_tf.model.electra import ElectraPair, bert
from tests.tiny import config, encoder_inputs

ROWS, LENGTH = 3, 12


def settings(name="electra", **changes):
    objective = {"name": name, "uniform_generator": changes.pop("uniform", False)}
    shape = {"depth": 2, "width": 32, "embedding": 16, "heads": 4}
    generator = {"generator_width": 0.25, "generator_depth": 0.5}
    sizes = {**shape, **generator, **changes}
    shapes = config(length=LENGTH, objective=objective, **sizes)
    return dataclasses.replace(shapes, input=InputConfig(batch_size=ROWS))


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
POSITIONS_BM = np.array([[1, 2]] * ROWS, np.int32)


def built(experiment):
    model = ElectraPair(experiment.model, generator=experiment.objective.has_generator)
    model.build()
    return model


@pytest.mark.parametrize("changes", SHAPES)
def test_flops_of_a_step_are_those_of_its_graph(changes):
    experiment = settings(**changes)
    model = built(experiment)

    def step():
        with tf.GradientTape() as tape:
            logits = model.generator(**INPUTS, positions=POSITIONS_BM)
            loss = tf.reduce_sum(logits**2) + tf.reduce_sum(model(**INPUTS) ** 2)
        return tape.gradient(loss, [v.value for v in model.trainable_variables])

    assert flops(step) == step_flops(experiment)


def test_flops_of_steps_with_one_encoder():
    shape = {"depth": 1, "generator_depth": 1.0}
    experiment = settings(uniform=True, **shape)
    model = built(experiment)
    forward = flops(lambda: model(**INPUTS))
    assert step_flops(experiment) == 3 * forward
    experiment = settings("mlm", **shape)
    single = bert(experiment.model)
    single.build()
    forward = flops(lambda: single(**INPUTS, positions=POSITIONS_BM))
    assert step_flops(experiment) == 3 * forward
