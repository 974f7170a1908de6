"""Ids from outside are ids, or the request is refused in words."""

import numpy as np
import pytest
import tensorflow as tf
from tasks import tiny

from electra_tf.serving.export_spec import IDS
from electra_tf.serving.signatures import (
    check_request_size,
    token_signature,
)
from electra_tf.tasks.request_limits import MAX_POSITIONS, assert_max_positions


@pytest.fixture(scope="module")
def function():
    """The sum of each row, for an encoder of 64 positions."""

    def summed(inputs):
        return {"sum": tf.reduce_sum(inputs["token_ids"], axis=1)}

    return token_signature(summed, tiny.start().shape)


def ids(rows=2, length=3):
    return np.ones([rows, length], np.int32)


def test_ids_pass(function):
    found = function(ids(), 0 * ids(), ids())
    np.testing.assert_array_equal(found["sum"], [3, 3])
    assert function(ids(64, 64), ids(64, 64), ids(64, 64))["sum"].shape == [64]
    assert function(ids(0, 0), ids(0, 0), ids(0, 0))["sum"].shape == [0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((-ids(), ids(), ids()), "token_ids lie from 0 to "),
        ((100_000 * ids(), ids(), ids()), "token_ids lie from 0 to "),
        ((ids(), 2 * ids(), ids()), "segment_ids lie from 0 to 1"),
        ((ids(), ids(), 2 * ids()), "padding_mask lie from 0 to 1"),
        ((ids(), ids(3), ids()), "segment_ids and token_ids have one shape"),
        ((ids(), ids(), ids(2, 4)), "padding_mask and token_ids have one shape"),
        ((ids(1, 65),) * 3, "A row has 1 to 64 positions"),
        ((ids(1, 0),) * 3, "A row has 1 to 64 positions"),
    ],
)
def test_what_is_no_id_is_refused_in_words(function, given, words):
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        function(*given)


def test_no_rows_get_a_position_and_rows_keep_theirs():
    empty = check_request_size(dict.fromkeys(IDS, tf.zeros([0, 0], tf.int32)))
    assert {tuple(of.shape) for of in empty.values()} == {(0, 1)}
    whole = check_request_size(dict.fromkeys(IDS, tf.constant(ids())))
    assert {tuple(of.shape) for of in whole.values()} == {(2, 3)}


def test_a_request_has_so_many_positions_at_most(function):
    rows = MAX_POSITIONS // 64
    most = (ids(rows, 64),) * 3
    assert function(*most)["sum"].shape == [rows]
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 65536 positions"):
        function(*(ids(rows + 1, 64),) * 3)
    # Before values are looked at, of which there may be a great many.
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 65536 positions"):
        function(*(-ids(rows + 1, 64),) * 3)


@pytest.mark.parametrize("rows", [2**15, 2**16, 2**17])
def test_more_positions_than_an_int32_holds_are_too_many(rows):
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 65536 positions"):
        assert_max_positions(tf.constant(rows), tf.constant(2**16))
    assert_max_positions(tf.constant(1), tf.constant(2**16))
