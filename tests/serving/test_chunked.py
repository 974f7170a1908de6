"""Chunks of rows, compared with all rows at once."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.serving.export_options import IDS
from electra_tf.serving.inference_encoder import (
    CHUNK_POSITIONS,
    MAX_COLUMNS,
    Columns,
    Rows,
    chunked_encoder,
)


def inputs(rows, length=3):
    ids = np.arange(rows * length, dtype=np.int32).reshape(rows, length)
    return {name: tf.constant(ids + n) for n, name in enumerate(IDS)}


class FakeEncoder:
    """Encoder whose vectors are its inputs, and the chunk's rows: -1 in columns."""

    target = "cpu"

    def __call__(self, token_ids, segment_ids, padding_mask, layout=Rows):
        rows = -1 if layout is Columns else tf.shape(token_ids)[0]
        rows = tf.fill(tf.shape(token_ids), rows)
        return tf.stack([token_ids, segment_ids, padding_mask, rows], axis=-1)


@pytest.mark.parametrize(
    ("rows", "length", "chunk_rows"),
    [
        (0, 0, []),
        (3, 1, [-1, -1, -1]),
        (1, MAX_COLUMNS, [-1]),
        (2, MAX_COLUMNS // 2 + 1, [2, 2]),
        (9, CHUNK_POSITIONS // 4, [4] * 8 + [1]),
        (3, CHUNK_POSITIONS // 2, [1, 1, 1]),
        (2, CHUNK_POSITIONS + 1, [1, 1]),
        (2, 2**16, [1, 1]),
        (5, CHUNK_POSITIONS // 3, [2, 2, 2, 2, 1]),
    ],
)
def test_an_encoders_chunks_are_limited_by_positions_and_scores(
    rows, length, chunk_rows
):
    arrays = inputs(rows, length)
    outputs = tf.function(chunked_encoder(FakeEncoder()))(**arrays).numpy()
    assert outputs.shape == (rows, length, 4)
    for n, name in enumerate(IDS):
        np.testing.assert_array_equal(outputs[..., n], arrays[name])
    assert [set(row[:, 3]) for row in outputs] == [{n} for n in chunk_rows]
