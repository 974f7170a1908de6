"""Peak FLOP/s, with a fake clock."""

import itertools

import pytest
import tensorflow as tf

from electra_tf.training import peak_flops
from training.toy import one_device


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_the_peak_is_flops_over_the_shortest_time(monkeypatch, precision):
    clock = itertools.chain([0, 4, 10, 12, 20, 25], itertools.repeat(0))
    monkeypatch.setattr(peak_flops.time, "perf_counter", lambda: float(next(clock)))
    operands = []
    matmul = tf.matmul

    def recorded_matmul(left, right):
        operands.append((left.dtype, left.shape[0]))
        return matmul(left, right)

    monkeypatch.setattr(peak_flops.tf, "matmul", recorded_matmul)
    flops_per_second = peak_flops.measure_peak_flops(one_device(), precision)
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32
    assert operands == [(dtype, 1024)]  # traced once, computed eight times
    assert flops_per_second == 2 * 1024**3 * 8 / 2  # the least of 4, 2 and 5 seconds


def test_time_on_replicas_repeats_until_min_seconds(monkeypatch):
    clock = itertools.chain([0, 4, 10, 12, 20, 25, 30, 31], itertools.repeat(0))
    monkeypatch.setattr(peak_flops.time, "perf_counter", lambda: float(next(clock)))
    seconds = peak_flops.time_on_replicas(
        one_device(), lambda: tf.constant(1.0), tf.identity, 12.0
    )
    assert seconds == [1, 2, 4, 5]


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([3.0], 0.9, 3.0),
        ([1.0, 2.0, 5.0], 0.9, 5.0),
        ([float(n) for n in range(101)], 0.9, 90.0),
        ([1.0, 2.0, 3.0], 0.5, 2.0),
    ],
)
def test_quantile(values, q, expected):
    assert peak_flops.quantile(values, q) == expected


def test_the_peak_of_this_machine_is_plausible():
    assert 1e9 < peak_flops.measure_peak_flops(one_device(), "float32") < 1e15
