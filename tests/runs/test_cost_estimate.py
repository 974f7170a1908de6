"""The forecast put together by hand; `benchmark train` holds it against the truth."""

import dataclasses
import itertools
import os
import subprocess
import sys

import pytest
import tensorflow as tf
from training.toy import one_device

from electra_tf.config.pretraining import ModelConfig, PretrainingConfig, RecordsConfig
from electra_tf.model import cost
from electra_tf.pretraining.objectives import common
from electra_tf.runs import cost_estimate as forecasts
from electra_tf.runs.cost_estimate import Rate, estimate_cost
from electra_tf.training import peak_flops

MODEL = ModelConfig(
    vocabulary_size=50, depth=2, width=32, embedding=16, heads=4, max_positions=24
)
CONFIG = PretrainingConfig(model=MODEL, records=RecordsConfig(max_length=12))
WORK = cost.BatchShape(rows=8, length=12, slots=2)


@pytest.fixture
def rates(monkeypatch):
    """A machine of 1 MFLOP/s and 1 kB/s whose process holds 5 MB.

    Disturbed, it does a half and a quarter of that.
    """
    monkeypatch.setattr(forecasts, "measure_matmuls", lambda *_: Rate(1e6, 5e5))
    monkeypatch.setattr(forecasts, "measure_layer_ops", lambda *_: Rate(1e3, 250.0))
    monkeypatch.setattr(forecasts, "peak_rss", lambda: 5_000_000)


@pytest.mark.usefixtures("rates")
def test_seconds_are_those_of_products_and_of_what_stands_between():
    found = estimate_cost(CONFIG, one_device(), 1000, WORK)
    assert found.flops == cost.step_flops(MODEL, "electra", True, WORK)
    assert found.traffic == cost.step_traffic(MODEL, "electra", True, 1000, WORK)
    assert found.seconds == found.flops / 1e6 + found.traffic / 1e3
    assert found.disturbed == found.flops / 5e5 + found.traffic / 250


@pytest.mark.usefixtures("rates")
@pytest.mark.parametrize("objective", ["electra", "mlm"])
def test_a_host_holds_its_process_and_the_step(objective):
    config = dataclasses.replace(
        CONFIG,
        objective=dataclasses.replace(CONFIG.objective, name=objective),
        training=dataclasses.replace(CONFIG.training, accumulation=2),
    )
    found = estimate_cost(config, one_device(), 1000, WORK)
    half = dataclasses.replace(WORK, rows=4)
    step = cost.step_memory(MODEL, objective, True, 1000, half) - 12 * 1000
    blocks = 4 if objective == "electra" else 2
    assert found.memory == 5_000_000 + (100 + 8 * blocks) * 2**20 + step


@pytest.mark.usefixtures("rates")
def test_a_device_holds_the_step_alone(monkeypatch):
    monkeypatch.setattr(forecasts, "runs_on_cpu", lambda strategy: False)
    found = estimate_cost(CONFIG, one_device(), 1000, WORK)
    assert found.memory == cost.step_memory(MODEL, "electra", True, 1000, WORK)


def test_a_process_holds_something():
    assert 2**27 < forecasts.peak_rss() < 2**40


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize(("positions", "taken"), [(96, 96), (10**6, 2048)])
def test_the_products_rate_is_their_flops_over_the_best_time(
    monkeypatch, precision, positions, taken
):
    clock = itertools.chain([0, 4, 10, 12, 20, 25], itertools.repeat(0))
    monkeypatch.setattr(peak_flops.time, "perf_counter", lambda: float(next(clock)))
    seen, product = [], tf.matmul

    def watched(left, right):
        seen.append((left.dtype, left.shape[0], tuple(right.shape)))
        return product(left, right)

    monkeypatch.setattr(forecasts.tf, "matmul", watched)
    shape = MODEL.encoder
    found = forecasts.measure_matmuls(one_device(), precision, shape, positions)
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32
    sizes = [(32, 32)] * 4 + [(32, 128), (128, 32)]
    assert seen == [(dtype, taken, size) for size in sizes]
    # Each product has two of its size in the backward pass.
    flops = 3 * 2 * taken * (4 * 32 * 32 + 2 * 32 * 128)
    assert found == Rate(best=flops / 2, disturbed=flops / 5)


@pytest.fixture
def short(monkeypatch):
    """Measurements of three tries."""
    monkeypatch.setattr(forecasts, "_SECONDS", 0.0)


@pytest.mark.usefixtures("short")
def test_products_of_a_layer_are_not_faster_than_a_machine_can_be():
    shape = dataclasses.replace(MODEL, width=256, heads=4).encoder
    found = forecasts.measure_matmuls(one_device(), "float32", shape, 512)
    assert 1e7 < found.disturbed <= found.best < 1e15


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_the_chains_rate_is_their_bytes_over_the_best_time(monkeypatch, precision):
    clock = itertools.chain([0, 4, 10, 12, 20, 25], itertools.repeat(0))
    monkeypatch.setattr(peak_flops.time, "perf_counter", lambda: float(next(clock)))
    seen = []

    class Watched(common.FusedLayerOps):
        def __init__(self, dropout, on_cpu):
            assert on_cpu  # as in training on a CPU
            super().__init__(dropout, on_cpu)

        def bias_gelu(self, x, bias):
            seen.append((x.dtype, x.shape.as_list()))
            return super().bias_gelu(x, bias)

    monkeypatch.setattr(common, "FusedLayerOps", Watched)
    found = forecasts.measure_layer_ops(one_device(), precision, "auto")
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32
    assert seen == [(dtype, [16, 128, 1024])]  # traced once, done four times
    done = 4 * cost.layer_ops_bytes(16 * 128, 256, 1024)
    assert found == Rate(best=done / 2, disturbed=done / 5)


@pytest.mark.usefixtures("short")
def test_chains_move_more_than_a_hundred_megabytes_a_second():
    found = forecasts.measure_layer_ops(one_device(), "float32", "auto")
    assert 1e7 < found.disturbed <= found.best < 1e13


@pytest.mark.slow
def test_other_work_on_the_cores_widens_the_forecast_and_keeps_its_lower_end():
    shape = dataclasses.replace(MODEL, width=256, heads=4).encoder
    given = one_device(), "float32", shape, 2048
    free = forecasts.measure_matmuls(*given)
    spin = "while True: pass"
    cores = len(os.sched_getaffinity(0))
    others = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(cores)]
    try:
        busy = forecasts.measure_matmuls(*given)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert busy.disturbed < free.best
    assert busy.best > busy.disturbed
