"""What the graph makes of texts is what training made of them."""

import random

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.tasks.classification.preprocessing import encode_texts, truncate
from electra_tf.tasks.classification.preprocessing_graph import (
    GraphInputs,
    kept_lengths,
)
from electra_tf.text.tokenizer import Tokenizer

WORDS = ["the", "file", "configuration", "ΟΔΟΣ", "中文", "café", "x", ",", "\u200b"]


def texts(count, seed=0):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(0, 30))) for _ in range(count)]


def offline(tokenizer, rows, max_length):
    examples = encode_texts(tokenizer, rows, max_length)
    longest = max(examples.lengths)
    filled = np.zeros((3, len(rows), longest), np.int32)
    for place, (ids, segments) in enumerate(
        zip(examples.ids, examples.segments, strict=True)
    ):
        filled[0, place, : len(ids)] = ids
        filled[1, place, : len(ids)] = segments
        filled[2, place, : len(ids)] = 1
    return dict(zip(("token_ids", "segment_ids", "padding_mask"), filled, strict=True))


@pytest.mark.parametrize("max_length", [8, 16, 128])
def test_single_texts_and_pairs_equal_those_of_training(vocabulary, max_length):
    tokenizer = Tokenizer(vocabulary)
    inputs = tf.function(GraphInputs(tokenizer, max_length).__call__)
    first, second = texts(200), texts(200, seed=1)
    cases = [
        (inputs(tf.constant(first)), first),
        (
            inputs(tf.constant(first), tf.constant(second)),
            list(zip(first, second, strict=True)),
        ),
    ]
    for found, rows in cases:
        expected = offline(tokenizer, rows, max_length)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name].numpy(), array, name)


def test_no_rows_are_a_batch_too(vocabulary):
    found = GraphInputs(Tokenizer(vocabulary), 16)(tf.constant([], tf.string))
    assert all(array.shape[0] == 0 for array in found.values())


def test_both_texts_lose_what_they_lose_piece_by_piece():
    pairs = [(a, b) for a in range(12) for b in range(12)]
    for room in (0, 1, 4, 9, 30):
        kept = kept_lengths(
            *(tf.constant(side) for side in zip(*pairs, strict=True)), room
        )
        for place, (a, b) in enumerate(pairs):
            parts = [[0] * a, [0] * b]
            truncate(parts, room)
            assert [int(side[place]) for side in kept] == list(map(len, parts))


def test_too_many_positions_are_refused(vocabulary):
    inputs = tf.function(GraphInputs(Tokenizer(vocabulary), 64).__call__)
    few, many = (tf.constant([("the " * 70).encode()] * rows) for rows in (1024, 1025))
    assert inputs(few)["token_ids"].shape == [1024, 64]
    with pytest.raises(tf.errors.InvalidArgumentError) as found:
        inputs(many)
    assert "at most 65536 positions" in str(found.value)
    assert "[1025] [64]" in str(found.value)
