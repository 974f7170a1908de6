"""Numbers and strings of responses, as TF Serving has them."""

import json

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="needs the extra `http`")

from aiohttp import web

from electra_tf.serving import http_json


def test_numbers_have_the_digits_of_their_type():
    outputs = {
        "half": np.array([0.2, 1 / 3, 9e6, np.nan, -np.inf], np.float32),
        "long": np.array([[1, 2]] * 5, np.int64),
        "text": np.array(["é\x00".encode()] * 5, object),
    }
    text = http_json.encode(outputs, by_rows=True).decode()
    first = '"half": 0.2, "long": [1, 2], "text": "é\\u0000"'
    start = f'{{"predictions": [{{{first}}}, {{"half": 0.33333334, '
    assert text.startswith(start)
    halves = [row["half"] for row in json.loads(text)["predictions"]]
    assert halves[2:] == [9e6, None, None]  # JSON has no NaN and infinity
    only = {"half": outputs["half"][:1]}
    assert http_json.encode(only, by_rows=True) == b'{"predictions": [0.2]}'
    assert http_json.encode(only, by_rows=False) == b'{"outputs": [0.2]}'


def test_a_response_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(http_json, "MAX_VALUES", 10)
    with pytest.raises(web.HTTPBadRequest) as error:
        http_json.encode({"x": np.zeros([2, 6])}, by_rows=True)
    assert "at most 10 values" in error.value.text
