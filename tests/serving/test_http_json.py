"""Numbers and strings of responses, and numbers of requests, as TF Serving has them."""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.serving import http_json


def test_numbers_have_the_digits_of_their_type():
    outputs = {
        "half": np.array([0.2, 1 / 3, 9e6, np.nan, -np.inf], np.float32),
        "long": np.array([[1, 2]] * 5, np.int64),
        "raw_bytes": np.array([b"\xff\x00"] * 5, object),
        "text": np.array(["é\x00".encode()] * 5, object),
    }
    text = http_json.encode(outputs, by_rows=True).decode()
    first = '"half": 0.2, "long": [1, 2], "raw_bytes": {"b64": "/wA="}'
    start = f'{{"predictions": [{{{first}, "text": "é\\u0000"}}, {{"half": 0.33333334, '
    assert text.startswith(start)
    for number in ("9000000.0", "NaN", "-Infinity"):
        assert f'"half": {number}, ' in text
    only = {"half": outputs["half"][:1]}
    assert http_json.encode(only, by_rows=True) == b'{"predictions": [0.2]}'
    assert http_json.encode(only, by_rows=False) == b'{"outputs": [0.2]}'


FLOATS = {"sig": {"x": tf.TensorSpec([None], tf.float32, "x")}}


def test_numbers_that_are_none_are_read():
    body = b'{"signature_name": "sig", "inputs": [NaN, -Infinity, 1, 2.5]}'
    array = http_json.decode(body, FLOATS).arrays["x"]
    np.testing.assert_array_equal(array, np.float32([np.nan, -np.inf, 1, 2.5]))
    with pytest.raises(http_json.RequestError, match="float32"):
        http_json.decode(b'{"signature_name": "sig", "inputs": [1e39]}', FLOATS)


def test_a_response_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(http_json, "MAX_NUMBERS", 10)
    with pytest.raises(http_json.RequestError, match="at most 10 values"):
        http_json.encode({"x": np.zeros([2, 6])}, by_rows=True)
