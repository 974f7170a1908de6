"""Steps and evaluations on one device; test_replicas.py has several replicas."""

import functools
import time

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.training.evaluation import Evaluation
from electra_tf.training.loop import StepRunner
from electra_tf.training.speed import add_metrics
from electra_tf.training.strategy import iterate
from tests.training.toy import Toy, batches, one_device

compiled = functools.partial(StepRunner, jit_compile=True)
each_runner = pytest.mark.parametrize("runner", [StepRunner, compiled])


def numbers(host, hosts):
    """Return a dataset of [n - 1/2, n + 1/2] for n = 0, 1, ..."""
    return batches(0, host, hosts)


def count_up(batch_B, number):
    mean = tf.reduce_mean(batch_B)
    return {
        "mean": (mean, 1),
        "powers": (tf.stack([mean, mean**2, mean**3]), tf.ones([3, 2])),
    }


@each_runner
def test_metrics_are_summed_over_the_steps_of_a_call(runner):
    run_steps = runner(one_device(), count_up)
    iterator = iterate(one_device(), numbers)
    metrics, waited = run_steps(iterator, 4)
    assert list(metrics) == ["mean", "powers"]
    assert metrics["mean"] == (0 + 1 + 2 + 3, 4)
    powers, weights = metrics["powers"]
    assert powers.dtype == np.float64
    np.testing.assert_array_equal(powers, [6, 14, 36])
    np.testing.assert_array_equal(weights, np.full([3, 2], 4))
    assert 0 <= waited < 60
    # The next call takes the next batches.
    assert run_steps(iterator, 2)[0]["mean"] == (4 + 5, 2)
    assert run_steps(iterator, 0)[0]["mean"] == (0, 0)
    assert run_steps(iterator, 1)[0]["mean"] == (6, 1)
    assert run_steps(iterator, 93)[0]["mean"] == (sum(range(7, 100)), 93)


@each_runner
def test_the_division_into_calls_does_not_change_the_result(runner):
    results = []
    for calls in ((70,), (1,) * 70, (5, 65), (1, 3, 29, 37)):
        toy = Toy(steps=100)
        run_steps = runner(
            one_device(), lambda batch, _, toy=toy: toy.train_step(batch)
        )
        iterator, sums = iterate(one_device(), numbers), {}
        for count in calls:
            sums = add_metrics(sums, run_steps(iterator, count)[0])
        assert toy.traced == 1
        results.append([*map(np.asarray, toy.trainable_variables), *sums["numbers"]])
        assert int(toy.optimizer.iterations) == 70
    for result in results[1:]:
        for expected, actual in zip(results[0], result, strict=True):
            np.testing.assert_array_equal(actual, expected)


@each_runner
def test_steps_of_a_new_stage_and_of_new_batches_are_traced(runner):
    stage = 1
    run_steps = runner(
        one_device(),
        lambda batch, _: {"sum": (stage * tf.reduce_sum(batch), 1)},
        stage=lambda: stage,
    )
    assert run_steps(iterate(one_device(), ten_and_more(1)), 3)[0]["sum"] == (30, 3)
    stage = 2
    assert run_steps(iterate(one_device(), ten_and_more(1)), 3)[0]["sum"] == (60, 3)
    pairs = iterate(one_device(), lambda *_: ten_and_more(2)(0, 1).batch(2))
    assert run_steps(pairs, 3)[0]["sum"] == (126, 3)


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


def test_an_evaluation_reads_no_batch_after_its_last_one():
    def make_batches(host, hosts):
        def validated(number):
            with tf.control_dependencies([tf.debugging.assert_less(number, limit)]):
                return tf.identity(number)

        limit = tf.constant(21, tf.int64)
        return tf.data.Dataset.range(100).map(validated)

    evaluation = Evaluation(one_device(), batch_and_number, make_batches, 21)
    for _ in range(2):
        assert evaluation()["batch"] == (sum(range(21)), 21)


@each_runner
def test_input_waiting_time_is_measured(runner):
    def slow(host, hosts):
        def sleep(n):
            time.sleep(0.01)
            return np.float32(n)

        numbers = tf.data.Dataset.range(100)
        return numbers.map(
            lambda n: tf.ensure_shape(tf.numpy_function(sleep, [n], tf.float32), [])
        )

    run_steps = runner(one_device(), lambda n, _: {"n": (n, 1.0)})
    iterator = iterate(one_device(), slow)
    run_steps(iterator, 1)
    begin = time.perf_counter()
    _, waited = run_steps(iterator, 71)
    assert 0.1 < waited <= time.perf_counter() - begin
