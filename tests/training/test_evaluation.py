"""The same batches with the same numbers, whenever it is called."""

import tensorflow as tf

from electra_tf.training.evaluation import Evaluation
from training.toy import one_device


def finite(size):
    return lambda host, hosts: tf.data.Dataset.range(10, 10 + size)


def step(batch, number):
    return {"batch": (batch, 1), "number": (number * number, 1)}


def test_every_call_measures_the_same():
    measure = Evaluation(one_device(), step, finite(5), 5)
    for _ in range(3):
        metrics = measure()
        assert metrics["batch"] == (10 + 11 + 12 + 13 + 14, 5)
        assert metrics["number"] == (0 + 1 + 4 + 9 + 16, 5)


def test_batches_keep_their_numbers_and_are_told_a_few_at_a_time():
    told = []
    metrics = Evaluation(one_device(), step, finite(25), 25)(told.append)
    assert metrics["batch"] == (sum(range(10, 35)), 25)
    assert metrics["number"] == (sum(n * n for n in range(25)), 25)
    assert told == [10, 10, 5]


def test_it_stops_after_its_count():
    measure = Evaluation(one_device(), step, finite(5), 3)
    assert measure.count == 3
    assert measure()["batch"] == (10 + 11 + 12, 3)
