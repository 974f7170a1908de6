"""Calls of kernels in a step that is exported for GPUs."""

import dataclasses
import functools
import re

import pytest
import tensorflow as tf

from electra_tf.kernels.fused_layer_ops import FusedLayerOps
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.training.optimizer import create_optimizer
from tests.conftest import ROOT
from tests.tiny import TOKENS, batch, config, rng

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(ROOT / "tools" / "one_gpu"))
    from device_layer_ops import DeviceLayerOps, make_layer_ops


pytestmark = pytest.mark.tools


def make(length=16):
    shapes = config(length=length, width=32, heads=2, generator_width=1.0, dropout=0.1)
    training = dataclasses.replace(
        shapes.training, xla="on", precision="mixed_bfloat16"
    )
    pretrainer = Pretrainer(dataclasses.replace(shapes, training=training), TOKENS)
    pretrainer.compile(create_optimizer(shapes.optimizer, 10))
    make_ops = functools.partial(make_layer_ops, training.precision)
    pretrainer.objective.make_layer_ops = make_ops
    return pretrainer


def test_training_has_kernels():
    objective = make().objective
    context = objective.context(rng(), training=True)
    assert type(context.layer_ops) is DeviceLayerOps
    # Evaluation has no dropout, and no gradients.
    context = objective.context(rng(), training=False)
    assert type(context.layer_ops) is FusedLayerOps


def calls_of(pretrainer, rows):
    """Return the kernels that an exported step calls."""

    @tf.function(jit_compile=True, autograph=False)
    def step():
        return pretrainer.train_step(rows)["loss"]

    program = step.experimental_get_compiler_ir()(stage="hlo")
    return re.findall(r'custom_call_target="electra_tf\.(\w+)"', program)


def test_each_layer_of_a_step_calls_its_kernels():
    calls = calls_of(make(), batch((16, 16)))
    # Generator and discriminator have one layer each.
    for name, count in (
        *(("attention", 2), ("attention_backward", 2)),
        *(("matmul_gelu", 2), ("matmul_gelu_backward", 2)),
        *(("add_norm", 4), ("add_norm_backward", 4)),
        # Of queries, keys and values at once, three other kernels, and the vocabulary.
        ("transposed_matmul", 9),
    ):
        assert calls.count(name) == count, name


def test_a_length_that_a_kernel_does_not_support():
    calls = calls_of(make(length=8), batch((8, 8), length=8))
    assert "add_norm" in calls
    assert "attention" not in calls
