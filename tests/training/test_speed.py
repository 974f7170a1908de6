"""Speed since the last log line."""

import math

import pytest

from electra_tf.training.speed import MetricWindow


def test_calls_take_two_seconds_once_a_step_is_timed():
    window = MetricWindow()
    metrics = {"tokens": (5.0, 1.0)}
    assert window.steps_per_call == 1
    window.add(metrics, 1, 60.0, 1.0)  # the first call traces and compiles
    assert window.steps_per_call == 1
    speeds = window.speed_metrics(5.0, 10, 7)
    assert all(map(math.isnan, speeds.values()))
    window.add(metrics, 1, 0.25, 0.05)
    assert window.steps_per_call == 8
    window.add(metrics, 3, 1.75, 0.15)
    assert window.steps_per_call == 4  # 4 steps in 2 seconds
    assert window.metrics["tokens"] == (15.0, 3.0)
    assert window.speed_metrics(5.0, 10, 7) == pytest.approx(
        {
            "tokens_per_second": 10.0,
            "flops_per_second": 14.0,
            "input_share": 0.1,
            "seconds_left": 5.0,
        }
    )
    next_window = window.next_window()
    assert (next_window.metrics, next_window.steps_per_call) == ({}, 4)
    next_window.add(metrics, 1, 1e-9, 0.0)
    assert next_window.steps_per_call == 1000
