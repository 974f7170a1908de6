"""Warnings of texts and targets that `fit`, `evaluate` and `predict` learn badly."""

import warnings

import numpy as np
import pandas as pd
import pytest

from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from tests import tiny

TEXTS, _ = tiny.texts(12, longest=11, shortest=10)
MIXED, SORTED = ["neg", "pos"] * 6, ["neg"] * 6 + ["pos"] * 6


def make(**settings):
    start, settings = tiny.start(), tiny.settings(**settings)
    return TextClassifier(start, ["neg", "pos"], settings)


def messages(call, *arguments, **options):
    """Return the warnings of a call, which are all at the caller's line."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call(*arguments, **options)
    found = [one for one in found if one.category is UserWarning]
    assert {one.filename for one in found} <= {__file__}
    return [str(one.message) for one in found]


@pytest.fixture(scope="module")
def model():
    return make()


FIT = {"epochs": 1, "verbose": 0}


def test_cut_texts_are_counted():
    model, long = make(data_max_length=9), [f"{TEXTS[0]} {TEXTS[1]}", *["of"] * 11]
    cut = "1 of 12 inputs were cut at data.max_length=9"
    for found in (
        messages(model.predict, long),
        messages(model.evaluate, long, MIXED, verbose=0),
        messages(model.fit, long, MIXED, **FIT),
    ):
        assert len(found) == 1
        assert found[0].startswith(cut)
    short = ["of"] * 12
    assert messages(model.fit, short, MIXED, **FIT) == []
    pairs = list(zip(long, short, strict=True))
    assert messages(make(data_max_length=9).predict, pairs)[0].startswith(cut)


def test_texts_that_are_mostly_empty_are_counted(model):
    invisible, empty = ([text] * 9 + TEXTS[:3] for text in ("\u200b", ""))
    for found in (
        messages(model.predict, empty),
        messages(model.evaluate, invisible, MIXED, verbose=0),
    ):
        assert len(found) == 1
        assert found[0].startswith("9 of 12 texts are empty")
    assert messages(model.predict, ["", *TEXTS]) == []
    assert messages(make().predict, [("", " ")] * 3)[0].startswith("3 of 3")


def test_a_single_class_and_equal_scores_are_named(model):
    found = messages(model.fit, TEXTS, ["pos"] * 12, **FIT)
    assert len(found) == 1
    assert found[0].startswith("all 12 texts are of the class 'pos', one of 2")
    for score in (3, 0.5):
        regressor = TextRegressor(tiny.start(), 0, 1, tiny.settings())
        found = messages(regressor.fit, TEXTS, [score] * 12, **FIT)
        assert len(found) == 1
        assert found[0].startswith(f"all 12 scores are {score}: ")
        assert "low" not in found[0]


@pytest.mark.parametrize(
    ("y", "is_sorted"),
    [
        (MIXED, False), (SORTED, True), (np.array([1] * 6 + [0] * 6), True),
        (pd.get_dummies(pd.Series(SORTED)), True), ([[1, 0]] * 6 + [[0, 1]] * 6, True),
    ],
)  # fmt: skip
def test_rows_in_the_order_of_labels_that_are_not_shuffled(model, y, is_sorted):
    assert messages(model.fit, TEXTS, y, **FIT) == []
    for name, value in (("shuffle", False), ("validation_split", 0.25)):
        found = messages(model.fit, TEXTS, y, **FIT, **{name: value})
        assert len(found) == is_sorted
        assert all("the 12 rows are in the order" in one for one in found)
        assert all(f"{name}={value}" in one for one in found)
    given = {"validation_data": (TEXTS, MIXED), "validation_split": 0.25}
    assert messages(model.fit, TEXTS, y, **FIT, **given) == []


def test_scores_that_rise_are_in_order():
    regressor = TextRegressor(tiny.start(), 0, 12, tiny.settings())
    for scores, count in ([*range(12)], 1), ([1, 0, *range(2, 12)], 0):
        found = messages(regressor.fit, TEXTS, scores, **FIT, validation_split=0.1)
        assert len(found) == count
