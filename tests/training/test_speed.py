"""Speed since the last log line, and the peak of the machine, with a fake clock."""

import itertools
import math

import pytest
import tensorflow as tf

from electra_tf.training import speed
from electra_tf.training.speed import MetricWindow
from training.toy import one_device


def test_calls_take_two_seconds_once_a_step_is_timed():
    window = MetricWindow()
    metrics = {"tokens": (5.0, 1.0)}
    assert window.steps_per_call == 1
    window.add(metrics, 1, 60.0, 1.0)  # the first call traces and compiles
    assert window.steps_per_call == 1
    speeds = window.speed_metrics(5.0, 10, 7, 100.0)
    assert all(map(math.isnan, speeds.values()))
    window.add(metrics, 1, 0.25, 0.05)
    assert window.steps_per_call == 8
    window.add(metrics, 3, 1.75, 0.15)
    assert window.steps_per_call == 4  # 4 steps in 2 seconds
    assert window.metrics["tokens"] == (15.0, 3.0)
    assert window.speed_metrics(5.0, 10, 7, 100.0) == pytest.approx(
        {
            "tokens_per_second": 10.0,
            "flops_per_second": 14.0,
            "share_of_peak": 0.14,
            "input_share": 0.1,
            "seconds_left": 5.0,
        }
    )
    next_window = window.next_window()
    assert (next_window.metrics, next_window.steps_per_call) == ({}, 4)
    next_window.add(metrics, 1, 1e-9, 0.0)
    assert next_window.steps_per_call == 1000


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_the_peak_is_flops_over_the_shortest_time(monkeypatch, precision):
    clock = itertools.chain([0, 4, 10, 12, 20, 25], itertools.repeat(0))
    monkeypatch.setattr(speed.time, "perf_counter", lambda: float(next(clock)))
    operands = []
    matmul = tf.matmul

    def recorded_matmul(left, right):
        operands.append((left.dtype, left.shape[0]))
        return matmul(left, right)

    monkeypatch.setattr(speed.tf, "matmul", recorded_matmul)
    flops_per_second = speed.measure_peak_flops(one_device(), precision)
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32
    assert operands == [(dtype, 1024)]  # traced once, computed eight times
    assert flops_per_second == 2 * 1024**3 * 8 / 2  # the least of 4, 2 and 5 seconds
