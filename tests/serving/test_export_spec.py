"""Requests hold strings as a server gets them."""

import pytest
import tensorflow as tf

from electra_tf.serving.export_spec import (
    MOST_BYTES,
    MOST_ROWS,
    PROBE_TEXTS,
    strings,
    text_signature,
    texts_of,
)


def test_texts_become_bytes_and_texts_again():
    found = strings(["café", b"\xff\xfe raw", "", "\ud800"[:0]])
    assert found.dtype == object
    assert found.tolist() == ["café".encode(), b"\xff\xfe raw", b"", b""]
    assert texts_of(found) == ["café", " raw", "", ""]
    assert texts_of(strings(PROBE_TEXTS)) == list(PROBE_TEXTS)
    assert strings([]).shape == (0,)


def test_a_function_of_strings_takes_any_number_of_rows_by_name():
    joined = text_signature(lambda a, b: {"joined": a + b}, ("text", "text_b"))
    for rows in (["x"], ["x", "y"], []):
        found = joined(tf.constant(rows, tf.string), tf.constant(rows, tf.string))
        assert found["joined"].numpy().tolist() == [(2 * row).encode() for row in rows]
    with pytest.raises(tf.errors.InvalidArgumentError, match="text and text_b have"):
        joined(tf.constant(["x", "y"]), tf.constant(["x"]))
    assert len(joined._list_all_concrete_functions()) == 1
    names = joined.get_concrete_function().structured_input_signature[0]
    assert [spec.name for spec in names] == ["text", "text_b"]


def refused(function, *texts):
    """The message of a refused request, on one line."""
    with pytest.raises(tf.errors.InvalidArgumentError) as found:
        function(*map(tf.constant, texts))
    return " ".join(str(found.value).split())


def test_a_request_that_is_too_large_runs_nothing_of_the_function():
    def never(*texts):
        with tf.control_dependencies([tf.debugging.Assert(False, ["it ran"])]):
            return {"same": tf.identity(texts[0])}

    one, two = (
        text_signature(never, ("text",)),
        text_signature(never, ("text", "text_b")),
    )
    for _ in range(5):  # operations without an order run in any
        message = refused(one, [""] * (MOST_ROWS + 1))
        assert f"at most {MOST_ROWS} rows. Received:] [{MOST_ROWS + 1}]" in message
        message = refused(one, [b"x" * MOST_BYTES, b"yz"])
        assert f"at most {MOST_BYTES} bytes" in message
        assert f"Received:] [{MOST_BYTES + 2}]" in message
        half = [b"x" * (MOST_BYTES // 2 + 1)]
        assert f"Received:] [{MOST_BYTES + 2}]" in refused(two, half, half)
        assert "it ran" in refused(one, ["short"])


def test_a_request_may_be_as_large_as_the_limits():
    length = text_signature(lambda text: {"length": tf.strings.length(text)}, ("text",))
    rows = tf.constant([b"x" * (MOST_BYTES // MOST_ROWS)] * MOST_ROWS)
    assert length(rows)["length"].shape == [MOST_ROWS]
