"""TextClassifier and TextRegressor: inputs, targets, predictions, arguments."""

import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.classifier import TextClassifier, TextRegressor, encode_texts
from electra_tf.tasks.token_classifier import TokenClassifier
from electra_tf.text import encoding
from electra_tf.text.encoding import encode_rows, truncate
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import Vocabulary
from tests import tiny
from tests.conftest import GOLDEN

TEXTS, LABELS = tiny.texts(8, longest=11, shortest=10)
SCORES = [1.0, 2.5, 5.0, 4.0, 3.0, 1.5, 2.0, 5.0]
FIRST, SECOND = "the user can change the file", "a list of values"


def test_texts_and_pairs_by_hand(tokenizer):
    cls, sep = (tokenizer.vocabulary.ids[name] for name in ("[CLS]", "[SEP]"))
    a, b = tokenizer.encode(FIRST), tokenizer.encode(SECOND)
    texts = encode_texts(tokenizer, [FIRST, "", np.str_("the")], 64, [1, 0, 2])
    assert texts.ids.tolist()[:2] == [[cls, *a, sep], [cls, sep]]
    assert [set(row) for row in texts.segments.tolist()] == [{0}] * 3
    assert (texts.targets.tolist(), texts.truncated, texts.pairs) == (
        [1, 0, 2],
        0,
        False,
    )
    rows = [(FIRST, SECOND), [SECOND, FIRST], ("", ""), (" ", FIRST)]
    pairs = encode_texts(tokenizer, rows, 64)
    assert pairs.ids.tolist() == [
        [cls, *a, sep, *b, sep],
        [cls, *b, sep, *a, sep],
        [cls, sep, sep],
        [cls, sep, *a, sep],
    ]
    assert pairs.segments.tolist()[0] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert pairs.segments.tolist()[2] == [0, 0, 1]
    assert (pairs.targets, pairs.pairs) == (None, True)


def test_long_texts_are_truncated_and_counted(tokenizer):
    cls, sep = (tokenizer.vocabulary.ids[name] for name in ("[CLS]", "[SEP]"))
    long = " ".join([FIRST] * 20)
    a, b = tokenizer.encode(long), tokenizer.encode(SECOND)
    texts = encode_texts(tokenizer, [long, FIRST], 20)
    assert (texts.truncated, texts.ids.tolist()[0]) == (1, [cls, *a[:18], sep])
    pairs = encode_texts(tokenizer, [(SECOND, long), (long, long)], 20)
    assert pairs.truncated == 2
    assert pairs.ids.tolist()[0] == [cls, *b, sep, *a[: 17 - len(b)], sep]
    # 17 wordpieces for two texts: the second of equally long texts is cut.
    assert pairs.ids.tolist()[1] == [cls, *a[:9], sep, *a[:8], sep]
    exact = encode_texts(tokenizer, [FIRST], len(tokenizer.encode(FIRST)) + 2)
    assert exact.truncated == 0


def original_truncate(a, b, longest):
    """Truncate by the published rule: pop from the longer list, else the second."""
    while len(a) + len(b) > longest:
        (a if len(a) > len(b) else b).pop()


def test_truncation_equals_the_original():
    for a, b, longest in itertools.product(range(9), repeat=3):
        theirs = [list(range(a)), list(range(b))]
        ours = truncate([tuple(part) for part in theirs], longest)
        original_truncate(*theirs, longest)
        assert [list(part) for part in ours] == theirs
    assert truncate(["abc"], 2) == ["ab"]


def test_rows_of_any_number_of_texts_equal_those_of_each_text(tokenizer, monkeypatch):
    """Texts are joined in portions; ids above 0xD800 are surrogates of no pair."""
    monkeypatch.setattr(encoding, "_ROWS_PER_STRING", 4)
    texts, _ = tiny.texts(11, longest=9, shortest=0)
    fillers = [f"filler{n}" for n in range(0xD900 - len(tokenizer.vocabulary))]
    entries = [*tokenizer.vocabulary.tokens, *fillers, "zebra"]
    for one in (tokenizer, WordPieceTokenizer(Vocabulary(tuple(entries)))):
        cls, sep = (one.vocabulary.ids[name] for name in ("[CLS]", "[SEP]"))
        parts = [one.encode(f"{text} zebra") for text in texts]
        for length in (None, 5):
            cut = slice(None if length is None else length - 2)
            rows = encode_rows(
                one.wordpieces, one.vocabulary, [f"{t} zebra" for t in texts], length
            )
            assert rows.ids.tolist() == [[cls, *part[cut], sep] for part in parts]
            assert rows.truncated == sum(len(p[cut]) < len(p) for p in parts)
            assert (rows.segments.lengths == rows.ids.lengths).all()
        pairs = list(zip(texts, reversed(texts), strict=True))
        rows = encode_rows(one.wordpieces, one.vocabulary, pairs, 7)
        for row, segments, pair in zip(*rows[:2], pairs, strict=True):
            alone = encode_rows(one.wordpieces, one.vocabulary, [pair], 7)
            assert alone.ids.tolist() == [row.tolist()]
            assert alone.segments.tolist() == [segments.tolist()]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["good", None], "None at index 1"),
        (["good", float("nan")], "nan at index 1"),
        (["good", ("a", "b", "c")], "'a', 'b', 'c'"),
        (["good", ("a", None)], "None.*at index 1"),
        (["good", [2, 5, 3]], r"\[2, 5, 3\] at index 1"),
        (["good", b"bytes"], "b'bytes' at index 1"),
        (["good", ("a", "b")], "all single texts or all pairs.*at index 1"),
        (["good"], "1 texts and 2 targets"),
    ],
)
def test_invalid_texts_are_errors(tokenizer, texts, words):
    with pytest.raises(InputError, match=words):
        encode_texts(tokenizer, texts, 16, [0, 1])


@pytest.fixture(scope="module")
def regressor():
    return TextRegressor(tiny.start(), 1, 5, tiny.settings(**tiny.NO_DROPOUT))


@pytest.mark.parametrize(
    ("labels", "y", "targets"),
    [
        ([1, 2, 3], [1, 3, 2], [0, 2, 1]),
        (["1", "0"], [1, 0, 0], [0, 1, 1]),
        (["-1", "1"], [-1.0, 1.0, "-1"], [0, 1, 0]),
        (np.array(["bad", "good"]), [True, 0.0, np.bool_(True)], [1, 0, 1]),
        (["bad", "good"], np.array([1, 0, 1]), [1, 0, 1]),
        (["bad", "good"], [b"good", np.int64(0), np.str_("good")], [1, 0, 1]),
        (np.array([True, False]), [True, 0, np.bool_(False)], [0, 1, 1]),
        (np.array([1.0, 0.0]), [1, np.float64(0), "1.0"], [0, 1, 0]),
        ([2.5, 0.25, 1.0], [0.25, 1, np.float32(2.5)], [1, 2, 0]),
        ([2**53 + 1, 2**53], [2**53, 2**53 + 1, 2**53], [1, 0, 1]),
    ],
)
def test_names_that_are_numbers_have_precedence_over_indices(labels, y, targets):
    model = TextClassifier(tiny.start(), labels, tiny.settings())
    assert model.examples(TEXTS[:3], y).targets.tolist() == targets
    assert model.labels == tuple(map(str, labels))
    for invalid in (7, 0.5, float("inf"), None, {}, [0]):
        with pytest.raises(InputError, match="at index 2"):
            model.examples(TEXTS[:3], [*y[:2], invalid])


@pytest.mark.parametrize(
    "labels",
    [
        {"pos": 1, "neg": 0}, {1: "pos", 0: "neg"}, {"1": "pos", "0": "neg"},
        {"pos": True, "neg": False}, {np.int64(1): b"pos", np.int64(0): b"neg"},
        pd.Series(["neg", "pos"], index=[4, 3]), dict.fromkeys(["neg", "pos"]).keys(),
    ],
)  # fmt: skip
def test_dictionaries_of_names_and_indices_in_any_order(labels):
    for arguments in ({"labels": labels}, {"start": tiny.start(), "labels": labels}):
        create = TextClassifier if "start" in arguments else saved_run
        assert create(**arguments).labels == ("neg", "pos")
    model = TokenClassifier(tiny.start(), labels, tiny.settings())
    assert model.tags == ("neg", "pos")


def saved_run(**arguments):
    return TextClassifier.from_preset(GOLDEN / "saved" / "run", **arguments)


@pytest.mark.parametrize(
    "labels",
    [
        "pos", b"pos", {"neg", "pos"}, ["a", "b\ud83d"], frozenset("ab"), 3,
        ["a", None], ["a", np.nan], ["a", pd.NA], [["a", "b"], ["c"]],
        {"a": 0, "b": 2}, {"a": 0, "b": 0},
        {"a": 0.5, "b": 1}, {0: 1, 1: 2, 2: 0}, {"a": "x", "b": "y"}, {0: "a", 1: None},
        pd.DataFrame({"neg": [0], "pos": [1]}),
    ],
)  # fmt: skip
def test_labels_without_an_order_or_a_name_are_errors(labels):
    for kind, argument in ((TextClassifier, "labels"), (TokenClassifier, "tags")):
        with pytest.raises(InputError, match=f"{argument} must be a list"):
            kind(tiny.start(), labels, tiny.settings())


def test_rows_of_zeros_and_ones_are_classes_by_name_or_order():
    names, texts = ["pos", "neg"], TEXTS[:4]
    model = TextClassifier(tiny.start(), names, tiny.settings(**tiny.NO_DROPOUT))
    y = pd.Series([0, 0, 0, 1])
    expected = pytest.approx(model.evaluate(texts, y, verbose=0), rel=1e-5)
    one_hot = pd.get_dummies(y.map(dict(enumerate(names))))
    assert list(one_hot) == ["neg", "pos"]
    rows = one_hot[names].to_numpy(np.float32)
    table = pa.table({"neg": [0, 0, 0, 1], "pos": [1, 1, 1, 0]})
    many = one_hot, one_hot[names], table, pd.DataFrame(rows), rows, rows.astype(int)
    for x in (texts, model.examples(texts).batch(range(4), 4)[0]):
        for targets in many:
            assert model.evaluate(x, targets, verbose=0) == expected
        with pytest.raises(InputError, match="'is_neg', 'is_pos'"):
            model.evaluate(x, one_hot.add_prefix("is_"))
    for targets in (rows.tolist(), y.to_numpy()[:, None], pd.DataFrame({"y": y})):
        assert model.evaluate(texts, targets, verbose=0) == expected
    batches = tf.data.Dataset.from_tensors((texts, rows))
    assert model.evaluate(batches, verbose=0) == expected
    numbered = TextClassifier(tiny.start(), ["1", "0"], tiny.settings())
    with pytest.raises(InputError, match="'0', '1'"):
        numbered.evaluate(texts, pd.get_dummies(1 - y))


def test_numbers_that_are_the_value_of_two_names_are_errors():
    model = TextClassifier(tiny.start(), ["1", "1.0"], tiny.settings())
    assert model.examples(TEXTS[:2], ["1.0", "1"]).targets.tolist() == [1, 0]
    with pytest.raises(InputError, match="not 1 at index 1"):
        model.examples(TEXTS[:2], ["1", 1])


def test_rejected_texts_do_not_change_pairs():
    model = TextClassifier(tiny.start(), ("bad", "good"), tiny.settings())
    model.evaluate(TEXTS[:2], [0, 1], verbose=0)
    assert model.pairs is False
    pairs = [("a", "b"), ("c", "d")]
    for method in (model.predict, lambda x: model.evaluate(x, [0, 1])):
        with pytest.raises(InputError, match=r"single texts.*pairs of texts"):
            method(pairs)
    with pytest.raises(InputError, match="one of 'bad', 'good', an integer below 2"):
        model.fit(pairs, [0, 2], verbose=0)
    assert model.pairs is False
    model = TextClassifier(tiny.start(), ("bad", "good"), tiny.settings())
    with pytest.raises(InputError, match="not 2 at index 0"):
        model.fit(TEXTS[:2], [0, 1], validation_data=(TEXTS[:1], [2]), verbose=0)
    assert model.pairs is None


def test_scores_are_scaled_in_training_and_back_in_predictions(regressor):
    targets = regressor.examples(TEXTS, SCORES).targets
    assert targets == pytest.approx([0, 0.375, 1, 0.75, 0.5, 0.125, 0.25, 1])
    inputs, targets_B, _ = regressor.examples(TEXTS, SCORES).batch(range(8), 8)
    assert targets_B.dtype == np.float32
    outputs_B1 = np.array(regressor.predict(inputs, verbose=0))
    predictions = regressor.predict(TEXTS)
    np.testing.assert_allclose(predictions, 1 + 4 * outputs_B1[:, 0], atol=1e-5)
    assert (predictions.shape, predictions.dtype) == ((8,), np.float32)
    scores = regressor.evaluate(TEXTS, SCORES, return_dict=True, verbose=0)
    mse = np.mean((predictions - SCORES) ** 2)
    assert scores == pytest.approx({"loss": mse / 16, "mse": mse}, rel=1e-4)


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "1.5", None, [1.0]])
def test_invalid_score_is_an_error(regressor, score):
    with pytest.raises(InputError, match=r"finite number.* at index 1"):
        regressor.examples(TEXTS[:2], [1.0, score])


def test_scores_beyond_the_range_are_a_warning(regressor):
    with pytest.warns(UserWarning, match="from 0.5 to 5, and low=1, high=5: pass"):
        regressor.fit(TEXTS[:2], [0.5, 5], epochs=2, verbose=0)


def test_names_in_place_of_numbers_of_classes_have_a_remedy():
    model = TextClassifier(tiny.start(), ("0", "1"), tiny.settings())
    with pytest.raises(InputError, match=r"pass labels=\['no', 'yes'\] in place"):
        model.fit(TEXTS[:2], ["yes", "no"], verbose=0)


@pytest.mark.parametrize(
    ("create", "arguments", "words"),
    [
        *(
            (TextRegressor, {"low": low, "high": high}, f"low={low}, high={high}")
            for low, high in ((1, 1), (2, 1), (0, float("inf")))
        ),
        *(
            (TextClassifier, {"labels": labels}, "labels must be")
            for labels in ([], ["a"], ["a", "a"], ["a", "b", "a"])
        ),
        *(
            (TextClassifier, {"labels": labels, "multi_label": True}, "distinct")
            for labels in ([], ["a", "a"])
        ),
        *((TokenClassifier, {"tags": tags}, "tags must be") for tags in ((), "AA")),
        *(
            (saved_run, arguments, "num_classes.* labels")
            for arguments in (
                {},
                {"num_classes": 2, "labels": ["a", "b"]},
                {"num_classes": "2"},
            )
        ),
    ],
)
def test_invalid_arguments_of_models_are_errors(create, arguments, words):
    given = {} if create is saved_run else {"start": tiny.start()}
    with pytest.raises(InputError, match=words):
        create(**given, **arguments)
