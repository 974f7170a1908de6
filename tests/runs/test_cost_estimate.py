"""Cost estimates compared with values by hand; `benchmark train` measures real runs."""

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
from electra_tf.runs import cost_estimate
from electra_tf.runs.cost_estimate import Rate, estimate_cost
from electra_tf.training import peak_flops

MODEL = ModelConfig(
    vocabulary_size=50, depth=2, width=32, embedding=16, heads=4, max_positions=24
)
CONFIG = PretrainingConfig(model=MODEL, records=RecordsConfig(max_length=12))
BATCH = cost.BatchShape(batch_size=8, length=12, max_predictions_per_seq=2)


@pytest.fixture
def rates(monkeypatch):
    """Replace the measurements: 1 MFLOP/s (slow: half), 1 kB/s (a quarter), 5 MB."""
    monkeypatch.setattr(cost_estimate, "measure_matmuls", lambda *_: Rate(1e6, 5e5))
    monkeypatch.setattr(cost_estimate, "measure_layer_ops", lambda *_: Rate(1e3, 250.0))
    monkeypatch.setattr(cost_estimate, "peak_rss", lambda: 5_000_000)


@pytest.mark.usefixtures("rates")
def test_seconds_add_matmuls_and_other_operations():
    estimate = estimate_cost(CONFIG, one_device(), 1000, BATCH)
    assert estimate.flops == cost.step_flops(MODEL, "electra", True, BATCH)
    assert estimate.traffic == cost.step_traffic(MODEL, "electra", True, 1000, BATCH)
    assert estimate.seconds == estimate.flops / 1e6 + estimate.traffic / 1e3
    assert estimate.slow_seconds == estimate.flops / 5e5 + estimate.traffic / 250


@pytest.mark.usefixtures("rates")
@pytest.mark.parametrize("objective", ["electra", "mlm"])
def test_memory_on_a_cpu_adds_process_and_step(objective):
    config = dataclasses.replace(
        CONFIG,
        objective=dataclasses.replace(CONFIG.objective, name=objective),
        training=dataclasses.replace(CONFIG.training, accumulation=2),
    )
    estimate = estimate_cost(config, one_device(), 1000, BATCH)
    half = dataclasses.replace(BATCH, batch_size=4)
    step = cost.step_memory(MODEL, objective, True, 1000, half) - 12 * 1000
    blocks = 4 if objective == "electra" else 2
    assert estimate.memory == 5_000_000 + (100 + 8 * blocks) * 2**20 + step


@pytest.mark.usefixtures("rates")
def test_memory_on_a_device_is_that_of_the_step(monkeypatch):
    monkeypatch.setattr(cost_estimate, "runs_on_cpu", lambda strategy: False)
    estimate = estimate_cost(CONFIG, one_device(), 1000, BATCH)
    assert estimate.memory == cost.step_memory(MODEL, "electra", True, 1000, BATCH)


def test_peak_rss_is_plausible():
    assert 2**27 < cost_estimate.peak_rss() < 2**40


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize(("positions", "used"), [(96, 96), (10**6, 2048)])
def test_matmul_rate_is_flops_over_measured_seconds(
    monkeypatch, precision, positions, used
):
    clock = itertools.chain([0, 4, 10, 12, 20, 25], itertools.repeat(0))
    monkeypatch.setattr(peak_flops.time, "perf_counter", lambda: float(next(clock)))
    calls, matmul = [], tf.matmul

    def recorded_matmul(left, right):
        calls.append((left.dtype, left.shape[0], tuple(right.shape)))
        return matmul(left, right)

    monkeypatch.setattr(cost_estimate.tf, "matmul", recorded_matmul)
    shape = MODEL.encoder
    rate = cost_estimate.measure_matmuls(one_device(), precision, shape, positions)
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32
    sizes = [(32, 32)] * 4 + [(32, 128), (128, 32)]
    assert calls == [(dtype, used, size) for size in sizes]
    # The backward pass of a matmul is two matmuls of its size.
    flops = 3 * 2 * used * (4 * 32 * 32 + 2 * 32 * 128)
    assert rate == Rate(best=flops / 2, slow=flops / 5)


@pytest.fixture
def short_measurements(monkeypatch):
    """Measure three times only."""
    monkeypatch.setattr(cost_estimate, "_SECONDS", 0.0)


@pytest.mark.usefixtures("short_measurements")
def test_measured_matmul_rate_is_plausible():
    shape = dataclasses.replace(MODEL, width=256, heads=4).encoder
    rate = cost_estimate.measure_matmuls(one_device(), "float32", shape, 512)
    assert 1e7 < rate.slow <= rate.best < 1e15


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_bandwidth_is_bytes_over_measured_seconds(monkeypatch, precision):
    clock = itertools.chain([0, 4, 10, 12, 20, 25], itertools.repeat(0))
    monkeypatch.setattr(peak_flops.time, "perf_counter", lambda: float(next(clock)))
    calls = []

    class Recorded(common.FusedLayerOps):
        def __init__(self, dropout, on_cpu):
            assert on_cpu  # as in training on a CPU
            super().__init__(dropout, on_cpu)

        def bias_gelu(self, x, bias):
            calls.append((x.dtype, x.shape.as_list()))
            return super().bias_gelu(x, bias)

    monkeypatch.setattr(common, "FusedLayerOps", Recorded)
    rate = cost_estimate.measure_layer_ops(one_device(), precision, "auto")
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32
    assert calls == [(dtype, [16, 128, 1024])]  # traced once, run four times
    num_bytes = 4 * cost.layer_ops_bytes(16 * 128, 256, 1024)
    assert rate == Rate(best=num_bytes / 2, slow=num_bytes / 5)


@pytest.mark.usefixtures("short_measurements")
def test_measured_bandwidth_is_plausible():
    rate = cost_estimate.measure_layer_ops(one_device(), "float32", "auto")
    assert 1e7 < rate.slow <= rate.best < 1e13


@pytest.mark.slow
def test_other_processes_lower_the_slow_rate():
    shape = dataclasses.replace(MODEL, width=256, heads=4).encoder
    arguments = one_device(), "float32", shape, 2048
    idle = cost_estimate.measure_matmuls(*arguments)
    cores = len(os.sched_getaffinity(0))
    others = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(cores)
    ]
    try:
        busy = cost_estimate.measure_matmuls(*arguments)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert busy.slow < idle.best
    assert busy.best > busy.slow
