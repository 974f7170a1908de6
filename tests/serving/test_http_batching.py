"""Test batches of requests, and the queue of those that wait."""

import asyncio
import concurrent.futures
import dataclasses
import http.client
import json
import threading

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN

from electra_tf import sources
from electra_tf.serving import http_json
from electra_tf.serving.http_servable import Servable, ServableSignature, servable_of
from electra_tf.serving.pretrained_models import pretrained_export
from electra_tf.serving.signatures import IDS
from serving.exports import exported

pytest.importorskip("prometheus_client", reason="needs the extra `http`")
pytest.importorskip("aiohttp", reason="needs the extra `http`")

from electra_tf.serving.http_batching import Batcher
from serving.http_client import running
from serving.test_http import assert_equal

NUMBERS = {"x": tf.TensorSpec([None], tf.int32, "x")}


def doubled(x):
    tf.debugging.assert_none_equal(x, 13, message="An unlucky number")
    return {"y": 2 * x}


class Held:
    """Servable of one signature, which computes after it may."""

    def __init__(
        self, signature=ServableSignature(NUMBERS, {"y": NUMBERS["x"]}, doubled)
    ):
        self.open, self.batches = threading.Event(), []
        self._function = signature.function
        signature = dataclasses.replace(signature, function=self)
        self.servable = Servable("held", 1, {"serving_default": signature}, {})

    def __call__(self, *tensors):
        self.open.wait(60)
        self.batches.append(tensors[0].numpy().tolist())
        return self._function(*tensors)


def send_held(held, requests, **limits):
    """Send requests, most of which wait while the first is computed."""
    with (
        running(held.servable, threads=1, **limits) as client,
        concurrent.futures.ThreadPoolExecutor(len(requests)) as pool,
    ):
        sent = []
        for count, request in enumerate(requests, 1):
            sent.append(pool.submit(client.predict, request))
            client.wait("electra_tf_unanswered_requests", count)
        held.open.set()
        answers = [request.result() for request in sent]
        total = client.metric("electra_tf_batch_requests_sum")
        return answers, total


def test_waiting_requests_are_computed_together():
    held = Held()
    requests = [{"instances": [number]} for number in range(6)]
    answers, total = send_held(held, requests, batch_rows=4)
    assert answers == [(200, {"predictions": [2 * n]}) for n in range(6)]
    assert max(map(len, held.batches)) in (2, 3, 4)
    assert sorted(n for batch in held.batches for n in batch) == [*range(6)]
    assert total == 6


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("tagger", "serving_default"),
        ("tagger", "entities"),
        ("tagger", "tokens"),
        ("electra", "serving_default"),
        ("electra", "masked_text"),
        ("encoder", "serving_default"),
    ],
)
def test_a_batch_gives_each_request_what_it_gets_alone(kind, name):
    if kind == "tagger":
        spec = exported(kind)
    else:
        spec = pretrained_export(sources.open(GOLDEN / "saved" / "run"), kind)
    signature = servable_of(spec, kind).signatures[name]
    texts = ["the film", "", "no [MASK] here [MASK]", "a " * 40, "b"]
    requests = [{"inputs": [text]} for text in texts]
    if name == "tokens":
        requests = [{"inputs": {key: [[1, n, 0]] for key in IDS}} for n in (0, 1, 0, 1)]
    held = Held(signature)
    answers, _ = send_held(held, requests)
    assert (len(held.batches) == len(requests)) == (name == "tokens")
    for request, (status, answer) in zip(requests, answers, strict=True):
        body = json.dumps(request).encode()
        alone = http_json.decode(body, {"serving_default": signature.inputs}).arrays
        expected = http_json.encode(signature(alone), by_rows=False)
        assert status == 200
        assert_equal(answer, json.loads(expected)["outputs"], 1e-5)


def test_a_request_after_the_last_one_is_not_forgotten():
    held = Held()
    held.open.set()

    async def predict_twice():
        batcher = Batcher(held.servable.signatures, 1, 4, lambda requests: None)
        arrays = {"x": np.array([1], np.int32)}
        for _ in range(2):
            await batcher.predict("serving_default", arrays, lambda _: b"y")
        batcher.close()

    asyncio.run(asyncio.wait_for(predict_twice(), 60))
    assert held.batches == [[1], [1]]


def test_an_error_in_a_batch_concerns_its_request_alone():
    answers, _ = send_held(Held(), [{"instances": [n]} for n in (1, 13, 2)])
    assert [status for status, _ in answers] == [200, 400, 200]
    assert "An unlucky number" in answers[1][1]["error"]
    assert answers[2] == (200, {"predictions": [4]})


def test_a_full_queue_refuses_further_requests():
    held = Held()
    with (
        running(held.servable, waiting=2) as client,
        concurrent.futures.ThreadPoolExecutor(2) as pool,
    ):
        waiting = [pool.submit(client.predict, {"instances": [n]}) for n in range(2)]
        client.wait("electra_tf_unanswered_requests", 2)
        path, body = "/v1/models/held:predict", json.dumps({"instances": [3]})
        status, headers, content = client.send("POST", path, body)
        assert (status, headers["Retry-After"]) == (503, "1")
        assert [*json.loads(content)] == ["error"]
        assert client.send("GET", "/healthz")[::2] == (200, b"ok\n")
        held.open.set()
        assert [request.result()[0] for request in waiting] == [200, 200]
        assert client.metric('electra_tf_requests_total{code="503"}') == 1
        assert client.metric('electra_tf_requests_total{code="200"}') == 2


def test_requests_are_answered_before_the_server_stops():
    held = Held()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with running(held.servable) as client:
            sent = pool.submit(client.predict, {"instances": [4]})
            client.wait("electra_tf_unanswered_requests", 1)
            threading.Timer(0.5, held.open.set).start()
        assert sent.result() == (200, {"predictions": [8]})
        with pytest.raises(ConnectionRefusedError):
            client.predict({"instances": [4]})


def test_a_client_that_has_gone_is_not_computed():
    held = Held()
    request = "POST", "/v1/models/held:predict", json.dumps({"instances": [1]})
    with running(held.servable, threads=1) as client:
        for count in (1, 2, 3):
            connection = http.client.HTTPConnection("127.0.0.1", client.port)
            connection.request(*request)
            client.wait("electra_tf_unanswered_requests", 1)
            client.wait("electra_tf_batch_requests_count", 1)  # the first is computed
            connection.close()
            client.wait('electra_tf_requests_total{code="499"}', count)
        held.open.set()
        assert client.predict({"instances": [5]})[0] == 200
    assert held.batches == [[1], [5]]
