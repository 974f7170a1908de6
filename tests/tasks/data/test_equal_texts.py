"""Equal texts are those with the same words after normalization."""

import random

import pytest

from electra_tf.config.data import TokenizationConfig
from electra_tf.tasks.data.duplicates import first_equal_items
from electra_tf.text.normalization import UNIT, CharacterTable
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import SPECIAL_TOKENS, Vocabulary

PIECES = [
    *("a", "A", "\xe1", "a\u0301", "b", "ab", " ", "\t", "\u3000", "\u200b", "."),
    *("\u2019", "\u03a3", "\u03c3", "\u03c2", "\u4e2d", "\u0e01", "\ufffd", "\xad"),
]  # fmt: skip


def first_equals(texts, **settings):
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "[x]"))
    tokenizer = WordPieceTokenizer(vocabulary, TokenizationConfig(**settings))
    return first_equal_items(texts, tokenizer).tolist()


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
    assert first_equals(texts, lower_case=lower_case) == expected


def test_pairs_are_equal_as_pairs():
    pairs = [("a", "b"), ("b", "a"), ("A ", "b"), ("ab", ""), ("a b", "")]
    assert first_equal_items(pairs, None).tolist() == [0, 1, 0, 3, 4]
    assert first_equal_items([], None).tolist() == []


def test_entries_that_are_kept_whole_are_no_other_words():
    texts = ["[x] a", "[X] a", "[ x ] a", "[x]a"]
    assert first_equals(texts) == [0, 0, 0, 0]
    assert first_equals(texts, keep_whole=("[x]",)) == [0, 1, 1, 0]
