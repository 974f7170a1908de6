"""Speed since the last log line."""

import math

import pytest

from electra_tf.training.speed import MetricWindow, steps_per_call


def test_calls_take_two_seconds_once_a_step_is_timed():
    steps = [steps_per_call(seconds) for seconds in (None, 0.25, 0.5, 9.0, 1e-9)]
    assert steps == [1, 8, 4, 1, 1000]


def test_speeds_are_means_over_the_timed_steps():
    window, metrics = MetricWindow(), {"tokens": (5.0, 1.0)}
    window.add(metrics)  # the first call compiles and is not timed
    assert all(map(math.isnan, window.speed_metrics(5.0, 10, 7).values()))
    for call in ((1, 0.25, 0.05), (3, 1.75, 0.15)):
        window.add(metrics)
        per_step = window.add_time(*call)
    assert per_step == 0.5
    assert window.metrics["tokens"] == (15.0, 3.0)
    assert window.speed_metrics(5.0, 10, 7) == pytest.approx(
        {
            "tokens_per_second": 10.0,
            "flops_per_second": 14.0,
            "input_share": 0.1,
            "seconds_left": 5.0,
        }
    )
