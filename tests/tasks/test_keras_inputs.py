"""Targets, weights, shares and iterators, as Keras's methods get them."""

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.keras_inputs import (
    check_iterator,
    num_training_rows,
    positive_or_default,
    require_ids,
    to_targets,
    to_weights,
)


def test_a_number_of_1_or_more_or_the_settings_default():
    assert positive_or_default("epochs", None, 3) == 3
    assert positive_or_default("epochs", np.int64(2), 3) == 2
    for wrong in (0, -1, 1.5, "2", True):
        with pytest.raises(InputError, match=f"epochs={wrong!r}"):
            positive_or_default("epochs", wrong, 3)


@pytest.mark.parametrize(
    "y",
    [
        [0, 1],
        np.array([0, 1]),
        tf.constant([0, 1]),
        pd.Series([0, 1], index=[7, 8]),
        pd.DataFrame({"label": [0, 1]}),
        np.array([[0], [1]]),
    ],
)
def test_targets_in_all_forms(y):
    assert to_targets(y, columns=True) == [0, 1]


def test_rows_of_targets_stay_rows():
    assert to_targets(None, True) is None
    rows = to_targets(np.eye(2), True)
    assert [row.tolist() for row in rows] == [[1, 0], [0, 1]]
    tags = to_targets(np.array([["A"], ["B"]]), columns=False)
    assert [row.tolist() for row in tags] == [["A"], ["B"]]


@pytest.mark.parametrize(
    "weights",
    [
        [1, 0.5],
        np.array([[1], [0.5]]),
        tf.constant([1, 0.5]),
        pd.Series([1, 0.5]),
        pd.DataFrame({"w": [1, 0.5]}),
    ],
)
def test_weights_in_all_forms(weights):
    found = to_weights(weights, 2)
    assert found.dtype == np.float32
    assert found.tolist() == [1, 0.5]
    assert to_weights(None, 2) is None


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0], r"shape \[1\] for 2"),
        ([[1, 2], [3, 4]], r"shape \[2, 2\] for 2"),
        ([1, -2], "-2.0 at place 1"),
        ([np.nan, 1], "nan at place 0"),
        ([1, np.inf], "inf at place 1"),
        (["a", 1], "'a'"),
        ([[1], [2, 3]], r"\[1\]"),
        (2.0, r"shape \[\] for 2"),
    ],
)
def test_weights_that_are_none_are_refused(weights, words):
    with pytest.raises(InputError, match=words):
        to_weights(weights, 2)


@pytest.mark.parametrize("count", [2, 3, 10, 11, 40])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9])
def test_a_share_is_counted_as_keras_does(count, share):
    from keras.src.trainers.data_adapters.array_slicing import train_validation_split

    try:
        ((train,), (held_out,)) = train_validation_split((np.arange(count),), share)
    except ValueError:
        with pytest.raises(InputError, match=f"validation_split={share} of {count}"):
            num_training_rows(count, share)
        return
    kept = num_training_rows(count, share)
    assert train.tolist() == list(range(kept))
    assert held_out.tolist() == list(range(kept, count))


@pytest.mark.parametrize("share", [-0.1, 1, 1.5, "0.5", None])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(InputError, match="validation_split="):
        num_training_rows(10, share)


def test_a_dictionary_that_is_none_of_ids_is_refused():
    ids = dict.fromkeys(("token_ids", "segment_ids", "padding_mask"))
    require_ids(ids)
    with pytest.raises(InputError, match=r"\['text'\], without token_ids, segment"):
        require_ids({"text": ["a"]})


def test_a_generator_of_ids_loses_nothing():
    ids = {"token_ids": np.ones((1, 2), np.int32)}
    found = check_iterator(({**ids, "n": n}, [n]) for n in range(3))
    assert [element[0]["n"] for element in found] == [0, 1, 2]
    assert list(check_iterator(number for number in ())) == []


class Batches(keras.utils.PyDataset):
    """Of texts."""

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return ["a", "b"], [0, 1]


@pytest.mark.parametrize(
    "x",
    [
        (text for text in ["a", "b"]),
        ((["a", "b"], [0, 1]) for _ in range(2)),
        ((("a", "b"), [0, 1]) for _ in range(2)),
        ((np.array(["a", "b"]), [0, 1]) for _ in range(2)),
        ((tf.constant(["a", "b"]), [0, 1]) for _ in range(2)),
        ((["the", "of"], ["A", "B"]) for _ in range(2)),
        iter(["a", "b"]),
        map(str, ["a"]),
        {"a", "b"},
        Batches(),
    ],
)
def test_texts_without_an_order_to_read_twice_are_refused(x):
    with pytest.raises(InputError, match="Pass a list of texts"):
        check_iterator(x)


def test_what_is_read_twice_is_left_as_it_is():
    texts = ["a"]
    assert check_iterator(texts) is texts
    batches = tf.data.Dataset.from_tensors("text")
    assert check_iterator(batches) is batches
    assert check_iterator(pd.Series(["a", "b"])).tolist() == ["a", "b"]
    assert check_iterator(pd.DataFrame({"x": ["a", "b"]})).tolist() == ["a", "b"]
    pairs = check_iterator(pd.DataFrame({"x": ["a"], "y": ["b"]}))
    assert pairs.tolist() == [["a", "b"]]
