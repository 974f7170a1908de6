"""Steps and evaluations on one device; test_replicas.py has several replicas."""

import time

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.training.loop import (
    Evaluation,
    MultiStepRunner,
    distribute,
)
from electra_tf.training.speed import add_metrics
from training.toy import Toy, batches, one_device


@pytest.fixture
def numbers():
    """Return an iterator over [n - 1/2, n + 1/2] for n = 0, 1, ..."""
    return iter(distribute(one_device(), lambda host, hosts: batches(0, host, hosts)))


def count_up(batch_B):
    mean = tf.reduce_mean(batch_B)
    return {
        "mean": (mean, 1),
        "powers": (tf.stack([mean, mean**2, mean**3]), tf.ones([3, 2])),
    }


def test_metrics_are_summed_over_the_steps_of_a_call(numbers):
    run_steps = MultiStepRunner(one_device(), count_up)
    metrics, waited = run_steps(numbers, 4)
    assert list(metrics) == ["mean", "powers"]
    assert metrics["mean"] == (0 + 1 + 2 + 3, 4)
    powers, weights = metrics["powers"]
    assert powers.dtype == np.float64
    np.testing.assert_array_equal(powers, [6, 14, 36])
    np.testing.assert_array_equal(weights, np.full([3, 2], 4))
    assert 0 <= waited < 60
    # The next call takes the next batches.
    assert run_steps(numbers, 2)[0]["mean"] == (4 + 5, 2)
    assert run_steps(numbers, 1)[0]["mean"] == (6, 1)


def test_the_division_into_calls_does_not_change_the_result():
    results = []
    for calls in ((12,), (1,) * 12, (5, 7), (1, 3, 8)):
        toy = Toy()
        run_steps = MultiStepRunner(one_device(), toy.train_step)
        iterator = iter(distribute(one_device(), lambda *_: batches(0)))
        sums = {}
        for count in calls:
            sums = add_metrics(sums, run_steps(iterator, count)[0])
        assert toy.traced == 1
        results.append([*map(np.asarray, toy.trainable_variables), *sums["numbers"]])
        assert int(toy.optimizer.iterations) == 12
    for result in results[1:]:
        for expected, actual in zip(results[0], result, strict=True):
            np.testing.assert_array_equal(actual, expected)


def ten_and_more(size):
    return lambda host, hosts: tf.data.Dataset.range(10, 10 + size)


def batch_and_number(batch, number):
    return {"batch": (batch, 1), "number": (number * number, 1)}


def test_batches_keep_their_numbers_across_calls_of_the_runner():
    progress = []
    metrics = Evaluation(one_device(), batch_and_number, ten_and_more(25), 25)(
        progress.append
    )
    assert metrics["batch"] == (sum(range(10, 35)), 25)
    assert metrics["number"] == (sum(n * n for n in range(25)), 25)
    assert progress == [10, 10, 5]


def test_input_waiting_time_is_measured():
    def slow(host, hosts):
        def sleep(n):
            time.sleep(0.05)
            return np.float32(n)

        numbers = tf.data.Dataset.range(100)
        return numbers.map(
            lambda n: tf.ensure_shape(tf.numpy_function(sleep, [n], tf.float32), [])
        )

    run_steps = MultiStepRunner(one_device(), lambda n: {"n": (n, 1.0)})
    iterator = iter(distribute(one_device(), slow))
    run_steps(iterator, 1)
    begin = time.perf_counter()
    _, waited = run_steps(iterator, 6)
    assert 0.2 < waited <= time.perf_counter() - begin
