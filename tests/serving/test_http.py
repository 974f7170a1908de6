"""Test `serve`: TF Serving's REST API, limits, and hostile requests."""

import base64
import contextlib
import gc
import json
import shutil
import signal
import socket
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.runs.exporting import open_servable
from electra_tf.serving.export_options import IDS
from electra_tf.serving.http_servable import Servable, ServableSignature, servable_of
from tests.conftest import ROOT, failure
from tests.serving.exports import LABELS, exported, model, write_version

pytest.importorskip("aiohttp", reason="needs the extra `http`")

from tests.serving.http_client import Client, running

TEXTS = ["the film", "Café 🙂", ""]
HEAD = b"POST /v1/models/sst2:predict HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "sst2"
    write_version(exported("classifier"), folder / "3")
    return folder


@pytest.fixture(scope="module")
def classifier(export):
    with running(open_servable(str(export))) as client:
        yield client


@pytest.fixture(scope="module")
def expected():
    function = exported("classifier").text["serving_default"]
    return as_json(function(tf.constant(TEXTS)))


def as_json(outputs):
    """Return outputs as the JSON of TF Serving: a list for each output."""
    arrays = {name: tensor.numpy() for name, tensor in outputs.items()}
    return {
        name: [v.decode() for v in array] if array.dtype == object else array.tolist()
        for name, array in arrays.items()
    }


def by_class(probabilities):
    """Return probabilities by class, to compare with those of an answer."""
    values = dict(zip(LABELS, map(float, probabilities), strict=True))
    return pytest.approx(values, abs=1e-5)


def outputs_of(answer):
    """Return the outputs by name, from columns or from rows."""
    if "outputs" in answer:
        return answer["outputs"]
    rows = answer["predictions"]
    return {name: [row[name] for row in rows] for name in rows[0]}


def assert_equal(answer, expected, tolerance=1e-6):
    """Compare an answer with outputs as JSON; numbers may differ by rounding."""
    outputs = outputs_of(answer)
    assert outputs.keys() == expected.keys()
    for name, values in expected.items():
        one, other = np.array(outputs[name]), np.array(values)
        assert one.shape == other.shape, name
        if other.dtype.kind == "f":
            np.testing.assert_allclose(one, other, atol=tolerance)
        else:
            assert one.tolist() == other.tolist(), name


# ---- The REST API of TF Serving.


FORMS = [
    {"instances": TEXTS},
    {"instances": [{"text": text} for text in TEXTS]},
    {"instances": [{"b64": base64.b64encode(t.encode()).decode()} for t in TEXTS]},
]


@pytest.mark.parametrize(
    "request_", [*FORMS, {"inputs": TEXTS}, {"inputs": {"text": TEXTS}}]
)
def test_texts_are_answered_as_by_the_graph(classifier, expected, request_):
    status, answer = classifier.predict(
        {"signature_name": "serving_default", **request_}
    )
    key = "outputs" if "inputs" in request_ else "predictions"
    assert (status, [*answer]) == (200, [key])
    assert_equal(answer, expected)


@pytest.mark.parametrize("request_", [*FORMS, {**FORMS[0], "signature_name": ""}])
def test_rows_without_a_signature_are_answered_by_name(classifier, expected, request_):
    status, answer = classifier.predict(request_)
    assert (status, len(answer["predictions"])) == (200, len(TEXTS))
    for index, row in enumerate(answer["predictions"]):
        label, values = expected["label"][index], expected["probabilities"][index]
        assert row["label"] == label
        assert row["score"] == row["probabilities"][label]
        assert row["probabilities"] == by_class(values)


PAIR_ROWS = [("the film", "was long"), ("Café 🙂", "")]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "pairs"
    write_version(exported("pairs"), folder / "1")
    with running(open_servable(str(folder))) as client:
        yield client


def test_rows_have_the_columns_of_training(pairs):
    as_inputs = [dict(zip(("text", "text_b"), row, strict=True)) for row in PAIR_ROWS]
    as_columns = [
        dict(zip(("body", "Subject"), row[::-1], strict=True)) for row in PAIR_ROWS
    ]
    answers = [pairs.predict({"instances": rows}) for rows in (as_inputs, as_columns)]
    assert answers[0] == answers[1]
    first, _ = answers[0][1]["predictions"]
    expected = model("pairs").predict(PAIR_ROWS)[0]
    assert first["probabilities"] == by_class(expected)
    request = {"signature_name": "columns", "instances": as_columns}
    status, answer = pairs.predict(request)
    assert (status, answer["predictions"][0]["label"]) == (200, first["label"])
    names = {"signature_name": "class_names", "inputs": {}}
    assert pairs.predict(names) == (200, {"outputs": list(LABELS)})


def test_metadata_has_columns_and_classes(pairs):
    _, answer = pairs.json("GET", "/v1/models/pairs/metadata")
    metadata = answer["metadata"]
    assert metadata["columns"] == {"text": ["Subject"], "text_b": ["body"]}
    assert metadata["labels"] == list(LABELS)
    signatures = metadata["signature_def"]["signature_def"]
    assert set(signatures["columns"]["inputs"]) == {"Subject", "body"}
    assert signatures["class_names"]["inputs"] == {}


@pytest.mark.parametrize(
    ("rows", "place"),
    [
        (
            [["a", "b"], ["a", None]],
            "instances[1].body must be a string. Received: null",
        ),
        ([[3, "b"]], "instances[0].Subject must be a string. Received: 3"),
        ([[["a"], "b"]], 'instances[0].Subject must be a string. Received: ["a"]'),
    ],
)
def test_a_wrong_value_is_named_by_key_and_row(pairs, rows, place):
    rows = [dict(zip(("Subject", "body"), row, strict=True)) for row in rows]
    status, answer = pairs.predict({"instances": rows})
    assert (status, answer["error"]) == (400, place)


def test_unknown_columns_are_named_with_the_known(pairs):
    status, answer = pairs.predict({"instances": [{"Subject": "a", "Body": "b"}]})
    assert status == 400
    assert "text,text_b or Subject,body" in answer["error"]


def test_other_kinds_are_answered_by_name():
    def predict(kind, *rows):
        with running(servable_of(exported(kind), kind)) as client:
            status, answer = client.predict({"instances": [*rows]})
        assert status == 200, answer
        return answer["predictions"]

    (row,) = predict("multi_label", "the film")
    expected = model("multi_label").predict(["the film"])
    assert row["labels"] == list(model("multi_label").labels_of(expected)[0])
    assert row["probabilities"] == by_class(expected[0])
    (row,) = predict("regressor", "the film")
    [score] = model("regressor").predict(["the film"])
    assert row["score"] == pytest.approx(float(score), abs=1e-5)
    one, two = predict("tagger", "the film", "it was a film")
    assert one["words"] == ["the", "film"]
    assert len(one["labels"]) == len(one["scores"]) == 2
    assert len(two["words"]) == 4
    (row,) = predict("answerer", {"question": "who?", "context": "the film"})
    assert {"answer", "start", "end", "score"} <= row.keys()
    choices = [{"start": "Anna", "a": "sings", "b": "is blue"}]
    texts = [{"text": "Anna", "question": "", "choices": ["sings", "is blue"]}]
    first, second = predict("choices", *choices), predict("choices", *texts)
    assert first == second
    expected = model("choices").predict([("Anna", ["sings", "is blue"])])[0]
    assert first[0]["label"] == ["sings", "is blue"][expected.argmax()]
    assert first[0]["score"] == max(first[0]["probabilities"])
    assert first[0]["probabilities"] == pytest.approx(expected.tolist(), abs=1e-5)


def test_ids_are_answered_as_by_the_graph(classifier):
    arrays = {name: np.ones([2, 4], np.int32) for name in IDS}
    outputs = exported("classifier").tokens(*arrays.values())
    columns = {name: array.tolist() for name, array in arrays.items()}
    rows = [{name: values[0] for name, values in columns.items()}] * 2
    for values in ({"inputs": columns}, {"instances": rows}):
        _, answer = classifier.predict({"signature_name": "tokens", **values})
        assert_equal(answer, as_json(outputs))


def test_status_and_metadata_have_the_form_of_tf_serving(classifier, export):
    servable = open_servable(str(export / "3"))
    assert (servable.name, servable.version) == ("sst2", 3)
    assert servable.about["labels"] == list(LABELS)
    path = "/v1/models/sst2"
    status = {"error_code": "OK", "error_message": ""}
    version = {"version": "3", "state": "AVAILABLE", "status": status}
    answers = [classifier.json("GET", p) for p in (path, f"{path}/versions/3")]
    assert answers == [(200, {"model_version_status": [version]})] * 2
    _, answer = classifier.json("GET", f"{path}/versions/3/metadata")
    spec = answer["model_spec"]
    assert (spec["name"], spec["version"]) == ("sst2", "3")
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    assert set(signatures) == {"serving_default", "tokens", "class_names"}
    probabilities = signatures["serving_default"]["outputs"]["probabilities"]
    assert probabilities["dtype"] == "DT_FLOAT"
    dims = [d["size"] for d in probabilities["tensor_shape"]["dim"]]
    assert dims == ["-1", str(len(LABELS))]


@pytest.mark.parametrize(("end", "version"), [("", 3), ("/2", 2)])
def test_an_export_at_a_url_is_served(export, expected, end, version, tmp_path):
    store = tmp_path / "store" / "sst2"
    for number in "3", "2":
        shutil.copytree(export / "3", store / number)
    servable = open_servable(f"file://{store}{end}")
    assert (servable.name, servable.version) == ("sst2", version)
    outputs = servable.signatures["serving_default"]({"text": np.array(TEXTS)})
    np.testing.assert_allclose(
        outputs["probabilities"], expected["probabilities"], atol=1e-6
    )


@pytest.mark.parametrize(
    "path", ["other", "sst2/versions/2", "sst2/versions/" + "9" * 18]
)
def test_other_models_and_versions_are_not_found(classifier, path):
    for method, suffix in ("GET", ""), ("GET", "/metadata"), ("POST", ":predict"):
        status, answer = classifier.json(method, f"/v1/models/{path}{suffix}", "{}")
        assert (status, [*answer]) == (404, ["error"])


# ---- Invalid and hostile requests.


def ids(value):
    return {
        "signature_name": "tokens",
        "instances": [{name: [0, 1] for name in IDS} | {"token_ids": value}],
    }


INVALID = {
    "cut": (b'{"instances": ["a', "JSON Parse error"),
    "invalid UTF-8": (b'{"instances": ["\xff\xfe"]}', "utf-8"),
    "half of a pair": (b'{"instances": ["\\ud800"]}', "Unicode"),
    "deep objects": (b'{"instances": ' * 10**5, ""),
    "nested lists": (b'{"instances": ' + b"[" * 200 + b"]" * 200 + b"}", "string"),
    "long number": (b'{"instances": [' + b"9" * 10**6 + b"]}", "JSON Parse error"),
    "no object": ([1], "Is not object"),
    "no key": ({}, "'inputs' or 'instances'"),
    "both keys": ({"inputs": ["a"], "instances": ["a"]}, "'inputs' or 'instances'"),
    "unknown key": ({"instance": ["a"]}, '"instance"'),
    "unknown signature": ({"signature_name": "x", "instances": ["a"]}, "tokens"),
    "number as signature": ({"signature_name": 1, "instances": ["a"]}, "tokens"),
    "no rows": ({"instances": []}, "'instances'"),
    "object as rows": ({"instances": {"text": "a"}}, "'instances'"),
    "number": ({"instances": [1]}, "string"),
    "mixed rows": ({"instances": [{"text": "b"}, "a"]}, "element: 1"),
    "unknown input": ({"instances": [{"text": "a", "x": "b"}]}, "text"),
    "missing column": ({"inputs": {}}, "text"),
    "no base 64": ({"instances": [{"b64": "*"}]}, "base64"),
    "other letters in base 64": ({"instances": [{"b64": "é"}]}, "base64"),
    "number in base 64": ({"instances": [{"b64": 1}]}, "string"),
    "fraction": (ids([1.5, 0]), "int32"),
    "true as id": (ids([True, 0]), "int32"),
    "not a number": (ids([float("nan"), 0]), "int32"),
    "none": (ids([None, 0]), "int32"),
    "text as id": (ids(["1", 0]), "int32"),
    "beyond 32 bits": (ids([2**31, 0]), "int32"),
    "beyond all bits": (ids([10**400, 0]), "int32"),
    "beyond the vocabulary": (ids([10**6, 0]), "token_ids must be from 0"),
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


def test_numbers_that_are_not_finite_are_null():
    x = tf.TensorSpec([None], tf.int32, "x")
    outputs = {"y": tf.constant([[0.5, np.nan], [np.inf, -np.inf]])}
    signature = ServableSignature({"x": x}, {"y": x}, lambda **_: outputs)
    servable = Servable("sst2", 1, {"serving_default": signature}, {})
    with running(servable) as client:
        status, answer = client.predict({"inputs": [1]})
    assert (status, answer) == (200, {"outputs": [[0.5, None], [None, None]]})


def test_no_path_leads_to_a_file(classifier):
    for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd",
                 "/page/../http_server.py", "/page/..%2fhttp_server.py", "/page",
                 "/v1/models/..%2f..%2fetc%2fpasswd", "/v1/models/sst2/../../x",
                 "/v1/models/sst2:predict/..", "/page/%00.css"):  # fmt: skip
        status, headers, body = classifier.send("GET", path)
        assert status in (400, 403, 404, 405), path
        assert [*json.loads(body)] == ["error"]
        assert headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Encoding": "gzip"}, 415),
        ({"Content-Encoding": "Identity"}, 200),
        ({"Host": "LOCALHOST:8501"}, 200),
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
        assert (status, "1000" in answer["error"]) == (413, True)
        declared = HEAD + b"Content-Length: 99999999999\r\nConnection: close\r\n\r\n"
        assert client.raw(declared).startswith(b"HTTP/1.1 413")
        chunks = b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        chunks += b"400\r\n" + b"a" * 1024 + b"\r\n0\r\n\r\n"
        assert client.raw(HEAD + chunks).startswith(b"HTTP/1.1 413")
        assert client.predict({"instances": ["a"]})[0] == 200


def test_slow_and_broken_clients_are_closed(classifier, monkeypatch, caplog):
    from electra_tf.serving import http_server

    monkeypatch.setattr(http_server, "BODY_SECONDS", 0.2)
    slow = classifier.raw(HEAD + b"Content-Length: 10\r\nConnection: close\r\n\r\n{")
    assert slow.startswith(b"HTTP/1.1 408")
    assert b'"error"' in slow
    many = b"".join(b"X-%d: a\r\n" % number for number in range(10_000))
    long = HEAD + b"X: " + b"a" * 10**5 + b"\r\n\r\n"
    for broken in (HEAD + many + b"\r\n", long, b"\x16\x03\x01\x00\xff\r\n\r\n",
                   b"GET / HTTP/9.9\r\n\r\n",
                   HEAD + b"Content-Length: -1\r\n\r\n"):  # fmt: skip
        assert classifier.raw(broken).startswith(b"HTTP/1.")
    chunks = b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\nnone\r\n"
    assert b" 400 " in classifier.raw(HEAD + chunks)
    assert not caplog.records
    # Clients that go before the answer, or keep a connection half open.
    open_ = [
        socket.create_connection(("127.0.0.1", classifier.port)) for _ in range(50)
    ]
    for connection in open_:
        connection.sendall(HEAD)
    assert classifier.predict({"instances": ["a"]})[0] == 200
    for connection in open_:
        connection.close()


def test_a_client_that_does_not_read_is_closed(monkeypatch):
    from electra_tf.serving import http_server

    monkeypatch.setattr(http_server, "ANSWER_SECONDS", 0.5)
    spec = {"x": tf.TensorSpec([None], tf.int32, "x")}
    signature = ServableSignature(
        spec, {"y": spec["x"]}, lambda x: {"y": tf.fill([2**13], "y" * 1000)}
    )
    servable = Servable("sst2", 1, {"serving_default": signature}, {})
    body = b'{"inputs": [1]}'
    with running(servable, waiting=1) as client, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", client.port))
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        client.wait({"inputs": [1]}, 503)  # the first request is in the way
        client.wait({"inputs": [1]}, 200)
        connection.settimeout(60)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(2**20):
                received += len(part)
        assert received < 2**22


# ---- The command.


@pytest.mark.runs
def test_the_command_serves_until_sigterm(here, tmp_path):
    model("pairs").save(tmp_path / "model.keras")
    arguments = [f"--model={tmp_path}", "--name=sst2", "--host=0.0.0.0", "--port=0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "electra_tf", "serve", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        lines = [process.stdout.readline() for _ in range(4)]
        assert "sst2, version 1, for one machine" in lines[0], process.stderr.read()
        port = int(lines[1].split(":")[2].split("/")[0])
        client = Client(port, "sst2")
        (curl,) = (line for line in lines if "curl" in line)
        body = json.loads(curl.split(" -d ")[1].strip().strip("'"))
        assert body["instances"][0].keys() == {"Subject", "body"}
        status, answer = client.predict(body)
        assert (status, len(answer["predictions"])) == (200, 1)
        used = here("serve", *arguments[:-1], f"--port={port}")
        assert f"--port={port}" in failure(used)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out.strip()) == (0, "stopped")
    messages = [line for line in err.splitlines() if " E external" not in line]
    assert len(messages) == 1  # besides TensorFlow's about its devices
    assert messages[0].startswith("warning: other machines can reach this server")


def test_invalid_flags_get_an_error(here, export, tmp_path, monkeypatch):
    assert "--name" in failure(here("serve", f"--model={export}", "--name=a/b"))
    kind = here("serve", f"--model={export}", "--output_kind=encoder")
    assert "--output_kind" in failure(kind)
    assert "--model" in failure(here("serve"))
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"damaged")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        assert "SavedModel" in failure(here("serve", f"--model={tmp_path}"))
        gc.collect()
    assert not [one for one in caught if "socket" in str(one.message)]  # left open
    copy = tmp_path / "served [1]"
    shutil.copytree(export, copy)
    assert "without [ ]" in failure(here("serve", f"--model={copy}"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'electra_tf[http]'" in failure(
        here("serve", f"--model={export}")
    )
