"""Test requests of several clients: the queue, and the end of the server."""

import concurrent.futures
import http.client
import json
import threading

import pytest
import tensorflow as tf

from electra_tf.serving.http_servable import Servable, ServableSignature

pytest.importorskip("aiohttp", reason="needs the extra `http`")

from tests.serving.http_client import running

NUMBERS = {"x": tf.TensorSpec([None], tf.int32, "x")}


class Held:
    """Servable that doubles numbers after it may."""

    def __init__(self):
        self.open, self.entered, self.computed = threading.Event(), [], []
        signature = ServableSignature(NUMBERS, {"y": NUMBERS["x"]}, self)
        self.servable = Servable("held", 1, {"serving_default": signature}, {})
        self._changed = threading.Condition()

    def __call__(self, x):
        with self._changed:
            self.entered.append(x.numpy().tolist())
            self._changed.notify_all()
        assert self.open.wait(60)
        tf.debugging.assert_none_equal(x, 13, message="An unlucky number")
        self.computed.append(x.numpy().tolist())
        return {"y": 2 * x}

    def wait(self, count):
        """Wait until a number of requests is being computed."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.entered) >= count, 60)


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        yield pool


def test_requests_are_computed_in_threads_and_one_error_concerns_one(pool):
    held, numbers = Held(), (1, 13, 2, 3, 4)
    with running(held.servable, threads=2) as client:
        sent = [pool.submit(client.predict, {"instances": [n]}) for n in numbers]
        held.wait(2)
        assert len(held.entered) == 2
        held.open.set()
        answers = [request.result() for request in sent]
    status, answer = answers.pop(1)
    assert (status, "An unlucky number" in answer["error"]) == (400, True)
    assert answers == [(200, {"predictions": [2 * n]}) for n in (1, 2, 3, 4)]


def test_a_full_queue_refuses_further_requests(pool):
    held = Held()
    with running(held.servable, waiting=2) as client:
        waiting = [pool.submit(client.predict, {"instances": [n]}) for n in range(2)]
        held.wait(2)
        path, body = "/v1/models/held:predict", json.dumps({"instances": [3]})
        status, headers, content = client.send("POST", path, body)
        assert (status, headers["Retry-After"]) == (503, "1")
        assert [*json.loads(content)] == ["error"]
        assert client.send("GET", "/v1/models/held")[0] == 200
        held.open.set()
        assert [request.result()[0] for request in waiting] == [200, 200]
        assert client.predict({"instances": [3]}) == (200, {"predictions": [6]})


def test_requests_are_answered_before_the_server_stops(pool):
    held = Held()
    with running(held.servable) as client:
        sent = pool.submit(client.predict, {"instances": [4]})
        held.wait(1)
        threading.Timer(0.5, held.open.set).start()
    assert sent.result() == (200, {"predictions": [8]})
    with pytest.raises(ConnectionRefusedError):
        client.predict({"instances": [4]})


def test_a_client_that_has_gone_is_not_computed(pool):
    held = Held()
    with running(held.servable, threads=1, waiting=2) as client:
        first = pool.submit(client.predict, {"instances": [1]})
        held.wait(1)
        gone = http.client.HTTPConnection("127.0.0.1", client.port)
        gone.request("POST", "/v1/models/held:predict", '{"instances": [2]}')
        refused = {"Content-Encoding": "gzip"}  # after the check of the queue
        client.wait({}, 503, refused)
        gone.close()
        client.wait({}, 415, refused)
        held.open.set()
        assert first.result()[0] == 200
        assert client.predict({"instances": [3]})[0] == 200
    assert held.computed == [[1], [3]]
