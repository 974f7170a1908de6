"""Test that signatures validate requests."""

import numpy as np
import pytest
import tensorflow as tf
import tiny

from electra_tf.errors import InputError
from electra_tf.serving.request_limits import (
    LIMITS,
    RequestLimits,
    assert_max_positions,
)
from electra_tf.serving.signatures import (
    IDS,
    pad_empty,
    text_signature,
    token_signature,
)

MAX_ROWS, MAX_BYTES, MAX_POSITIONS = LIMITS.rows, LIMITS.bytes, LIMITS.positions


@pytest.fixture(scope="module")
def function():
    """Return a function that sums each row, for an encoder of 64 positions."""

    def row_sums(inputs):
        return {"sum": tf.reduce_sum(inputs["token_ids"], axis=1)}

    return token_signature(row_sums, tiny.start().shape)


def ids(rows=2, length=3):
    return np.ones([rows, length], np.int32)


def test_token_signature_accepts_ids(function):
    outputs = function(ids(), 0 * ids(), ids())
    np.testing.assert_array_equal(outputs["sum"], [3, 3])
    assert function(ids(64, 64), ids(64, 64), ids(64, 64))["sum"].shape == [64]
    assert function(ids(0, 0), ids(0, 0), ids(0, 0))["sum"].shape == [0]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((-ids(), ids(), ids()), "token_ids must be from 0 to "),
        ((100_000 * ids(), ids(), ids()), "token_ids must be from 0 to "),
        ((ids(), 2 * ids(), ids()), "segment_ids must be from 0 to 1"),
        ((ids(), ids(), 2 * ids()), "padding_mask must be from 0 to 1"),
        ((ids(), ids(3), ids()), "segment_ids must have the shape of token_ids"),
        ((ids(), ids(), ids(2, 4)), "padding_mask must have the shape of token_ids"),
        ((ids(1, 65),) * 3, "1 to 64 positions"),
        ((ids(1, 0),) * 3, "1 to 64 positions"),
    ],
)
def test_token_signature_rejects_invalid_ids(function, inputs, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        function(*inputs)


@pytest.mark.parametrize(("before", "after"), [((0, 0), (0, 1)), ((2, 3), (2, 3))])
def test_a_request_without_positions_gets_one(before, after):
    inputs = pad_empty(dict.fromkeys(IDS, tf.zeros(before, tf.int32)))
    assert {tuple(ids_BL.shape) for ids_BL in inputs.values()} == {after}


def test_token_signature_limits_positions(function):
    rows = MAX_POSITIONS // 64
    assert function(*(ids(rows, 64),) * 3)["sum"].shape == [rows]
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 65536 positions"):
        function(*(ids(rows + 1, 64),) * 3)
    # Sizes are checked before values.
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 65536 positions"):
        function(*(-ids(rows + 1, 64),) * 3)


@pytest.mark.parametrize("rows", [2**15, 2**16, 2**17])
def test_assert_max_positions_does_not_overflow(rows):
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 65536 positions"):
        assert_max_positions(tf.constant(rows), tf.constant(2**16))
    assert_max_positions(tf.constant(1), tf.constant(2**16))


def test_text_signature_accepts_any_number_of_rows():
    joined = text_signature(lambda a, b: {"joined": a + b}, ("text", "text_b"))
    for rows in (["x"], ["x", "y"], []):
        outputs = joined(tf.constant(rows, tf.string), tf.constant(rows, tf.string))
        assert outputs["joined"].numpy().tolist() == [
            (2 * row).encode() for row in rows
        ]
    with pytest.raises(tf.errors.InvalidArgumentError, match="text and text_b must"):
        joined(tf.constant(["x", "y"]), tf.constant(["x"]))
    assert len(joined._list_all_concrete_functions()) == 1
    names = joined.get_concrete_function().structured_input_signature[0]
    assert [spec.name for spec in names] == ["text", "text_b"]


def rejection(function, *texts):
    """Return the message of a rejected request on one line."""
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        function(*map(tf.constant, texts))
    return " ".join(str(error.value).split())


def test_text_signature_rejects_large_requests_before_the_function_runs():
    def failing(*texts):
        with tf.control_dependencies([tf.debugging.Assert(False, ["it ran"])]):
            return {"same": tf.identity(texts[0])}

    one = text_signature(failing, ("text",))
    two = text_signature(failing, ("text", "text_b"))
    for _ in range(5):  # operations without dependencies run in any order
        message = rejection(one, [""] * (MAX_ROWS + 1))
        assert f"at most {MAX_ROWS} rows. Received:] [{MAX_ROWS + 1}]" in message
        message = rejection(one, [b"x" * MAX_BYTES, b"yz"])
        assert f"at most {MAX_BYTES} bytes" in message
        assert f"Received:] [{MAX_BYTES + 2}]" in message
        half = [b"x" * (MAX_BYTES // 2 + 1)]
        assert f"Received:] [{MAX_BYTES + 2}]" in rejection(two, half, half)
        assert "it ran" in rejection(one, ["short"])


def test_text_signature_accepts_requests_at_the_limits():
    length = text_signature(lambda text: {"length": tf.strings.length(text)}, ("text",))
    rows = tf.constant([b"x" * (MAX_BYTES // MAX_ROWS)] * MAX_ROWS)
    assert length(rows)["length"].shape == [MAX_ROWS]


def test_limits_are_an_argument():
    limits = RequestLimits(rows=2, bytes=10, positions=6)
    texts = text_signature(lambda text: {"same": text}, ("text",), limits)
    assert "at most 2 rows" in rejection(texts, ["a"] * 3)
    assert "at most 10 bytes" in rejection(texts, ["a" * 11])
    shape = tiny.start().shape
    tokens = token_signature(
        lambda i: {"sum": tf.reduce_sum(i[IDS[0]], 1)}, shape, limits
    )
    assert tokens(*(ids(2, 3),) * 3)["sum"].shape == [2]
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 6 positions"):
        tokens(*(ids(3, 3),) * 3)


@pytest.mark.parametrize("value", [0, -1, 2**30 + 1, 1.5, True, None])
def test_limits_are_positive_numbers(value):
    with pytest.raises(InputError, match="max_rows"):
        RequestLimits(rows=value)
