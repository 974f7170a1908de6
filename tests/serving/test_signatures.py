"""Test that signatures validate requests."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.serving.export_options import RequestLimits
from electra_tf.serving.signatures import text_signature, token_signature
from electra_tf.serving.text_graph import assert_max_positions
from tests import tiny

LIMITS = RequestLimits(rows=3, bytes=10, positions=640)


@pytest.fixture(scope="module")
def tokens():
    """Return a function that sums each row, for an encoder of 64 positions."""

    def row_sums(inputs):
        return {"sum": tf.reduce_sum(inputs["token_ids"], axis=1)}

    return token_signature(row_sums, tiny.start().shape, LIMITS)


def ids(rows=2, length=3):
    return np.ones([rows, length], np.int32)


def rejection(function, *inputs):
    """Return the message of a rejected request on one line."""
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        function(*map(tf.constant, inputs))
    return " ".join(str(error.value).split())


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((-ids(), ids(), ids()), "token_ids must be from 0 to "),
        ((100_000 * ids(), ids(), ids()), "token_ids must be from 0 to "),
        ((ids(), 2 * ids(), ids()), "segment_ids must be from 0 to 1"),
        ((ids(), ids(), 2 * ids()), "padding_mask must be from 0 to 1"),
        (
            (ids(), ids(3), ids()),
            "must have the same shape. Received:] [[2 3][3 3][2 3]]",
        ),
        (
            (ids(), ids(), ids(2, 4)),
            "must have the same shape. Received:] [[2 3][2 3][2 4]]",
        ),
        ((ids(1, 65),) * 3, "1 to 64 positions"),
        ((ids(1, 0),) * 3, "1 to 64 positions"),
        ((ids(11, 64),) * 3, "at most 640 positions"),
        # Sizes are checked before values.
        ((-ids(11, 64),) * 3, "at most 640 positions"),
    ],
)
def test_token_signature_rejects_invalid_ids(tokens, inputs, message):
    assert message in rejection(tokens, *inputs)


@pytest.mark.parametrize("rows", [2**15, 2**16, 2**17])
def test_assert_max_positions_does_not_overflow(rows):
    assert "at most 65536 positions" in rejection(assert_max_positions, rows, 2**16)
    assert_max_positions(tf.constant(1), tf.constant(2**16))


def test_text_signature_rejects_large_requests_before_the_function_runs():
    def failing(*texts):
        with tf.control_dependencies([tf.debugging.Assert(False, ["it ran"])]):
            return {"same": tf.identity(texts[0])}

    one = text_signature(failing, {"text": 1}, LIMITS)
    two = text_signature(failing, {"text": 1, "text_b": 1}, LIMITS)
    for _ in range(5):  # operations without dependencies run in any order
        assert "at most 3 rows. Received:] [4]" in rejection(one, [""] * 4)
        message = rejection(one, [b"x" * 10, b"yz"])
        assert "at most 10 bytes" in message
        assert "Received:] [12]" in message
        assert "Received:] [12]" in rejection(two, ["x" * 6], ["x" * 6])
        for texts in (["short"], [""] * 3, ["x" * 10]):  # within the limits
            assert "it ran" in rejection(one, texts)
        assert "text and text_b must" in rejection(two, ["x", "y"], ["x"])


@pytest.mark.parametrize("value", [0, -1, 2**30 + 1, 1.5, True, None])
def test_limits_are_positive_numbers(value):
    with pytest.raises(InputError, match="max_rows"):
        RequestLimits(rows=value)
