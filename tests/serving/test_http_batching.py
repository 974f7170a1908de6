"""Test batches of requests, and the queue of those that wait."""

import asyncio
import concurrent.futures
import dataclasses
import json
import threading

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN

from electra_tf import sources
from electra_tf.serving.http_servable import Servable, ServableSignature, servable_of
from electra_tf.serving.pretrained_models import pretrained_export
from electra_tf.serving.signatures import IDS
from serving.exports import exported

pytest.importorskip("prometheus_client", reason="needs the extra `http`")
pytest.importorskip("aiohttp", reason="needs the extra `http`")

from electra_tf.serving.http_batching import Batcher
from serving.http_client import running


class Held:
    """Signature that doubles numbers, after it may; 13 is an error."""

    def __init__(self):
        self.open, self.batches = threading.Event(), []
        spec = {"x": tf.TensorSpec([None], tf.int32, "x")}
        signature = ServableSignature(spec, {"y": spec["x"]}, self)
        self.servable = Servable("held", 1, {"serving_default": signature}, {})

    def __call__(self, x):
        self.open.wait(60)
        self.batches.append(x.numpy().tolist())
        tf.debugging.assert_none_equal(x, 13, message="An unlucky number")
        return {"y": 2 * x}


def send_held(held, numbers, **limits):
    """Send requests of one row, most of which wait while the first is computed."""
    with (
        running(held.servable, threads=1, **limits) as client,
        concurrent.futures.ThreadPoolExecutor(len(numbers)) as pool,
    ):
        sent = []
        for count, number in enumerate(numbers, 1):
            sent.append(pool.submit(client.predict, {"instances": [number]}))
            client.wait("electra_tf_unanswered_requests", count)
        held.open.set()
        answers = [request.result() for request in sent]
        total = client.metric("electra_tf_batch_requests_sum")
        return answers, total


def test_waiting_requests_are_computed_together():
    held = Held()
    answers, total = send_held(held, range(6), batch_rows=4)
    assert answers == [(200, {"predictions": [2 * n]}) for n in range(6)]
    assert max(map(len, held.batches)) in (2, 3, 4)
    assert sorted(n for batch in held.batches for n in batch) == [*range(6)]
    assert total == 6


@pytest.mark.parametrize(
    ("kind", "signature"),
    [
        ("tagger", "serving_default"),
        ("tagger", "entities"),
        ("tagger", "tokens"),
        ("electra", "serving_default"),
        ("electra", "masked_text"),
        ("encoder", "serving_default"),
    ],
)
def test_a_batch_gives_each_request_what_it_gets_alone(kind, signature):
    if kind in ("electra", "encoder"):
        spec = pretrained_export(sources.open(GOLDEN / "saved" / "run"), kind)
    else:
        spec = exported(kind)
    servable = servable_of(spec, kind)
    texts = ["the film", "", "no [MASK] here [MASK]", "a " * 40, "b"]
    requests = [{"inputs": [text]} for text in texts]
    if signature == "tokens":
        arrays = [[[1, n, 0]] for n in (0, 1, 0, 1)]
        requests = [{"inputs": dict.fromkeys(IDS, array)} for array in arrays]
    request = {"signature_name": signature}
    function, batches = servable.signatures[signature], []
    held = threading.Event()

    def wait(*tensors):
        held.wait(60)
        batches.append(len(tensors[0]))
        return function.function(*tensors)

    waiting = dataclasses.replace(function, function=wait)
    servable = dataclasses.replace(servable, signatures={signature: waiting})
    with (
        running(servable, threads=1) as client,
        concurrent.futures.ThreadPoolExecutor(len(requests)) as pool,
    ):
        sent = [pool.submit(client.predict, request | r) for r in requests]
        client.wait("electra_tf_unanswered_requests", len(requests))
        held.set()
        together = [one.result() for one in sent]
        count = len(batches)
        alone = [client.predict(request | r) for r in requests]
    assert (count == len(requests)) == (signature == "tokens")
    for (status, answer), (_, expected) in zip(together, alone, strict=True):
        assert status == 200
        assert_close(answer["outputs"], expected["outputs"])


def assert_close(answer, expected):
    """Compare outputs of which numbers may differ by rounding."""
    assert answer.keys() == expected.keys()
    for name, values in expected.items():
        one, other = np.array(answer[name]), np.array(values)
        assert one.shape == other.shape, name
        if other.dtype.kind == "f":
            np.testing.assert_allclose(one, other, atol=1e-5)
        else:
            assert one.tolist() == other.tolist(), name


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
    answers, _ = send_held(Held(), [1, 13, 2])
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
        for _ in range(3):
            with pytest.raises(TimeoutError):
                client.send(*request, timeout=0.3)
        held.open.set()
        assert client.predict({"instances": [5]})[0] == 200
        assert client.metric('electra_tf_requests_total{code="499"}') == 3
    assert held.batches == [[1], [5]]
