import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.classification.preprocessing import encode_texts
from electra_tf.tasks.text_inputs import (
    is_text_dataset,
    is_texts,
    to_array,
    to_rows,
    tokenize_dataset,
)
from electra_tf.text.tokenizer import Tokenizer

TEXTS = ["the user can change the file", "a list", "", "the default value is used"]
PAIRS = [["a", "b"], ["c", "d"], ["e", "f"]]


class Series:
    """Stand-in for a column of a data frame."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return np.array(self.values, object)

    def __len__(self):
        return len(self.values)


@pytest.fixture(scope="module")
def examples(vocabulary):
    tokenizer = Tokenizer(vocabulary)

    def encode(texts, targets=None, sample_weight=None, class_weight=None):
        encoded = encode_texts(tokenizer, texts, 32, targets)
        assert class_weight is None
        return encoded if sample_weight is None else encoded.weighted(sample_weight)

    return encode


@pytest.mark.parametrize(
    ("x", "rows"),
    [
        (["a", "b"], ["a", "b"]),
        (("a", "b"), ["a", "b"]),
        ((["a", "b"], ["c", "d"]), [("a", "c"), ("b", "d")]),
        ([("a", "c"), ("b", "d")], [("a", "c"), ("b", "d")]),
        ((np.array(["a", "b"]), ["c", "d"]), [("a", "c"), ("b", "d")]),
        (np.array(["a", "bc"]), ["a", "bc"]),
        (np.array(["a", "bc"], object), ["a", "bc"]),
        (np.array([b"a", "é".encode()]), ["a", "é"]),
        (np.array(["é".encode()], object), ["é"]),
        (np.array(PAIRS), PAIRS),
        (tf.constant(["a", "é"]), ["a", "é"]),
        (tf.constant(PAIRS), PAIRS),
        ((tf.constant(["a"]), tf.constant(["b"])), [("a", "b")]),
        ([b"a", "é".encode()], ["a", "é"]),
        ([(b"a", "b")], [("a", "b")]),
        ((Series(["a"]), Series(["b"])), [("a", "b")]),
        ([["some", "words"], ["more"]], [["some", "words"], ["more"]]),
        ([], []),
    ],
)
def test_to_rows(x, rows):
    assert is_texts(x)
    assert to_rows(x) == rows


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((2, 8), np.int32),
        np.array("one text"),
        [np.zeros((2, 8), np.int32)],
        {"token_ids": np.zeros((2, 8), np.int32)},
        [{"token_ids": np.zeros((2, 8), np.int32)}],
        [1, 2],
        [np.int64(1)],
        tf.zeros((2, 8)),
        (tf.zeros((2, 8)), tf.zeros((2, 8))),
        tf.data.Dataset.from_tensors("text"),
        "one text",
        None,
    ],
)
def test_ids_and_data_sets_are_not_texts(x):
    assert is_texts(x) is False


def test_to_rows_keeps_two_sentences_without_pairs():
    two = (["a", "b"], ["c", "d"])
    assert to_rows(two) == [("a", "c"), ("b", "d")]
    assert to_rows(two, pairs=False) == [["a", "b"], ["c", "d"]]
    assert to_rows((["a", "b"], ["c"]), pairs=False) == [["a", "b"], ["c"]]


def test_to_array():
    assert to_array(Series(["a", "b"])).tolist() == ["a", "b"]
    assert to_array(["a"]) == ["a"]
    assert to_array(pd.DataFrame({"text": ["a", "b"]})).tolist() == ["a", "b"]
    assert to_array(pd.DataFrame({"a": ["b"], "c": ["d"]})).tolist() == [["b", "d"]]
    for text in ("good", b"good"):
        with pytest.raises(InputError, match="good' alone"):
            to_array(text)


def test_to_rows_rejects_unequal_columns_and_other_encodings():
    with pytest.raises(InputError, match="2 and 1"):
        to_rows((["a", "b"], ["c"]))
    with pytest.raises(InputError, match="index 1"):
        to_rows(np.array([b"good", b"caf\xe9"]))


def test_is_text_dataset():
    texts, targets = tf.constant(TEXTS), tf.range(4)
    make = tf.data.Dataset.from_tensor_slices
    assert is_text_dataset(make((texts, targets))) is True
    assert is_text_dataset(make(((texts, texts), targets))) is True
    assert is_text_dataset(make(({"token_ids": targets}, targets))) is False
    # Words as targets do not make ids texts.
    assert is_text_dataset(make((targets, texts))) is False


def check(found, expected):
    inputs, targets_B, weights_B = found
    assert set(inputs) == set(expected[0])
    for name, values in expected[0].items():
        np.testing.assert_array_equal(inputs[name], values)
        assert inputs[name].dtype == tf.int32
    np.testing.assert_array_equal(targets_B, expected[1])
    np.testing.assert_array_equal(weights_B, np.ones(len(targets_B)))


@pytest.mark.parametrize("pairs", [False, True])
def test_tokenize_dataset_gives_the_batches_of_a_list(examples, pairs):
    texts = (TEXTS, TEXTS[::-1]) if pairs else TEXTS
    rows = list(zip(*texts, strict=True)) if pairs else texts
    targets = [0.5, 1.0, 0.0, 0.25]
    texts = tuple(map(tf.constant, texts)) if pairs else tf.constant(texts)
    dataset = tf.data.Dataset.from_tensor_slices((texts, targets)).batch(3)
    found = tokenize_dataset(dataset, examples)
    assert found.cardinality() == 2
    batches = list(found)
    for at, batch in zip((0, 3), batches, strict=True):
        some = examples(rows[at : at + 3], targets[at : at + 3])
        check(batch, some.batch(range(len(some)), len(some)))
    assert batches[0][1].shape == (3,)
    assert batches[1][1].shape == (1,)
    specs = found.element_spec
    assert specs[0]["token_ids"].shape.as_list() == [None, None]
    assert (specs[1].dtype, specs[2].dtype) == (tf.float32, tf.float32)


@pytest.mark.parametrize(
    "elements",
    [
        (tf.constant(TEXTS),),
        tf.constant(TEXTS),
        (tf.constant(TEXTS), tf.range(4), tf.ones(4), tf.ones(4)),
        (tf.constant(TEXTS), (tf.range(4), tf.range(4))),
        ({"text": tf.constant(TEXTS)}, tf.range(4)),
        ((tf.constant(TEXTS),) * 3, tf.range(4)),
        ((tf.constant(TEXTS), tf.range(4)), tf.range(4)),
    ],
)
def test_tokenize_dataset_rejects_other_structures(examples, elements):
    dataset = tf.data.Dataset.from_tensor_slices(elements).batch(2)
    with pytest.raises(InputError, match=r"batches of \(text, target\)"):
        tokenize_dataset(dataset, examples)


def test_tokenize_dataset_keeps_weights(examples):
    elements = TEXTS, [0, 1, 1, 0], [0.5, 1.0, 2.0, 0.0]
    dataset = tf.data.Dataset.from_tensor_slices(elements).batch(3)
    found = list(tokenize_dataset(dataset, examples))
    assert [weights_B.numpy().tolist() for _, _, weights_B in found] == [
        [0.5, 1.0, 2.0], [0.0]
    ]  # fmt: skip
    assert found[0][1].numpy().tolist() == [0, 1, 1]


def test_tokenize_dataset_rejects_single_texts_and_no_batches(examples):
    dataset = tf.data.Dataset.from_tensor_slices((TEXTS, [0, 1, 1, 0]))
    with pytest.raises(InputError, match=r"Call its batch\(\)"):
        tokenize_dataset(dataset, examples)
    with pytest.raises(InputError, match="Received: an empty data set"):
        tokenize_dataset(dataset.batch(2).take(0), examples)
