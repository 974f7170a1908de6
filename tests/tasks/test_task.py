"""What all tasks share: which parts are measured, and what tells data apart."""

import dataclasses

import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.classification.task import ClassificationTask
from electra_tf.tasks.data.conll import Sentence
from electra_tf.tasks.tagging.task import TaggingTask
from electra_tf.tasks.task import Split

TRAIN = Split(["in", "of"], ["a", "b"])


def task(**parts):
    return ClassificationTask(
        "csv", {"train": TRAIN, **parts}, ("accuracy",), ("a", "b")
    )


def test_labelled_parts_are_measured_and_the_first_one_names_the_headline():
    mnli = task(test=Split(["in"], None), dev_m=TRAIN, dev_mm=Split(["to"], ["a"]))
    assert list(mnli.eval_splits) == ["dev_m", "dev_mm"]
    assert mnli.monitor == "dev_m_accuracy"
    assert [len(part) for part in mnli.splits.values()] == [2, 1, 2, 1]


def test_nothing_to_learn_from_or_to_measure_on_is_told():
    with pytest.raises(InputError, match=r"test with 1; labelled beside train: none"):
        task(test=Split(["in"], None))
    with pytest.raises(InputError, match="dev with 0"):
        task(dev=Split([], []))
    with pytest.raises(InputError, match="train with 0"):
        task(train=Split([], []), dev=TRAIN)


def test_a_fingerprint_tells_data_apart():
    one = task(dev=TRAIN).fingerprint
    assert one == task(dev=Split(["in", "of"], ["a", "b"])).fingerprint
    others = {
        task(dev=Split(["in", "of"], ["a", "a"])).fingerprint,
        task(dev=Split(["in", "to"], ["a", "b"])).fingerprint,
        task(valid=TRAIN).fingerprint,
        task(dev=TRAIN, test=Split(["in"], None)).fingerprint,
    }
    assert len(others | {one}) == 5


def test_a_fingerprint_does_not_tell_folders_apart():
    def tagging(source):
        sentence = Sentence(("in",), ("A",), source, 1)
        other = dataclasses.replace(sentence, tags=("B",))
        part = Split([sentence, other], [("A",), ("B",)])
        return TaggingTask("tagging", {"train": part, "dev": part})

    assert tagging("a.txt").fingerprint == tagging("b.txt").fingerprint
