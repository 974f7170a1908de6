"""Compare windows encoded in a graph with those of `preprocessing.py`."""

import random

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.serving.export_options import RequestLimits
from electra_tf.serving.spans_graph import GraphWindows
from electra_tf.tasks.data.squad_json import Question
from electra_tf.tasks.windows import make_features, split_words
from electra_tf.text.tokenizer import WordPieceTokenizer
from tests import tiny

WORDS = (
    *("the", "file,", "configuration", "(ΟΔΟΣ)", "中文", "cafe\u0301", "\u0301"),
    *(
        "\xa0",
        "of\t",
        " \r\n",
        "\u202f",
        "\u3000x",
        "\u200b",
        "İß",
        "[UNK]",
        "q" * 201,
        "\0",
    ),
)


def pairs(count=30, seed=0):
    """Return random pairs of question and context."""
    rng = random.Random(seed)
    rows = [
        [" ".join(rng.choices(WORDS, k=rng.randint(0, longest))) for longest in (9, 50)]
        for _ in range(count)
    ]
    return [*rows, ["", ""], ["the", ""], ["", " \t"], ["of", "\u200b"], ["", "of"]]


def columns(rows):
    return [tf.constant(side, tf.string) for side in zip(*rows, strict=True)]


def expected_windows(row, tokenizer, settings):
    question = Question("", *row)
    return make_features(question, tokenizer, settings)


def piece_ranges(context, tokenizer):
    """Return the characters of each wordpiece of a context."""
    ranges = []
    for first, last in split_words(context):
        in_word = tokenizer.piece_offsets(context[first:last])
        ranges += [(first + start, first + end) for start, end in in_word]
    return ranges


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return WordPieceTokenizer(vocabulary)


# Room for one wordpiece; overlap; more overlap; a stride greater than the room; a last
# window shorter by more than 100, so that the length decides; one window for all.
SETTINGS = [
    tiny.windows(8, 4, 3),
    tiny.windows(16, 7, 5),
    tiny.windows(24, 4, 2),
    tiny.windows(20, 6, 100),
    tiny.windows(256, 4, 200),
    tiny.windows(512, 64, 128),
]


@pytest.mark.parametrize(
    "settings", SETTINGS, ids=lambda settings: str(settings.max_length)
)
def test_windows_equal_those_of_make_features(tokenizer, settings):
    rows = [*pairs(), ["of", "the of in " * 110]]
    inputs, alignment = GraphWindows(tokenizer, settings)(*columns(rows))
    expected = [
        (number, window)
        for number, row in enumerate(rows)
        for window in expected_windows(row, tokenizer, settings)
    ]
    assert alignment.row_P.numpy().tolist() == [number for number, _ in expected]
    assert (len(expected) > len(rows)) == (settings.max_length < 512)
    all_ranges = [piece_ranges(context, tokenizer) for _, context in rows]
    base = np.cumsum([1, *map(len, all_ranges)])
    longest = max(len(window.ids) for _, window in expected)
    assert all(array.shape == (len(expected), longest) for array in inputs.values())
    arrays = [inputs[n].numpy() for n in ("token_ids", "segment_ids", "padding_mask")]
    arrays += [alignment.max_context_PL.numpy(), alignment.piece_PL.numpy()]
    for row, (number, window) in enumerate(expected):
        length = len(window.ids)
        pieces = [window.piece(position) for position in range(length)]
        pieces = [0 if n is None else n + base[number] for n in pieces]
        columns_of_window = [
            window.ids,
            window.segments,
            [1] * length,
            window.max_context,
            pieces,
        ]
        for array, values in zip(arrays, columns_of_window, strict=True):
            assert array[row, :length].tolist() == values
            assert not array[row, length:].any()
    flat = [(-1, -1), *(pair for ranges in all_ranges for pair in ranges)]
    assert (
        list(zip(alignment.start_T.numpy(), alignment.end_T.numpy(), strict=True))
        == flat
    )


def test_invalid_utf8_is_dropped(tokenizer):
    encode = GraphWindows(tokenizer, tiny.windows(16, 7, 5))
    clean, bad = ["the", "a of\0 in"], [b"\xffthe", b"a \xe2\x80of\0 in\xf0\x9f"]
    both = [encode(*columns([row])) for row in (clean, bad)]
    for one, other in zip(*map(tf.nest.flatten, both), strict=True):
        np.testing.assert_array_equal(one, other)


def test_too_many_windows_raise_before_encoding(vocabulary):
    settings, limits = tiny.windows(16, 8, 1), RequestLimits(positions=800)
    encode = tf.function(
        GraphWindows(WordPieceTokenizer(vocabulary), settings, limits).__call__
    )
    few, many = (columns([["", "the " * (16 - 3 + extra)]]) for extra in (49, 50))
    assert len(encode(*few)[0]["token_ids"]) == 50  # of 16 positions
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        encode(*many)
    assert "at most 800 positions" in str(error.value)
    assert "[51] [16]" in str(error.value)
