"""Windows in the graph are those of the answerer."""

import random

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.tasks.request_limits import MAX_PARTS
from electra_tf.tasks.squad.decoding import piece_characters
from electra_tf.tasks.squad.preprocessing import (
    QAFeatureConfig,
    make_features,
    split_words,
)
from electra_tf.tasks.squad.preprocessing_graph import GraphWindows
from electra_tf.tasks.squad.reader import Question
from electra_tf.text.normalization import CharacterTable
from electra_tf.text.tokenizer import Tokenizer

WORDS = (
    *(
        "the",
        "file,",
        "configuration",
        "(ΟΔΟΣ)",
        "中文",
        "cafe\u0301",
        "\u0301",
        "\xa0",
    ),
    *("of\t", " \r\n", "\u202f", "\u3000x", "\u200b", "İß", "[UNK]", "q" * 201, "\0"),
)


def pairs(count=30, seed=0):
    """Questions and contexts."""
    rng = random.Random(seed)
    made = [
        [" ".join(rng.choices(WORDS, k=rng.randint(0, longest))) for longest in (9, 50)]
        for _ in range(count)
    ]
    return [*made, ["", ""], ["the", ""], ["", " \t"], ["of", "\u200b"], ["", "of"]]


def columns(rows):
    return [tf.constant(side, tf.string) for side in zip(*rows, strict=True)]


def cut(row, tokenizer, rule):
    question = Question("", *row, (), False, "", "test", 0)
    return make_features(question, tokenizer, rule)


def places(context, tokenizer):
    """Characters of each piece of a context, as the answerer finds them."""
    found = []
    for first, beyond in split_words(context):
        own = piece_characters(
            context[first:beyond], tokenizer, CharacterTable(tokenizer.settings)
        )
        found += [(first + start, first + end) for start, end in own]
    return found


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return Tokenizer(vocabulary)


# Room for one piece; overlap; a stride beyond the room; a last window shorter by more
# than 100, whose length then counts; all in one window.
RULES = [
    QAFeatureConfig(8, 4, 3),
    QAFeatureConfig(16, 7, 5),
    QAFeatureConfig(24, 4, 2),
    QAFeatureConfig(20, 6, 100),
    QAFeatureConfig(256, 4, 200),
    QAFeatureConfig(512, 64, 128),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.max_length))
def test_windows_equal_those_of_the_answerer(tokenizer, rule):
    rows = [*pairs(), ["of", "the of in " * 110]]
    inputs, book = GraphWindows(tokenizer, rule)(*columns(rows))
    expected = [
        (number, window)
        for number, row in enumerate(rows)
        for window in cut(row, tokenizer, rule)
    ]
    assert book.row_P.numpy().tolist() == [number for number, _ in expected]
    assert (len(expected) > len(rows)) == (rule.max_length < 512)
    all_places = [places(context, tokenizer) for _, context in rows]
    base = np.cumsum([1, *map(len, all_places)])
    longest = max(len(window.ids) for _, window in expected)
    assert all(array.shape == (len(expected), longest) for array in inputs.values())
    arrays = [inputs[n].numpy() for n in ("token_ids", "segment_ids", "padding_mask")]
    arrays += [book.max_context_PL.numpy(), book.piece_PL.numpy()]
    for place, (number, window) in enumerate(expected):
        length = len(window.ids)
        pieces = [window.piece(position) for position in range(length)]
        pieces = [0 if n is None else n + base[number] for n in pieces]
        wanted = [window.ids, window.segments, [1] * length, window.max_context, pieces]
        for array, row in zip(arrays, wanted, strict=True):
            assert array[place, :length].tolist() == row
            assert not array[place, length:].any()
    flat = [(-1, -1), *(place for each in all_places for place in each)]
    assert list(zip(book.first_T.numpy(), book.beyond_T.numpy(), strict=True)) == flat


def test_every_piece_is_best_in_one_window(tokenizer):
    context = tf.constant(["the of in and to for with on " * 6])
    inputs, book = GraphWindows(tokenizer, QAFeatureConfig(16, 4, 3))(
        tf.constant([""]), context
    )
    # 48 pieces, 13 a window, 3 further each time: 1 + ceil(35 / 3).
    assert inputs["token_ids"].shape == (13, 16)
    shown = book.piece_PL.numpy()[book.max_context_PL.numpy()]
    assert sorted(shown.tolist()) == list(range(1, 49))
    # Piece 9 has 8 before and 4 beyond it, then 5 and 7, then 2 and 10.
    assert [row.tolist().index(9) for row in book.piece_PL.numpy()[:3]] == [10, 7, 4]
    assert book.max_context_PL.numpy()[:3, [10, 7, 4]].diagonal().tolist() == [
        *(False, True, False)
    ]


def test_no_rows_and_bad_bytes(tokenizer):
    packer = GraphWindows(tokenizer, QAFeatureConfig(16, 7, 5))
    inputs, book = packer(tf.constant([], tf.string), tf.constant([], tf.string))
    assert all(array.shape == (0, 3) for array in inputs.values())
    assert book.context_B.shape == (0,)
    assert book.first_T.numpy().tolist() == [-1]
    clean, bad = ["the", "a of\0 in"], [b"\xffthe", b"a \xe2\x80of\0 in\xf0\x9f"]
    both = [packer(*columns([row])) for row in (clean, bad)]
    for one, other in zip(*map(tf.nest.flatten, both), strict=True):
        np.testing.assert_array_equal(one, other)


def test_too_many_windows_are_refused_before_there_are_any(vocabulary):
    rule = QAFeatureConfig(16, 8, 1, "original")
    cut_up = tf.function(GraphWindows(Tokenizer(vocabulary), rule).__call__)
    few, many = (
        columns([["", "the " * (16 - 3 + beyond)]])
        for beyond in (MAX_PARTS - 1, MAX_PARTS)
    )
    assert len(cut_up(*few)[0]["token_ids"]) == MAX_PARTS
    with pytest.raises(tf.errors.InvalidArgumentError) as found:
        cut_up(*many)
    assert f"at most {MAX_PARTS} parts. Received:] [{MAX_PARTS + 1}]" in str(
        found.value
    )
