"""FLOP/s by hand: a clock that ticks once a look makes every product take a second."""

import itertools

import pytest
import tensorflow as tf

from electra_tf.training import peak_flops
from training.toy import one_device


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_the_peak_is_flops_over_the_best_time(monkeypatch, precision):
    clock = itertools.chain([0, 4, 10, 12, 20, 25], itertools.repeat(0))
    monkeypatch.setattr(peak_flops.time, "perf_counter", lambda: float(next(clock)))
    types = []
    matmul = tf.matmul

    def watched(left, right):
        types.append((left.dtype, left.shape[0]))
        return matmul(left, right)

    monkeypatch.setattr(peak_flops.tf, "matmul", watched)
    found = peak_flops.measure_peak_flops(one_device(), precision)
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32
    assert types == [(dtype, 1024)]  # traced once, done eight times
    assert found == 2 * 1024**3 * 8 / 2  # the best of 4, 2 and 5 seconds


def test_work_is_timed_until_so_many_seconds_are_over(monkeypatch):
    clock = itertools.chain([0, 4, 10, 12, 20, 25, 30, 31], itertools.repeat(0))
    monkeypatch.setattr(peak_flops.time, "perf_counter", lambda: float(next(clock)))
    given = one_device(), lambda: tf.constant(1.0), tf.identity
    assert peak_flops.timings(*given, 12.0) == [1, 2, 4, 5]


def test_the_slow_time_is_one_that_most_do_not_exceed():
    assert peak_flops.slow([3.0]) == 3.0
    assert peak_flops.slow([1.0, 2.0, 5.0]) == 5.0
    assert peak_flops.slow([float(n) for n in range(101)]) == 90.0
    assert peak_flops.slow([1.0, 2.0, 3.0], 0.5) == 2.0


def test_a_machine_does_more_than_a_billion_a_second():
    assert 1e9 < peak_flops.measure_peak_flops(one_device(), "float32") < 1e15
