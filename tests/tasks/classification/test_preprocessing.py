"""Encoding of texts and pairs, and truncation, by hand and by the published rule."""

import numpy as np
import pytest

from electra_tf.errors import InputError
from electra_tf.tasks.classification.preprocessing import encode_texts, truncate
from electra_tf.text.tokenizer import Tokenizer

FIRST, SECOND = "the user can change the file", "a list of values"


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return Tokenizer(vocabulary)


@pytest.fixture(scope="module")
def special_ids(vocabulary):
    return vocabulary.ids["[CLS]"], vocabulary.ids["[SEP]"]


def test_texts_and_pairs_by_hand(tokenizer, special_ids):
    cls, sep = special_ids
    a, b = tokenizer.encode(FIRST), tokenizer.encode(SECOND)
    assert len(a) > 4
    assert len(b) > 3
    encoded = encode_texts(
        tokenizer, [FIRST, (FIRST, SECOND), [SECOND, FIRST]], 64, [1, 0, 2]
    )
    assert list(encoded.ids) == [
        [cls, *a, sep],
        [cls, *a, sep, *b, sep],
        [cls, *b, sep, *a, sep],
    ]
    ones = [0] * (len(a) + 2), [1] * (len(b) + 1)
    assert list(encoded.segments) == [
        ones[0],
        ones[0] + ones[1],
        [0] * (len(b) + 2) + [1] * (len(a) + 1),
    ]
    assert (encoded.targets, encoded.truncated, encoded.max_length) == (
        [1, 0, 2],
        0,
        64,
    )


def test_empty_texts(tokenizer, special_ids):
    cls, sep = special_ids
    encoded = encode_texts(tokenizer, ["", ("", ""), (" ", FIRST)], 64)
    a = tokenizer.encode(FIRST)
    assert list(encoded.ids) == [[cls, sep], [cls, sep, sep], [cls, sep, *a, sep]]
    assert encoded.segments[1] == [0, 0, 1]
    assert encoded.targets is None


def test_long_texts_are_truncated_and_counted(tokenizer, special_ids):
    cls, sep = special_ids
    long, b = " ".join([FIRST] * 20), tokenizer.encode(SECOND)
    a = tokenizer.encode(long)
    encoded = encode_texts(tokenizer, [long, FIRST, (SECOND, long), (long, long)], 20)
    assert encoded.truncated == 3
    assert encoded.lengths.tolist()[0] == 20
    assert encoded.lengths[2:].tolist() == [20, 20]
    assert encoded.ids[0] == [cls, *a[:18], sep]
    assert encoded.ids[2] == [cls, *b, sep, *a[: 17 - len(b)], sep]
    # 17 wordpieces for two texts: the second of equally long texts is cut.
    assert encoded.ids[3] == [cls, *a[:9], sep, *a[:8], sep]
    exact = encode_texts(tokenizer, [FIRST], len(tokenizer.encode(FIRST)) + 2)
    assert exact.truncated == 0


def original_truncate(a, b, longest):
    """Truncate by the published rule: pop from the longer list, else the second."""
    while len(a) + len(b) > longest:
        (a if len(a) > len(b) else b).pop()


def test_truncation_equals_the_original():
    for a in range(9):
        for b in range(9):
            for longest in range(9):
                ours = [list(range(a)), list(range(b))]
                theirs = [list(range(a)), list(range(b))]
                assert truncate(ours, longest) == (a + b > longest)
                original_truncate(*theirs, longest)
                assert ours == theirs
    alone = [[1, 2, 3]]
    assert truncate(alone, 2)
    assert alone == [[1, 2]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "None at index 1"),
        (float("nan"), "nan at index 1"),
        (("a", "b", "c"), "'a', 'b', 'c'"),
        (("a", None), "None.*at index 1"),
        ([2, 5, 3], r"\[2, 5, 3\] at index 1"),
        (b"bytes", "b'bytes' at index 1"),
    ],
)
def test_invalid_text_is_an_error(tokenizer, text, words):
    with pytest.raises(InputError, match=words):
        encode_texts(tokenizer, ["good", text], 16)


def test_wrong_number_of_targets_or_max_length_is_an_error(tokenizer):
    with pytest.raises(InputError, match="2 texts and 1 targets"):
        encode_texts(tokenizer, ["a", "b"], 16, [1])
    with pytest.raises(InputError, match="max_length=2"):
        encode_texts(tokenizer, ["a"], 2)
    assert encode_texts(tokenizer, [("a", "b")], 3).lengths.tolist() == [3]
    assert encode_texts(tokenizer, [np.str_("the")], 16).lengths.tolist() == [3]
