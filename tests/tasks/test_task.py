"""Splits, monitored metric and fingerprint of a task."""

import dataclasses

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.conll import Sentence
from electra_tf.tasks.score import LabelScorer, TagScorer
from electra_tf.tasks.splits import Split
from electra_tf.tasks.task_data import TaskData

TRAIN = Split(["in", "of"], ["a", "b"])


def task(**splits):
    scorer = LabelScorer(("accuracy",), ("a", "b"))
    return TaskData("csv", {"train": TRAIN, **splits}, scorer, None)


def test_eval_splits_are_labelled_and_the_first_is_monitored():
    mnli = task(test=Split(["in"], None), dev_m=TRAIN, dev_mm=Split(["to"], ["a"]))
    assert list(mnli.eval_splits) == ["dev_m", "dev_mm"]
    assert mnli.monitor == "dev_m_accuracy"
    assert [len(split) for split in mnli.splits.values()] == [2, 1, 2, 1]


def test_a_task_without_training_or_labelled_data_is_rejected():
    with pytest.raises(InputError, match=r"test with 1; labelled beside train: none"):
        task(test=Split(["in"], None))
    with pytest.raises(InputError, match="dev with 0"):
        task(dev=Split([], []))
    with pytest.raises(InputError, match="train with 0"):
        task(train=Split([], []), dev=TRAIN)


def test_the_fingerprint_depends_on_the_data():
    fingerprint = task(dev=TRAIN).fingerprint
    assert fingerprint == task(dev=Split(["in", "of"], ["a", "b"])).fingerprint
    others = {
        task(dev=Split(["in", "of"], ["a", "a"])).fingerprint,
        task(dev=Split(["in", "to"], ["a", "b"])).fingerprint,
        task(valid=TRAIN).fingerprint,
        task(dev=TRAIN, test=Split(["in"], None)).fingerprint,
    }
    assert len(others | {fingerprint}) == 5


def test_the_fingerprint_ignores_the_source():
    def tagging(source):
        sentence = Sentence(("in",), ("A",), source, 1)
        other = dataclasses.replace(sentence, tags=("B",))
        split = Split([sentence, other], [("A",), ("B",)])
        return TaskData(
            "tagging", {"train": split, "dev": split}, TagScorer("AB"), None
        )

    assert tagging("a.txt").fingerprint == tagging("b.txt").fingerprint
