"""Flat buffers and calls of kernels in a step that is exported for GPUs."""

import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.pretraining import OptimizerConfig
from electra_tf.errors import InputError
from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.training.optimizer import create_optimizer
from tests.conftest import ROOT
from tests.tiny import TOKENS, batch, config, rng

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(ROOT / "tools" / "one_gpu"))
    from device_layer_ops import DeviceLayerOps
    from flat_state import FlatState, pack, unpack


pytestmark = pytest.mark.tools


def make(name="adamw", length=16):
    rule = OptimizerConfig(name=name, warmup_steps=1, weight_decay=0.1, clip_norm=0.5)
    shapes = config(length=length, width=32, heads=2, generator_width=1.0, dropout=0.1)
    training = dataclasses.replace(
        shapes.training, xla="on", precision="mixed_bfloat16"
    )
    pretrainer = Pretrainer(dataclasses.replace(shapes, training=training), TOKENS)
    pretrainer.compile(create_optimizer(rule, 10))
    pretrainer.optimizer.iterations.assign(3)
    return pretrainer


def test_the_update_of_buffers_equals_that_of_each_variable():
    pretrainer = make()
    optimizer, variables = pretrainer.optimizer, pretrainer.trainable_variables
    random = np.random.default_rng(0)
    for variable in (
        *variables,
        *(s for group in optimizer.slots().values() for s in group),
    ):
        variable.assign(random.uniform(0.1, 1, variable.shape))
    gradients = [
        tf.constant(random.normal(size=v.shape), tf.float32) for v in variables
    ]
    flat = FlatState(pretrainer)
    state = {v.path: v.numpy() for v in (*variables, *optimizer.variables)}
    packed = pack(state, flat.layout())
    assert len(flat.buffers) == 3 * 2  # decay or none
    for name, buffer in flat.buffers.items():
        buffer.assign(packed[name])

    @tf.function(jit_compile=True, autograph=False)
    def update():
        with flat.used():
            return optimizer.update(gradients, variables)

    norm = update()
    assert optimizer.iterations.numpy() == 4
    buffers = {name: buffer.numpy() for name, buffer in flat.buffers.items()}
    updated = unpack(packed | buffers, flat.layout())
    optimizer.iterations.assign(3)
    assert float(norm) == pytest.approx(float(optimizer.update(gradients, variables)))
    for variable in (*variables, *optimizer.variables):
        if variable is not optimizer.iterations and variable.path in updated:
            np.testing.assert_allclose(updated[variable.path], variable, 1e-5, 1e-7)
    assert all(v.path in updated for v in variables)


def test_a_state_in_use_selects_the_operations():
    objective = (pretrainer := make()).objective

    def type_of_operations(training):
        return type(objective.context(rng(), training).layer_ops)

    assert type_of_operations(training=True) is FusedLayerOps
    with FlatState(pretrainer).used():
        assert type_of_operations(training=True) is DeviceLayerOps
        # Evaluation has no dropout, and no gradients.
        assert type_of_operations(training=False) is FusedLayerOps
    assert type_of_operations(training=True) is FusedLayerOps


def calls_of(pretrainer, rows):
    """Return the kernels that an exported step calls."""
    flat = FlatState(pretrainer)

    @tf.function(jit_compile=True, autograph=False)
    def step():
        with flat.used():
            return pretrainer.train_step(rows)["loss"]

    program = step.experimental_get_compiler_ir()(stage="hlo")
    return re.findall(r'custom_call_target="electra_tf\.(\w+)"', program)


def test_each_layer_of_a_step_calls_its_kernels():
    pretrainer = make()
    calls = calls_of(pretrainer, batch((16, 16)))
    # Generator and discriminator have one layer each.
    for name, count in (
        *(("attention", 2), ("attention_backward", 2)),
        *(("matmul_gelu", 2), ("matmul_gelu_backward", 2)),
        *(("add_norm", 4), ("add_norm_backward", 4)),
        # Of queries, keys and values at once, three other kernels, and the vocabulary.
        ("transposed_matmul", 9),
    ):
        assert calls.count(name) == count, name
    # Other steps of the same pretrainer do not.
    assert np.isfinite(pretrainer.train_step(batch((16, 16)))["loss"])


def test_a_length_that_a_kernel_does_not_support():
    calls = calls_of(make(length=8), batch((8, 8), length=8))
    assert "add_norm" in calls
    assert "attention" not in calls


def test_other_optimizers_and_weights_without_gradient_are_errors():
    with pytest.raises(InputError, match="must be adam or adamw"):
        FlatState(make("lamb"))
    pretrainer = make()
    variables = pretrainer.trainable_variables
    none = [None] * len(variables)
    with FlatState(pretrainer).used(), pytest.raises(InputError, match="gradient"):
        pretrainer.optimizer.update(none, variables)
