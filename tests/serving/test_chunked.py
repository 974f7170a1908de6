"""Rows some at a time are the rows all at once."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.serving.chunked import (
    CHUNK_INPUTS,
    CHUNK_POSITIONS,
    MAX_TRANSPOSED_POSITIONS,
    chunked,
    chunked_encoder,
)
from electra_tf.serving.export_spec import IDS
from electra_tf.tasks.request_limits import MAX_PARTS


def said(inputs):
    """A number and a row for each row, and a column that tells who was beside it."""
    ids = tf.cast(inputs["token_ids"], tf.float32)
    rows = tf.shape(ids)[0]
    return {
        "sum": tf.reduce_sum(ids, axis=1),
        "both": (ids * 2.0, inputs["segment_ids"] + inputs["padding_mask"]),
        "together": tf.fill([rows], rows),
    }


@pytest.fixture(scope="module")
def joined():
    return tf.function(chunked(said))


def inputs(rows, length=3):
    ids = np.arange(rows * length, dtype=np.int32).reshape(rows, length)
    return {name: tf.constant(ids + n) for n, name in enumerate(IDS)}


@pytest.mark.parametrize("rows", [0, 1, CHUNK_INPUTS, CHUNK_INPUTS + 1, MAX_PARTS])
def test_rows_keep_their_order(joined, rows):
    found, whole = joined(inputs(rows)), said(inputs(rows))
    np.testing.assert_array_equal(found["sum"], whole["sum"])
    for of, right in zip(found["both"], whole["both"], strict=True):
        np.testing.assert_array_equal(of, right)
    last = rows % CHUNK_INPUTS
    beside = [CHUNK_INPUTS] * (rows - last) + [last] * last
    assert found["together"].numpy().tolist() == beside


def test_too_many_rows_are_refused_in_words(joined):
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=f"at most {MAX_PARTS} parts"
    ):
        joined(inputs(MAX_PARTS + 1))


@pytest.mark.parametrize(
    ("rows", "length", "beside"),
    [
        (0, 0, []),
        (3, 1, [-1, -1, -1]),
        (1, MAX_TRANSPOSED_POSITIONS, [-1]),
        (2, MAX_TRANSPOSED_POSITIONS // 2 + 1, [2, 2]),
        (9, CHUNK_POSITIONS // 4, [4] * 8 + [1]),
        (3, CHUNK_POSITIONS // 2, [1, 1, 1]),
        (2, CHUNK_POSITIONS + 1, [1, 1]),
        (2, 2**16, [1, 1]),
        (5, CHUNK_POSITIONS // 3, [2, 2, 2, 2, 1]),
    ],
)
def test_an_encoder_takes_so_many_positions_at_a_time(rows, length, beside):
    # A vector of each position: its inputs, and how many rows came with it; -1 where
    # positions were columns.
    class Network:
        target = "cpu"

        def __call__(self, token_ids, segment_ids, padding_mask, onednn_graph):
            rows = tf.fill(tf.shape(token_ids), tf.shape(token_ids)[0])
            return tf.stack([token_ids, segment_ids, padding_mask, rows], axis=-1)

        def call_transposed(self, token_ids, segment_ids, padding_mask):
            columns = -tf.ones_like(token_ids)
            return tf.stack([token_ids, segment_ids, padding_mask, columns], axis=-1)

    given = inputs(rows, length)
    found = tf.function(chunked_encoder(Network()))(**given).numpy()
    assert found.shape == (rows, length, 4)
    for n, name in enumerate(IDS):
        np.testing.assert_array_equal(found[..., n], given[name])
    assert [set(row[:, 3]) for row in found] == [{n} for n in beside]
