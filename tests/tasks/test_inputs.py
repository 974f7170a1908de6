"""Texts, targets and weights that Keras's methods accept, and warnings of them."""

import collections
import threading
import warnings

import keras
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.classifier import TextClassifier, TextRegressor
from electra_tf.tasks.inputs import (
    Inputs,
    check_input,
    encode,
    is_texts,
    num_training_rows,
    positive_or_default,
    to_targets,
    to_weights,
)
from electra_tf.text.encoding import to_rows
from tests import tiny

TEXTS = ["the user can change the file", "a list", "a", "the default value is used"]
PAIRS = [["a", "b"], ["c", "d"], ["e", "f"]]
IDS = np.zeros((2, 8), np.int32)


@pytest.fixture(scope="module")
def model():
    return TextRegressor(tiny.start(), settings=tiny.settings())


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
        (pd.Series(["a", "b"]), ["a", "b"]),
        (pd.DataFrame({"x": ["a", "b"]}), ["a", "b"]),
        (pd.DataFrame({"x": ["a"], "y": ["b"]}), [["a", "b"]]),
        ((pd.Series(["a"]), pd.Series(["b"])), [("a", "b")]),
        (collections.deque(["a", "b"]), ["a", "b"]),
        (collections.UserList(["a"]), ["a"]),
        ({1: "a", 2: "b"}.values(), ["a", "b"]),
        (pa.array(["a", "é"]), ["a", "é"]),
        (pa.chunked_array([["a"], ["b"]]), ["a", "b"]),
        (np.array(["a", "é"], np.dtypes.StringDType()), ["a", "é"]),
        ((pa.array(["a"]), collections.deque(["b"])), [("a", "b")]),
        ([["some", "words"], ["more"]], [["some", "words"], ["more"]]),
        ([], []),
    ],
)
def test_texts_in_any_container(x, rows):
    x = check_input(x)
    assert is_texts(x)
    assert to_rows(x) == rows


def test_two_sentences_are_no_pair():
    two = (["a", "b"], ["c", "d"])
    assert to_rows(two, pairs=False) == [["a", "b"], ["c", "d"]]
    assert to_rows((["a", "b"], ["c"]), pairs=False) == [["a", "b"], ["c"]]


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
def test_sets_and_generators_of_texts_are_errors(x):
    with pytest.raises(InputError, match="pass a list of texts"):
        check_input(x)


def test_a_generator_of_ids_keeps_all_elements():
    found = check_input(({"token_ids": IDS, "n": n}, [n]) for n in range(3))
    assert [element[0]["n"] for element in found] == [0, 1, 2]
    assert list(check_input(number for number in ())) == []


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: check_input(b"good"), "not b'good'"),
        (lambda: to_rows(np.array([b"good", b"caf\xe9"])), "index 1"),
        (lambda: to_weights([[1, 2], [3, 4]], 2), r"shape \[2, 2\] for 2"),
        (lambda: to_weights([np.nan, 1], 2), "nan at index 0"),
        (lambda: to_weights([1, np.inf], 2), "inf at index 1"),
        (lambda: to_weights(["a", 1], 2), "'a'"),
        (lambda: to_weights([[1], [2, 3]], 2), r"\[1\]"),
        (lambda: to_weights(2.0, 2), r"shape \[\] for 2"),
        (lambda: to_weights([1, 2, 3, 4], 3, exact=True), r"shape \[4\] for 3"),
        (lambda: to_weights([1, 2], 3, exact=False), r"shape \[2\] for 3"),
        *[
            (lambda wrong=wrong: positive_or_default("epochs", wrong, 3), "epochs=")
            for wrong in (-1, 1.5, "2", True)
        ],
        *[
            (lambda share=share: num_training_rows(10, share), "validation_split=")
            for share in (-0.1, 1, 1.5, "0.5", None)
        ],
    ],
)
def test_invalid_arguments_are_errors(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_targets_and_weights_in_any_container():
    for values in (
        [0, 0.5],
        np.array([[0], [0.5]]),
        tf.constant([0, 0.5]),
        pd.Series([0, 0.5], index=[7, 8]),
        pd.DataFrame({"column": [0, 0.5]}),
        pa.array([0, 0.5]),
        {"a": 0, "b": 0.5}.values(),
    ):
        assert to_targets(values, columns=True) == [0, 0.5]
        weights = to_weights(values, 2)
        assert (weights.dtype, weights.tolist()) == (np.float32, [0, 0.5])
    tags = to_targets(np.array([["A"], ["B"]]), columns=False)
    assert [row.tolist() for row in tags] == [["A"], ["B"]]
    assert positive_or_default("epochs", np.int64(2), 3) == 2


@pytest.mark.parametrize("count", [2, 3, 10, 11, 40])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9])
def test_a_validation_split_has_the_rows_of_keras(count, share):
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


@pytest.mark.parametrize("pairs", [False, True])
def test_a_data_set_gives_the_batches_of_a_list(model, pairs, monkeypatch):
    monkeypatch.setattr(model, "pairs", None)
    texts = (TEXTS, TEXTS[::-1]) if pairs else TEXTS
    rows = list(zip(*texts, strict=True)) if pairs else texts
    targets, weights = [0.5, 1.0, 0.0, 0.25], [0.5, 1.0, 2.0, 0.0]
    texts = tuple(map(tf.constant, texts)) if pairs else tf.constant(texts)
    elements = (texts, targets, weights)
    dataset = tf.data.Dataset.from_tensor_slices(elements).batch(3)
    prepared = encode(model, Inputs(dataset))
    assert (prepared.x.cardinality(), model.pairs) == (2, pairs)
    for at, found in zip((0, 3), prepared.x, strict=True):
        some = model.examples(rows[at : at + 3], targets[at : at + 3])
        expected = some.weighted(weights[at : at + 3]).batch(
            range(len(some)), len(some)
        )
        tf.nest.map_structure(np.testing.assert_array_equal, found, expected)
        assert [t.dtype for t in tf.nest.flatten(found)] == [
            a.dtype for a in tf.nest.flatten(expected)
        ]
    assert prepared.x.element_spec[0]["token_ids"].shape.as_list() == [None, None]


@pytest.mark.parametrize("mark", [None, np.nan, pd.NA, "", " ", "NaN", "None", "N/A"])
def test_missing_texts_are_an_error_left_out_or_kept(mark):
    def prepared(rule, x, *targets):
        settings = tiny.settings(data_missing_text=rule)
        model = TextRegressor(tiny.start(), settings=settings)
        return encode(model, Inputs(x, *targets)).x

    texts, y, weights = ["the user", mark, "a list"], [1, 0, 0.5], [1, 2, 3]
    with pytest.raises(InputError, match=r"1 of 3 .*index 1; .*missing_text=skip"):
        prepared("error", texts, y)
    with pytest.warns(UserWarning, match="1 of 3 rows"):
        found = prepared("skip", texts, y, weights)
    assert (len(found), list(found.targets)) == (2, [1, 0.5])
    assert list(found.weights) == [1, 3]
    assert len(prepared("keep", pd.Series(texts), y)) == 3
    pairs = [("a", "b"), ("a", mark)]
    with pytest.raises(InputError, match=r"1 of 2 .*index 1"):
        prepared("error", pairs, [0, 1])


def test_each_element_of_a_data_set_is_read_once(model):
    read = []

    def batches():
        for number in range(3):
            read.append(number)
            yield TEXTS[:2], [number, 0.5]

    spec = tf.TensorSpec([2], tf.string), tf.TensorSpec([2], tf.float32)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    encoded = encode(model, Inputs(dataset)).x
    for passes in (1, 2):
        targets = [int(targets[0]) for _, targets, _ in encoded]
        assert targets == [0, 1, 2]
        assert read == [0, 1, 2] * passes


def test_a_data_set_is_tokenized_ahead_of_training(model):
    read = threading.Semaphore(0)

    def batches():
        for _ in range(4):
            yield TEXTS[:2], [0.0, 0.5]
            read.release()

    spec = tf.TensorSpec([2], tf.string), tf.TensorSpec([2], tf.float32)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    encoded = encode(model, Inputs(dataset)).x
    iterator = iter(encoded)
    next(iterator)
    assert [read.acquire(timeout=60) for _ in range(2)] == [True, True]


TENSOR = tf.constant(TEXTS)


@pytest.mark.parametrize(
    "elements",
    [
        (TENSOR,),
        TENSOR,
        (TENSOR, tf.range(4), tf.ones(4), tf.ones(4)),
        (TENSOR, (tf.range(4), tf.range(4))),
        ({"text": TENSOR}, tf.range(4)),
        ((TENSOR,) * 3, tf.range(4)),
        ((TENSOR, tf.range(4)), tf.range(4)),
    ],
)
def test_data_sets_of_another_structure_are_errors(model, elements):
    dataset = tf.data.Dataset.from_tensor_slices(elements).batch(2)
    with pytest.raises(InputError, match=r"batches of \(text, target\)"):
        encode(model, Inputs(dataset))


def test_data_sets_without_batches_are_errors(model):
    dataset = tf.data.Dataset.from_tensor_slices((TEXTS, [0, 1, 1, 0]))
    with pytest.raises(InputError, match=r"call its batch\(\)"):
        encode(model, Inputs(dataset))
    with pytest.raises(InputError, match="empty data set"):
        encode(model, Inputs(dataset.batch(2).take(0)))


# Warnings of texts and targets that models learn badly.

MANY, _ = tiny.texts(12, longest=11, shortest=10)
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
def classifier():
    return make()


FIT = {"epochs": 1, "verbose": 0}


def test_cut_texts_are_counted():
    model, long = make(data_max_length=9), [f"{MANY[0]} {MANY[1]}", *["of"] * 11]
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


def test_texts_that_are_mostly_empty_are_counted(classifier):
    invisible, empty = ([text] * 9 + MANY[:3] for text in ("\u200b", ""))
    for found in (
        messages(classifier.predict, empty),
        messages(classifier.evaluate, invisible, MIXED, verbose=0),
    ):
        assert len(found) == 1
        assert found[0].startswith("9 of 12 texts are empty")
    assert messages(classifier.predict, ["", *MANY]) == []
    assert messages(make().predict, [("", " ")] * 3)[0].startswith("3 of 3")


def test_a_single_class_and_equal_scores_are_named(classifier):
    found = messages(classifier.fit, MANY, ["pos"] * 12, **FIT)
    assert len(found) == 1
    assert found[0].startswith("all 12 texts are of the class 'pos', one of 2")
    for score in (3, 0.5):
        regressor = TextRegressor(tiny.start(), 0, 1, tiny.settings())
        found = messages(regressor.fit, MANY, [score] * 12, **FIT)
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
def test_rows_in_the_order_of_labels_that_are_not_shuffled(classifier, y, is_sorted):
    assert messages(classifier.fit, MANY, y, **FIT) == []
    for name, value in (("shuffle", False), ("validation_split", 0.25)):
        found = messages(classifier.fit, MANY, y, **FIT, **{name: value})
        assert len(found) == is_sorted
        assert all("the 12 rows are in the order" in one for one in found)
        assert all(f"{name}={value}" in one for one in found)
    given = {"validation_data": (MANY, MIXED), "validation_split": 0.25}
    assert messages(classifier.fit, MANY, y, **FIT, **given) == []


def test_scores_that_rise_are_in_order():
    regressor = TextRegressor(tiny.start(), 0, 12, tiny.settings())
    for scores, count in ([*range(12)], 1), ([1, 0, *range(2, 12)], 0):
        found = messages(regressor.fit, MANY, scores, **FIT, validation_split=0.1)
        assert len(found) == count
