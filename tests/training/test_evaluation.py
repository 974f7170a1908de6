"""Evaluation on the same batches with the same numbers at each call."""

import tensorflow as tf

from electra_tf.training.evaluation import Evaluation
from training.toy import one_device


def make_batches(size):
    return lambda host, hosts: tf.data.Dataset.range(10, 10 + size)


def step(batch, number):
    return {"batch": (batch, 1), "number": (number * number, 1)}


def test_every_call_gives_equal_metrics():
    evaluate = Evaluation(one_device(), step, make_batches(5), 5)
    for _ in range(3):
        metrics = evaluate()
        assert metrics["batch"] == (10 + 11 + 12 + 13 + 14, 5)
        assert metrics["number"] == (0 + 1 + 4 + 9 + 16, 5)


def test_batches_keep_their_numbers_across_calls_of_the_runner():
    progress = []
    metrics = Evaluation(one_device(), step, make_batches(25), 25)(progress.append)
    assert metrics["batch"] == (sum(range(10, 35)), 25)
    assert metrics["number"] == (sum(n * n for n in range(25)), 25)
    assert progress == [10, 10, 5]


def test_evaluation_stops_after_count_batches():
    evaluate = Evaluation(one_device(), step, make_batches(5), 3)
    assert evaluate.count == 3
    assert evaluate()["batch"] == (10 + 11 + 12, 3)
