"""Test that tools/serve_check accepts good models and reports failures of bad ones."""

import argparse
import collections
import dataclasses
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT
from serving.exports import exported, write_version
from tiny import pretraining_settings as settings_of
from tiny import save_checkpoint

from electra_tf.serving.export_spec import IDS
from electra_tf.serving.pretrained_models import pretrained_export
from electra_tf.serving.warmup import FILE, warmup_requests, write_warmup

pytestmark = pytest.mark.tools

LABELS = ("bad", "good", "so so")


class Model(tf.Module):
    """Model with the outputs and checks of an exported classifier."""

    def __init__(self):
        super().__init__()
        self.weights_VC = tf.Variable(tf.random.stateless_normal([200, 3], [1, 2]))
        self.labels = tf.constant(["bad", "good", "so so"])

    def outputs(self, logits_BC):
        return {
            "probabilities": tf.nn.softmax(logits_BC),
            "logits": logits_BC,
            "label": tf.gather(self.labels, tf.argmax(logits_BC, -1)),
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def text(self, text):
        lengths_B = tf.strings.length(tf.ensure_shape(text, [None]))
        return self.outputs(tf.gather(self.weights_VC, lengths_B % 200))

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32, name=n) for n in IDS]
    )
    def tokens(self, token_ids, segment_ids, padding_mask):
        inputs = [
            tf.ensure_shape(ids_BL, [None, None])
            for ids_BL in (token_ids, segment_ids, padding_mask)
        ]
        shapes = [tf.shape(ids_BL) for ids_BL in inputs]
        same = [tf.debugging.assert_equal(shape, shapes[0]) for shape in shapes[1:]]
        with tf.control_dependencies(same):
            vectors_BLC = tf.gather(self.weights_VC, inputs[0] + inputs[1])
        mask_BL1 = tf.cast(inputs[2], tf.float32)[:, :, None]
        return self.outputs(tf.reduce_sum(vectors_BLC * mask_BL1, 1))


class BadModel(Model):
    """Model that drops empty texts, broadcasts ids, and divides by zero."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def text(self, text):
        lengths_B = tf.strings.length(text)
        lengths_B = tf.boolean_mask(lengths_B, lengths_B > 0)
        return self.outputs(tf.gather(self.weights_VC, lengths_B % 200))

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32, name=n) for n in IDS]
    )
    def tokens(self, token_ids, segment_ids, padding_mask):
        count_B1 = tf.reduce_sum(padding_mask, 1, keepdims=True)
        sums_B1 = tf.reduce_sum(token_ids + segment_ids, 1, keepdims=True)
        return self.outputs(tf.repeat(tf.cast(sums_B1 / count_B1, tf.float32), 3, 1))


def save(model, folder):
    functions = {"serving_default": model.text, "tokens": model.tokens}
    tf.saved_model.save(model, str(folder), functions)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a folder with two versions of a good model and one of a bad model."""
    folder = tmp_path_factory.mktemp("models")
    save(BadModel(), folder / "good" / "9")
    save(Model(), folder / "good" / "10")
    (folder / "good" / "next").mkdir()
    (folder / "bad").mkdir()
    (folder / "bad" / "3").symlink_to(folder / "good" / "9")
    requests = {
        "serving_default": warmup_requests(["text"], [1, 5]),
        "tokens": warmup_requests(IDS, [4]),
    }
    write_warmup(folder / "good" / "10", requests)
    return folder


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools" / "serving_checks")


def parse_table(text):
    """Return numbers of requests, responses, errors and failures by series."""
    table = {}
    for line in text.splitlines():
        name, *numbers = line.split()[:5] or [""]
        if name in ("real", "hostile", "random", "after"):
            table[name] = [int(number.replace(",", "")) for number in numbers]
    return table


def test_good_model_passes(models, tmp_path):
    (tmp_path / "texts").write_text("one\n\ntwo words\nдва слова\n")
    result = subprocess.run(
        [
            *(sys.executable, ROOT / "tools" / "serving_checks" / "serve_check.py"),
            *(f"--model={models / 'good'}", f"--input={tmp_path / 'texts'}"),
            *("--requests=40", "--fuzz=80", "--threads=3", "--runtime=session"),
        ],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{models / 'good' / '10'} as version 10, runtime session" in result.stdout
    assert "3 warm-up requests" in result.stdout
    table = parse_table(result.stdout)
    assert table["real"] == [40, 40, 0, 0]
    # Two signatures, three texts, and requests of 1, 2 and 8 rows.
    assert table["after"] == [18, 18, 0, 0]
    for name in ("hostile", "random"):
        count, responses, errors, failures = table[name]
        assert (failures, responses + errors) == (0, count)
        assert min(responses, errors) >= 8
    assert table["random"][0] == 80
    growth = result.stdout.split("growth ")[1].split(" MiB")[0]
    assert -64 < float(growth) < 64


def test_failures_of_a_bad_model(models, tools, capsys):
    import serve_check

    options = argparse.Namespace(
        model=str(models / "bad"), texts=["some", "words"], requests=10, fuzz=60,
        threads=2, seed=0, ids=100, growth=64, port=0, keep=False, verbose=True,
        attack=False,
    )  # fmt: skip
    failures = "\n".join(serve_check.check(options, "function"))
    for pattern in (
        r"serving_default: an empty string: label is object \(0,\), not object \(1,\)",
        r"tokens: all padding: logits is not finite",
        r"tokens: segment_ids has one row: expected an error",
        r"random request \d+ of seed 0, ",
    ):
        assert re.search(pattern, failures), failures
    output = capsys.readouterr().out
    table = parse_table(output)
    assert table["real"] == [10, 10, 0, 0]
    assert table["after"][3] == 0
    assert sum(count for *_, count in table.values()) == failures.count("\n") + 1
    assert re.search(r"serving_default: no rows  +a response of 0 rows", output)


def test_server_reads_versions_and_warmup(models, tools, tmp_path):
    import serve_check_server as server

    assert server.newest_version(models / "good") == (10, models / "good" / "10")
    with pytest.raises(SystemExit, match="a folder named by a number"):
        server.newest_version(tmp_path)
    folder = tmp_path / "1"
    shutil.copytree(models / "good" / "10", folder)
    service = server.Service("model", 1, folder, "function")
    assert service.warm_up() == 3
    write_warmup(folder, {"serving_defalut": warmup_requests(["text"], [1])})
    with pytest.raises(server.StatusError, match='"serving_defalut" not found'):
        service.warm_up()
    (folder / FILE).unlink()
    assert service.warm_up() == 0


def test_expected_result_of_a_request(tools):
    import serve_check_requests as requests

    texts, ids = np.dtype(object), np.dtype(np.int32)
    outputs = {"logits": (np.dtype(np.float32), (-1, 3))}
    pairs = requests.Signature("pairs", {"a": (texts, 1), "b": (texts, 1)}, outputs)
    tokens = requests.Signature("tokens", {"ids": (ids, 2)}, outputs)
    two = requests.strings([b"x", b"y"])
    row = np.zeros([1, 4], np.int32)
    for signature, inputs, rows, expected in (
        (pairs, {"a": two, "b": two}, 2, requests.RESPONSE),
        (pairs, {"a": two[:0], "b": two[:0]}, 0, requests.RESPONSE),
        (pairs, {"a": two, "b": two[:1]}, None, requests.ERROR),
        (pairs, {"a": two}, None, requests.ERROR),
        (pairs, {"a": two, "b": two, "c": two}, None, requests.ERROR),
        (pairs, {"a": two[None], "b": two[None]}, None, requests.ERROR),
        (tokens, {"ids": row}, 1, requests.EITHER),
        (tokens, {"ids": row[:0]}, 0, requests.RESPONSE),
        (tokens, {"ids": row.astype(np.int64)}, None, requests.ERROR),
    ):
        case = requests.Case("", signature, inputs)
        assert (case.rows, case.expected) == (rows, expected)
    case = requests.Case("", tokens, {"ids": row})
    logits = np.zeros([1, 3], np.float32)
    assert case.validate({"logits": logits}) == ""
    for invalid in (
        logits[:0],
        logits[:, :2],
        logits[0],
        logits.astype(float),
        logits + np.inf,
    ):
        assert "logits is " in case.validate({"logits": invalid})
    assert "outputs ['scores']" in case.validate({"scores": logits})
    assert requests.Case("", tokens, {"ids": row}, "other").expected == requests.ERROR


def test_random_requests_depend_only_on_seed_and_number(tools):
    import serve_check_requests as requests

    texts = requests.Signature("texts", {"text": (np.dtype(object), 1)}, {})
    ids = {name: (np.dtype(np.int32), 2) for name in IDS}
    signatures = [texts, requests.Signature("tokens", ids, {})]
    expected = collections.Counter()
    for number in range(300):
        case, other = (
            requests.random_case(signatures, 100, 0, number) for _ in range(2)
        )
        assert case.inputs.keys() == other.inputs.keys()
        for name, array in case.inputs.items():
            np.testing.assert_array_equal(array, other.inputs[name])
        expected[case.expected] += 1
    # Seven in ten are valid, and so are a few of the modified ones.
    assert 40 <= expected[requests.ERROR] <= 100
    assert expected[requests.RESPONSE] >= 80
    assert expected[requests.EITHER] >= 60


TOOLS = ROOT / "tools" / "serving_checks"
OPTIONS = argparse.Namespace(port=0, threads=2)
LIMITS = {"rows": 4096, "bytes": 2**21, "positions": 2**16}
TEXTS, INTS = np.dtype(object), np.dtype(np.int32)


@pytest.fixture(scope="module")
def exports(tmp_path_factory, vocabulary):
    """Return a function that writes the export of a kind, and returns its folder."""
    from electra_tf.model.electra import Electra

    folder = tmp_path_factory.mktemp("exports")

    def write(kind):
        if not (folder / kind).exists():
            make = pretrained if kind in ("encoder", "electra") else exported
            write_version(make(kind), folder / kind / "1")
        return folder / kind

    def pretrained(kind):
        run = folder / "run"
        if not run.exists():
            settings = settings_of(vocabulary_size=len(vocabulary))
            electra = Electra(settings.model, 3, True)
            electra.build()
            weights = {weight.path: weight.numpy() for weight in electra.weights}
            run.mkdir()
            save_checkpoint(run, settings, weights)
        return pretrained_export(str(run), kind)

    return write


def test_attacks_of_one_model_take_little_memory(exports, tools):
    import serve_check
    import serve_check_attack as attack
    import serve_check_attack_requests as attacks
    from serve_check_client import Client

    options = argparse.Namespace(model=exports("tagger"), **vars(OPTIONS))
    with serve_check.run_server(options, "session") as server:
        client = Client(server.info["port"])
        signatures = client.signatures()
        attacker = attack.Attacker(client, server.memory, 60)
        wanted = "2,000 empty", "100,000", "16 MB", "to [20000]", "[65536, 65536]"
        for signature in signatures:
            attacker.send_each(
                one
                for one in attacks.named(signature, server.info["limits"])
                if any(text in one.name for text in wanted)
            )
        attacker.send_generated(signatures, 0, 60, 2)
        assert server.process.poll() is None
    assert len(attacker.rows) >= 8
    assert [failure for row in attacker.rows for failure in row.failures] == []
    # The graph itself rejects an expanded tensor; the server is not asked to.
    (expanded,) = (row for row in attacker.rows if row.name.endswith("expanded"))
    assert "Graph execution error" in expanded.result
    assert "at most 4096 rows" in expanded.result


def test_the_largest_request_is_timed(exports, tools):
    import largest_request

    report = largest_request.measure(exports("tagger"), 32)
    assert report["positions"] == 2**16
    assert report["wall_seconds"] > 0


def test_an_accepted_attack_and_too_much_memory_are_failures(tools):
    import serve_check_attack as attack
    import serve_check_attack_requests as attacks

    class Memory:
        def read(self, field):
            return {"VmRSS": 100.0, "VmHWM": 201.0}[field]

        def reset_peak(self):
            return True

        def limit(self, growth):
            raise OSError

    class Client:
        def send_message(self, *arguments):
            pass  # a response

    attacker = attack.Attacker(Client(), Memory(), 60)
    one = attacks.Attack("a name", "tokens", {}, attacks.REFUSED)
    attacker.send_each([one, dataclasses.replace(one, expected=attacks.ANY)])
    assert not attacker.limited
    first, second = (row.failures for row in attacker.rows)
    assert "a name" in first[0]
    assert "error" in first[0]
    assert "100 MiB" in first[1]
    assert "201 MiB" in first[1]
    assert len(second) == 1


def test_memory_of_a_process(tools):
    import serve_check_memory as memory

    program = """
input()
x = b"x" * 2**28
del x
print(1, flush=True)
input()
try:
    b"x" * 2**28
except MemoryError:
    print(2, flush=True)
input()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as process:

        def answer():
            process.stdin.write("\n")
            process.stdin.flush()
            return process.stdout.readline()

        reader = memory.ProcessMemory(process.pid)
        with memory.Peak(reader) as peak:
            assert answer() == "1\n"
        assert peak.mib > 256
        reader.limit(100)
        with memory.Peak(reader) as peak:
            assert answer() == "2\n"
        assert peak.mib < 200
        process.stdin.close()


def test_attacks_are_small_to_send_and_depend_only_on_seed_and_number(tools):
    import serve_check_attack_requests as attacks
    import serve_check_requests as requests

    texts = requests.Signature("texts", {"text": (TEXTS, 1)}, {})
    tokens = requests.Signature("tokens", {name: (INTS, 2) for name in IDS}, {})
    named = [one for s in (texts, tokens) for one in attacks.named(s, LIMITS)]
    assert len({(one.signature, one.name) for one in named}) == len(named)
    for one in named:
        if "repeated to" in one.name:
            for name, message in one.tensors.items():
                assert message.ByteSize() < 1300, (one.name, name)
    for number in range(100):
        case, other = (attacks.generated([texts, tokens], 0, number) for _ in range(2))
        assert case == other


def test_declared_shapes_are_compared_with_the_limits(tools):
    import serve_check_attack_requests as attacks
    import serve_check_server as server
    from tensorflow.core.framework import types_pb2

    for dtype, value, fits, too_large in (
        (types_pb2.DT_STRING, b"a", [4096], [2**40, 2**40]),
        (types_pb2.DT_INT32, 1, [2**8, 2**8], [2**16, 2**16]),
    ):
        message = attacks.tensor(dtype, fits, [value])
        server._check_declared_sizes({"x": message}, LIMITS)
        message = attacks.tensor(dtype, too_large, [value])
        server._check_declared_sizes({"x": message}, {})
        with pytest.raises(server.StatusError, match=f"x must have .*{too_large[0]}"):
            server._check_declared_sizes({"x": message}, LIMITS)
    message = attacks.tensor(types_pb2.DT_STRING, [4096], [b"", b"a" * 600])
    with pytest.raises(server.StatusError, match=r"x must have .* bytes"):
        server._check_declared_sizes({"x": message}, LIMITS)


def run_versions(folders, python):
    return subprocess.run(
        [
            *(sys.executable, TOOLS / "serve_check_versions.py", f"--python={python}"),
            *(f"--model={folder}" for folder in folders),
        ],
        capture_output=True, text=True,
    )  # fmt: skip


def test_versions_are_compared_by_their_responses(exports, tools):
    import serve_check_versions as versions

    result = run_versions([exports("classifier")], sys.executable)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "10 requests, 3 rejected" in result.stdout
    assert "0 failures" in result.stdout
    array = {"dtype": "float32", "shape": [2], "values": [0.5, 100.0]}
    near, far = [0.5, 100.0009], [0.5001, 100.0]
    for values, count in ((near, 0), (far, 1), ([0.5, float("nan")], 1)):
        other = {"a": {"x": {**array, "values": values}}}
        assert len(versions.compare({"a": {"x": array}}, other)[1]) == count
    error = {"a": {"error": "InvalidArgumentError"}}
    assert versions.compare(error, error) == (0.0, [])
    for expected, received in (
        (error, {"a": {"x": array}}),
        ({"a": {"x": array}}, error),
        ({"a": {"error": "InternalError"}}, {"a": {"error": "InternalError"}}),
        (error, {}),
    ):
        assert len(versions.compare(expected, received)[1]) == 1


@pytest.mark.slow
def test_exports_have_equal_responses_in_an_old_tensorflow(exports):
    python = os.environ.get("ELECTRA_TF_OLD_TENSORFLOW")
    if not python:
        pytest.skip("ELECTRA_TF_OLD_TENSORFLOW names no interpreter")
    kinds = ["classifier", "pairs", "regressor", "tagger", "answerer"]
    kinds += ["encoder", "electra"]
    result = run_versions([exports(kind) for kind in kinds], python)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("0 failures") == len(kinds)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classifier", "tagger", "answerer", "electra"])
def test_no_attack_doubles_the_memory(kind, exports):
    result = subprocess.run(
        [
            *(sys.executable, TOOLS / "serve_check.py", f"--model={exports(kind)}"),
            *("--attack", "--fuzz=2000", "--runtime=session", "--threads=2"),
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert "times the steady memory" in result.stdout
