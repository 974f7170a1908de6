"""Requests hold strings as a server gets them."""

import pytest
import tensorflow as tf

from electra_tf.serving.exportable import SAMPLES, of_texts, strings, texts_of


def test_texts_become_bytes_and_texts_again():
    found = strings(["café", b"\xff\xfe raw", "", "\ud800"[:0]])
    assert found.dtype == object
    assert found.tolist() == ["café".encode(), b"\xff\xfe raw", b"", b""]
    assert texts_of(found) == ["café", " raw", "", ""]
    assert texts_of(strings(SAMPLES)) == list(SAMPLES)
    assert strings([]).shape == (0,)


def test_a_function_of_strings_takes_any_number_of_rows_by_name():
    joined = of_texts(lambda a, b: {"joined": a + b}, ("text", "text_b"))
    for rows in (["x"], ["x", "y"], []):
        found = joined(tf.constant(rows, tf.string), tf.constant(rows, tf.string))
        assert found["joined"].numpy().tolist() == [(2 * row).encode() for row in rows]
    with pytest.raises(tf.errors.InvalidArgumentError, match="text and text_b have"):
        joined(tf.constant(["x", "y"]), tf.constant(["x"]))
    assert len(joined._list_all_concrete_functions()) == 1
    names = joined.get_concrete_function().structured_input_signature[0]
    assert [spec.name for spec in names] == ["text", "text_b"]
