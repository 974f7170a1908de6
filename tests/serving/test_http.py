"""Test `serve`: TF Serving's REST API, batching, limits, and hostile requests."""

import asyncio
import base64
import concurrent.futures
import contextlib
import dataclasses
import json
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN, ROOT, failure
from generated_texts import random_texts

from electra_tf import sources
from electra_tf.serving import http_json
from electra_tf.serving.http_batching import Batcher
from electra_tf.serving.http_servable import (
    Servable,
    ServableSignature,
    open_servable,
    servable_of,
)
from electra_tf.serving.pretrained_models import pretrained_export
from electra_tf.serving.signatures import IDS
from serving.exports import LABELS, exported, model, write_version

pytest.importorskip("prometheus_client", reason="needs the extra `http`")
pytest.importorskip("aiohttp", reason="needs the extra `http`")

from serving.http_client import Client, running

TEXTS = ["the film", "Café 🙂", ""]


@pytest.fixture(scope="module")
def classifier():
    with running(servable_of(exported("classifier"), "sst2")) as client:
        yield client


@pytest.fixture(scope="module")
def expected():
    function = exported("classifier").text["serving_default"].function
    return {k: t.numpy() for k, t in function(tf.constant(TEXTS)).items()}


def as_json(expected):
    """Return outputs as the JSON of TF Serving: a list for each output."""
    return {
        name: [v.decode() for v in array] if array.dtype == object else array.tolist()
        for name, array in expected.items()
    }


def assert_equal(answer, expected):
    for name, values in as_json(expected).items():
        if name == "label":
            assert answer[name] == values
        else:
            np.testing.assert_allclose(answer[name], values, atol=1e-6)


# ---- The REST API of TF Serving.


def rows_of(answer):
    names = answer["predictions"][0]
    return {name: [row[name] for row in answer["predictions"]] for name in names}


ROWS = [
    {"instances": TEXTS},
    {"instances": [{"text": text} for text in TEXTS]},
    {"instances": [{"b64": base64.b64encode(t.encode()).decode()} for t in TEXTS]},
    {"signature_name": "serving_default", "instances": TEXTS},
    {"signature_name": "", "instances": TEXTS},
]
COLUMNS = [{"inputs": TEXTS}, {"inputs": {"text": TEXTS}}]


@pytest.mark.parametrize("request_", ROWS)
def test_instances_are_answered_with_predictions(classifier, expected, request_):
    status, answer = classifier.predict(request_)
    assert (status, [*answer]) == (200, ["predictions"])
    assert_equal(rows_of(answer), expected)


@pytest.mark.parametrize("request_", COLUMNS)
def test_inputs_are_answered_with_outputs(classifier, expected, request_):
    status, answer = classifier.predict(request_)
    assert (status, [*answer]) == (200, ["outputs"])
    assert_equal(answer["outputs"], expected)


def test_ids_are_answered_as_by_the_graph(classifier):
    arrays = {name: np.ones([2, 4], np.int32) for name in IDS}
    outputs = exported("classifier").tokens["tokens"].function(*arrays.values())
    columns = {name: array.tolist() for name, array in arrays.items()}
    _, answer = classifier.predict({"signature_name": "tokens", "inputs": columns})
    assert_equal(answer["outputs"], {n: t.numpy() for n, t in outputs.items()})
    rows = [{name: values[0] for name, values in columns.items()}] * 2
    _, answer = classifier.predict({"signature_name": "tokens", "instances": rows})
    assert_equal(rows_of(answer), {n: t.numpy() for n, t in outputs.items()})


@pytest.mark.parametrize("kind", ["pairs", "tagger", "answerer"])
def test_every_kind_of_model_is_served(kind):
    servable = servable_of(exported(kind), kind)
    signature = servable.signatures["serving_default"]
    row = dict.fromkeys(signature.inputs, "The film was good.")
    expected = signature({n: np.array([t.encode()], object) for n, t in row.items()})
    with running(servable) as client:
        status, answer = client.predict({"instances": [row]})
    assert status == 200
    assert answer == json.loads(http_json.encode(expected, by_rows=True))


def test_status_and_metadata_have_the_form_of_tf_serving(classifier):
    path = "/v1/models/sst2"
    status = {"error_code": "OK", "error_message": ""}
    version = {"version": "1", "state": "AVAILABLE", "status": status}
    answers = [classifier.json("GET", p) for p in (path, f"{path}/versions/1")]
    assert answers == [(200, {"model_version_status": [version]})] * 2
    _, answer = classifier.json("GET", f"{path}/metadata")
    assert answer["model_spec"]["name"] == "sst2"
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    assert set(signatures) == {"serving_default", "tokens"}
    probabilities = signatures["serving_default"]["outputs"]["probabilities"]
    assert probabilities["dtype"] == "DT_FLOAT"
    dims = [d["size"] for d in probabilities["tensor_shape"]["dim"]]
    assert dims == ["-1", str(len(LABELS))]


@pytest.mark.parametrize(
    "path", ["other", "sst2/versions/2", "sst2/versions/" + "9" * 18]
)
def test_other_models_and_versions_are_not_found(classifier, path):
    for method, suffix in ("GET", ""), ("GET", "/metadata"), ("POST", ":predict"):
        status, answer = classifier.json(method, f"/v1/models/{path}{suffix}", "{}")
        assert (status, [*answer]) == (404, ["error"])


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


# ---- Invalid and hostile requests.


def ids(value):
    return {
        "signature_name": "tokens",
        "instances": [{name: [0, 1] for name in IDS} | {"token_ids": value}],
    }


INVALID = {
    "empty": (b"", "JSON Parse error"),
    "not JSON": (b"text", "JSON Parse error"),
    "cut": (b'{"instances": ["a', "JSON Parse error"),
    "UTF-16": ('{"instances": ["a"]}'.encode("utf-16"), "UTF-8"),
    "invalid UTF-8": (b'{"instances": ["\xff\xfe"]}', "UTF-8"),
    "half of a pair": (b'{"instances": ["\\ud800"]}', "surrogate"),
    "deep lists": (b'{"instances": ' + b"[" * 10**5 + b"]" * 10**5 + b"}", ""),
    "deep objects": (b'{"instances": ' * 10**5, ""),
    "nested lists": (b'{"instances": ' + b"[" * 200 + b"]" * 200 + b"}", "axes"),
    "long number": (b'{"instances": [' + b"9" * 10**6 + b"]}", "JSON Parse error"),
    "no object": ([1], "Is not object"),
    "null": (b"null", "Is not object"),
    "no key": ({}, "'inputs' and 'instances'"),
    "both keys": ({"inputs": ["a"], "instances": ["a"]}, "'inputs' and 'instances'"),
    "unknown key": ({"instance": ["a"]}, "'instance'"),
    "key twice": (b'{"instances": ["a"], "instances": ["b"]}', "once"),
    "unknown signature": ({"signature_name": "x", "instances": ["a"]}, "tokens"),
    "number as signature": ({"signature_name": 1, "instances": ["a"]}, "string"),
    "no rows": ({"instances": []}, "'instances'"),
    "object as rows": ({"instances": {"text": "a"}}, "'instances'"),
    "number": ({"instances": [1]}, "string"),
    "null in rows": ({"instances": [None]}, "string"),
    "true": ({"instances": [True]}, "string"),
    "list as text": ({"instances": [["a"]]}, "axes"),
    "mixed rows": ({"instances": ["a", {"text": "b"}]}, "JSON Value"),
    "mixed rows 2": ({"instances": [{"text": "b"}, "a"]}, "element: 1"),
    "unknown input": ({"instances": [{"text": "a", "x": "b"}]}, "text"),
    "unknown column": ({"inputs": {"text": ["a"], "x": ["b"]}}, "text"),
    "missing column": ({"inputs": {}}, "text"),
    "no base 64": ({"instances": [{"b64": "*"}]}, "base64"),
    "number in base 64": ({"instances": [{"b64": 1}]}, "string"),
    "text as ids": (ids("a"), "axes"),
    "fraction": (ids([1.5, 0]), "int32"),
    "true as id": (ids([True, 0]), "int32"),
    "infinite": (ids([float("inf"), 0]), "int32"),
    "beyond 32 bits": (ids([2**31, 0]), "int32"),
    "beyond all bits": (ids([10**400, 0]), "int32"),
    "beyond the vocabulary": (ids([10**6, 0]), "token_ids must be from 0"),
    "negative": (ids([-1, 0]), "token_ids must be from 0"),
    "other lengths": (ids([1]), "token_ids"),
    "ragged": ({"inputs": {n: [[1], [1, 2]] for n in IDS}, "signature_name": "tokens"},
               "size"),
    "too many rows": ({"instances": ["a"] * 5000}, "4096 rows. Received: [5000]"),
    "too many bytes": ({"instances": ["a" * (2**21 + 1)]}, "2097152 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_invalid_requests_get_an_error_without_paths(classifier, name):
    body, message = INVALID[name]
    status, answer = classifier.predict(body)
    assert (status, [*answer]) == (400, ["error"])
    assert message in answer["error"]
    assert len(answer["error"]) < 500
    assert not any(text in answer["error"] for text in ("/electra_tf", "File", "Error"))


def test_the_requests_of_the_grpc_check_are_answered(classifier, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools" / "serving_checks")
    pytest.importorskip("tensorflow_serving", reason="needs the extra `serving`")
    import serve_check_client
    import serve_check_requests

    client = serve_check_client.HttpClient(classifier.url.partition("//")[2], "sst2")
    tally, signatures = serve_check_client.Tally("hostile"), client.signatures()
    cases = [case for one in signatures for case in serve_check_requests.hostile(one)]
    cases += [serve_check_requests.random_case(signatures, n) for n in range(20)]
    for case in filter(client.can_send, cases):
        serve_check_client.send(client, case, tally)
    assert tally.failures == []
    assert min(len(tally.latencies), len(tally.errors)) > 8
    assert classifier.predict({"instances": ["a"]})[0] == 200


def test_no_path_leads_to_a_file(classifier):
    for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd",
                 "/page/../http_server.py", "/page.js/..%2f..%2fserve.py", "/page.py",
                 "/v1/models/..%2f..%2fetc%2fpasswd", "/v1/models/sst2/../../x",
                 "/v1/models/sst2:predict/..", "/page.html%00.css"):  # fmt: skip
        status, headers, body = classifier.send("GET", path)
        assert status in (400, 404, 405), path
        assert [*json.loads(body)] == ["error"]
        assert headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Encoding": "gzip"}, 415),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Host": "example.com"}, 403),
        ({"Host": "127.0.0.1.example.com:8501"}, 403),
        ({"Host": "localhost:8501"}, 200),
        ({"Host": "[::1]:1"}, 200),
    ],
)
def test_headers_are_checked(classifier, headers, status):
    assert classifier.predict({"instances": ["a"]}, headers)[0] == status


def test_large_requests_are_refused_before_they_are_read():
    with running(servable_of(exported("classifier"), "sst2"), bytes=1000) as client:
        request = {"instances": ["a" * 1000]}
        status, answer = client.predict(request)
        assert (status, "1000 bytes" in answer["error"]) == (413, True)
        head = b"POST /v1/models/sst2:predict HTTP/1.1\r\nHost: localhost\r\n"
        declared = head + b"Content-Length: 99999999999\r\nConnection: close\r\n\r\n"
        assert client.raw(declared).startswith(b"HTTP/1.1 413")
        chunks = b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        chunks += b"400\r\n" + b"a" * 1024 + b"\r\n0\r\n\r\n"
        assert client.raw(head + chunks).startswith(b"HTTP/1.1 413")
        assert client.predict({"instances": ["a"]})[0] == 200


def test_slow_and_broken_clients_are_closed(classifier, monkeypatch, caplog):
    from electra_tf.serving import http_server

    monkeypatch.setattr(http_server, "BODY_SECONDS", 0.2)
    head = b"POST /v1/models/sst2:predict HTTP/1.1\r\nHost: localhost\r\n"
    slow = classifier.raw(head + b"Content-Length: 10\r\nConnection: close\r\n\r\n{")
    assert slow.startswith(b"HTTP/1.1 408")
    assert b'"error"' in slow
    many = b"".join(b"X-%d: a\r\n" % number for number in range(10_000))
    long = head + b"X: " + b"a" * 10**5 + b"\r\n\r\n"
    for broken in (head + many + b"\r\n", long, b"\x16\x03\x01\x00\xff\r\n\r\n",
                   b"GET / HTTP/9.9\r\n\r\n",
                   head + b"Content-Length: -1\r\n\r\n"):  # fmt: skip
        assert classifier.raw(broken).startswith(b"HTTP/1.")
    chunks = b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\nnone\r\n"
    assert b" 400 " in classifier.raw(head + chunks)
    assert not caplog.records
    # Clients that go before the answer, or keep a connection half open.
    open_ = [
        socket.create_connection(("127.0.0.1", classifier.port)) for _ in range(50)
    ]
    for connection in open_:
        connection.sendall(head)
    assert classifier.predict({"instances": ["a"]})[0] == 200
    for connection in open_:
        connection.close()
    assert classifier.metric("electra_tf_unanswered_requests") == 0


def test_a_client_that_does_not_read_is_closed(monkeypatch):
    from electra_tf.serving import http_server

    monkeypatch.setattr(http_server, "ANSWER_SECONDS", 0.5)
    spec = {"x": tf.TensorSpec([None], tf.int32, "x")}
    signature = ServableSignature(
        spec, {"y": spec["x"]}, lambda x: {"y": tf.ones([2**21])}
    )
    servable = Servable("m", 1, {"serving_default": signature}, {})
    body = b'{"inputs": [1]}'
    head = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: localhost\r\n"
    with running(servable) as client, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", client.port))
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        refused = 'electra_tf_requests_total{code="499"}'
        client.wait(refused, 1)
        assert client.metric("electra_tf_unanswered_requests") == 0
        connection.settimeout(60)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(2**20):
                received += len(part)
        assert received < 2**22


# ---- Batches and the queue.


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


# ---- The command.


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "films"
    write_version(exported("classifier"), folder / "3")
    return folder


def test_an_export_has_the_answers_of_its_model(export, expected):
    servable = open_servable(str(export))
    assert (servable.name, servable.version) == ("films", 3)
    assert open_servable(str(export / "3")).name == "films"
    assert servable.about["labels"] == list(LABELS)
    with running(servable) as client:
        status, answer = client.predict({"inputs": TEXTS})
        _, metadata = client.json("GET", "/v1/models/films/versions/3/metadata")
    assert status == 200
    assert_equal(answer["outputs"], expected)
    assert metadata["model_spec"]["version"] == "3"


def test_the_command_serves_until_sigterm(tmp_path):
    model("classifier").save(tmp_path / "model.keras")
    arguments = [f"--model={tmp_path}", "--name=sst2", "--host=0.0.0.0", "--port=0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "electra_tf", "serve", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        lines = [process.stdout.readline() for _ in range(5)]
        assert "sst2, version 1, for one machine" in lines[0], process.stderr.read()
        port = int(lines[1].split(":")[2].split("/")[0])
        client = Client(port, "sst2")
        (curl,) = (line for line in lines if "curl" in line)
        body = curl.split(" -d ")[1].strip().strip("'")
        status, answer = client.predict(json.loads(body))
        assert (status, len(answer["predictions"])) == (200, 1)
        used = subprocess.run(
            [sys.executable, "-m", "electra_tf", "serve", *arguments[:-1],
             f"--port={port}"],
            capture_output=True, text=True, cwd=ROOT,
        )  # fmt: skip
        assert f"--port={port}" in failure(used)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out.strip()) == (0, "stopped")
    messages = [line for line in err.splitlines() if " E external" not in line]
    assert len(messages) == 1  # besides TensorFlow's about its devices
    assert messages[0].startswith("warning: other machines can reach this server")


def test_invalid_flags_get_an_error(here, export, tmp_path):
    assert "--name" in failure(here("serve", f"--model={export}", "--name=a/b"))
    kind = here("serve", f"--model={export}", "--output_kind=encoder")
    assert "--output_kind" in failure(kind)
    assert "--model" in failure(here("serve"))
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"damaged")
    assert "SavedModel" in failure(here("serve", f"--model={tmp_path}"))


def test_the_extra_is_named_where_it_is_missing():
    program = (
        "import sys; sys.modules['aiohttp'] = None\n"
        "from electra_tf import cli, serve\n"
        "sys.argv = ['serve', '--model=.']\n"
        "cli.run(serve.main, serve.FLAGS, serve.__doc__)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT
    )
    assert "tools/install http" in failure(result)


# ---- Entities.


def test_offsets_of_entities_are_characters_of_the_text_that_was_sent():
    texts = random_texts(60, seed=2)
    with running(servable_of(exported("tagger"), "tagger")) as client:
        _, answer = client.predict({"signature_name": "entities", "instances": texts})
    entities = model("tagger").entities(texts)
    assert sum(map(len, entities)) > 60
    for text, row, found in zip(texts, answer["predictions"], entities, strict=True):
        assert row["count"] == len(found)
        for index, one in enumerate(found):
            start, end = row["starts"][index], row["ends"][index]
            assert text[start:end] == row["texts"][index] == one.text
            assert (start, end, row["types"][index]) == (one.start, one.end, one.type)
