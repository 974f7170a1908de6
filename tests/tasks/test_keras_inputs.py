"""Validation and conversion of the arguments of Keras's methods."""

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.keras_inputs import (
    check_iterator,
    check_length,
    check_steps_per_epoch,
    compile_arguments,
    num_training_rows,
    positive_or_default,
    reject_text_call,
    require_ids,
    split_texts,
    steps_per_epoch,
    to_targets,
    to_weights,
    unpack_batch,
)


def test_positive_or_default():
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
def test_to_targets(y):
    assert to_targets(y, columns=True) == [0, 1]


def test_to_targets_keeps_rows():
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
def test_to_weights(weights):
    found = to_weights(weights, 2)
    assert found.dtype == np.float32
    assert found.tolist() == [1, 0.5]
    assert to_weights(None, 2) is None


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0], r"shape \[1\] for 2"),
        ([[1, 2], [3, 4]], r"shape \[2, 2\] for 2"),
        ([1, -2], "-2.0 at index 1"),
        ([np.nan, 1], "nan at index 0"),
        ([1, np.inf], "inf at index 1"),
        (["a", 1], "'a'"),
        ([[1], [2, 3]], r"\[1\]"),
        (2.0, r"shape \[\] for 2"),
    ],
)
def test_to_weights_rejects_invalid_weights(weights, words):
    with pytest.raises(InputError, match=words):
        to_weights(weights, 2)


@pytest.mark.parametrize("count", [2, 3, 10, 11, 40])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9])
def test_num_training_rows_equals_keras(count, share):
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
def test_num_training_rows_rejects_invalid_shares(share):
    with pytest.raises(InputError, match="validation_split="):
        num_training_rows(10, share)


def test_require_ids():
    ids = dict.fromkeys(("token_ids", "segment_ids", "padding_mask"))
    require_ids(ids)
    with pytest.raises(InputError, match=r"\['text'\], without token_ids, segment"):
        require_ids({"text": ["a"]})


def test_check_iterator_keeps_all_elements_of_a_generator():
    ids = {"token_ids": np.ones((1, 2), np.int32)}
    found = check_iterator(({**ids, "n": n}, [n]) for n in range(3))
    assert [element[0]["n"] for element in found] == [0, 1, 2]
    assert list(check_iterator(number for number in ())) == []


class Batches(keras.utils.PyDataset):
    """One batch of two texts."""

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
def test_check_iterator_rejects_sets_and_generators_of_texts(x):
    with pytest.raises(InputError, match="Pass a list of texts"):
        check_iterator(x)


def test_check_iterator_returns_other_inputs_unchanged():
    texts = ["a"]
    assert check_iterator(texts) is texts
    batches = tf.data.Dataset.from_tensors("text")
    assert check_iterator(batches) is batches
    assert check_iterator(pd.Series(["a", "b"])).tolist() == ["a", "b"]
    assert check_iterator(pd.DataFrame({"x": ["a", "b"]})).tolist() == ["a", "b"]
    pairs = check_iterator(pd.DataFrame({"x": ["a"], "y": ["b"]}))
    assert pairs.tolist() == [["a", "b"]]


def test_split_texts():
    weights = [1.0, 2.0, 3.0], {"a": 2}
    first, last = split_texts(["x", "y", "z"], [0, 1, 2], weights, 0.3, True, True)
    assert first[:2] == (["x", "y"], [0, 1])
    assert (first[2][0].tolist(), first[2][1]) == ([1, 2], {"a": 2})
    assert (last[0], last[1], last[2].tolist()) == (["z"], [2], [3])
    assert split_texts(["x", "y"], None, (None, None), 0.5, True, True)[1] == (
        ["y"],
        None,
        None,
    )
    with pytest.raises(InputError, match=r"validation_split=0\.3 with a dict"):
        split_texts({}, None, (None, None), 0.3, True, True)


def test_steps_per_epoch():
    ids = {"token_ids": np.zeros((10, 4))}
    assert steps_per_epoch(ids, 4, {}) == 3
    assert steps_per_epoch(ids, 4, {"validation_split": 0.3}) == 2
    assert steps_per_epoch(ids, 4, {"steps_per_epoch": 7}) == 7
    assert steps_per_epoch(tf.data.Dataset.range(5), 4, {}) == 5
    assert steps_per_epoch(iter([]), 4, {}) == -1


def test_unsupported_arguments_are_rejected():
    with pytest.raises(InputError, match=r"steps_per_epoch=3"):
        check_steps_per_epoch({"steps_per_epoch": 3})
    check_steps_per_epoch({"steps_per_epoch": None})
    for name, value in (("loss", "mse"), ("loss_weights", [1]), ("jit_compile", True)):
        with pytest.raises(InputError, match=rf"compile\({name}="):
            compile_arguments("Model", **{name: value, "metrics": []})
    compile_arguments("Model", jit_compile="auto", loss=None)


def test_arguments_of_compile_by_position():
    arguments = compile_arguments("Model", None, None, ["accuracy"], run_eagerly=True)
    assert arguments["metrics"] == ["accuracy"]
    assert arguments["run_eagerly"]
    for values in (["mse", ["accuracy"]], [None, ["accuracy"]]):
        with pytest.raises(InputError, match=r"accuracy|mse.*metrics=\["):
            compile_arguments("Model", *values)
    for named in ({"metric": ["accuracy"]}, {"loss": None}):
        with pytest.raises(InputError, match=next(iter(named))):
            compile_arguments("Model", None, **named)
    for texts in ("a", ["a"], tf.constant(["a"]), np.array(["a"])):
        with pytest.raises(InputError, match="predict"):
            reject_text_call(texts)
    reject_text_call({"token_ids": tf.zeros((1, 2))})
    with pytest.raises(InputError, match=r"at most the encoder's 64 .*Received: 65"):
        check_length(65, 64)
    check_length(64, 64)


def test_unpack_batch_has_weights_of_1_by_default():
    inputs = {"token_ids": tf.zeros((3, 2), tf.int32)}
    assert unpack_batch((inputs, [1, 2, 3]))[2].numpy().tolist() == [1, 1, 1]
    weights_B = unpack_batch((inputs, [1, 2, 3], tf.constant([1, 0, 2])))[2]
    assert (weights_B.dtype, weights_B.numpy().tolist()) == (tf.float32, [1, 0, 2])
