"""Equal texts are those with the same words after normalization."""

import random

import pytest

from electra_tf.config.data import TokenizationConfig
from electra_tf.text.checks import first_equals
from electra_tf.text.normalization import UNIT, CharacterTable

PIECES = [
    *("a", "A", "\xe1", "a\u0301", "b", "ab", " ", "\t", "\u3000", "\u200b", "."),
    *("\u2019", "\u03a3", "\u03c3", "\u03c2", "\u4e2d", "\u0e01", "\ufffd", "\xad"),
]  # fmt: skip


def words(text, settings):
    table = CharacterTable(settings)
    return tuple(word for unit in UNIT.findall(text) for word in table.words(unit))


@pytest.mark.parametrize("lower_case", [True, False])
def test_texts_with_equal_words_have_the_same_first_one(lower_case):
    settings = TokenizationConfig(lower_case=lower_case)
    rng = random.Random(0)
    texts = ["".join(rng.choices(PIECES, k=rng.randint(0, 4))) for _ in range(3000)]
    first, expected = {}, []
    for index, text in enumerate(texts):
        expected.append(first.setdefault(words(text, settings), index))
    assert 400 < len(first) < 2900
    assert first_equals(texts, settings).tolist() == expected


def test_pairs_are_equal_as_pairs():
    pairs = [("a", "b"), ("b", "a"), ("A ", "b"), ("ab", ""), ("a b", "")]
    assert first_equals(pairs, TokenizationConfig()).tolist() == [0, 1, 0, 3, 4]
    assert first_equals([], TokenizationConfig()).tolist() == []


def test_entries_that_are_kept_whole_are_no_other_words():
    texts = ["[x] a", "[X] a", "[ x ] a", "[x]a"]
    whole = TokenizationConfig(keep_whole=("[x]",))
    assert first_equals(texts, TokenizationConfig()).tolist() == [0, 0, 0, 0]
    assert first_equals(texts, whole).tolist() == [0, 1, 1, 0]
