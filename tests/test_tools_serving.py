"""tools/serve_check lets good models pass and tells what is wrong with bad ones."""

import argparse
import collections
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT

from electra_tf.serving.export_spec import IDS
from electra_tf.serving.warmup import FILE, warmup_requests, write_warmup

LABELS = ("bad", "good", "so so")


class Model(tf.Module):
    """Answers as an exported classifier does, and is as strict."""

    def __init__(self):
        super().__init__()
        self.weights_VC = tf.Variable(tf.random.stateless_normal([200, 3], [1, 2]))
        self.labels = tf.constant(["bad", "good", "so so"])

    def said(self, logits_BC):
        return {
            "probabilities": tf.nn.softmax(logits_BC),
            "logits": logits_BC,
            "label": tf.gather(self.labels, tf.argmax(logits_BC, -1)),
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def text(self, text):
        lengths_B = tf.strings.length(tf.ensure_shape(text, [None]))
        return self.said(tf.gather(self.weights_VC, lengths_B % 200))

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32, name=n) for n in IDS]
    )
    def tokens(self, token_ids, segment_ids, padding_mask):
        given = [
            tf.ensure_shape(of, [None, None])
            for of in (token_ids, segment_ids, padding_mask)
        ]
        size = tf.shape(given[0])
        same = [tf.debugging.assert_equal(tf.shape(of), size) for of in given[1:]]
        with tf.control_dependencies(same):
            vectors_BLC = tf.gather(self.weights_VC, given[0] + given[1])
        mask_BL1 = tf.cast(given[2], tf.float32)[:, :, None]
        return self.said(tf.reduce_sum(vectors_BLC * mask_BL1, 1))


class Careless(Model):
    """Leaves empty texts out, takes ids of shapes that differ, divides by nothing."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def text(self, text):
        lengths_B = tf.strings.length(text)
        some_B = tf.boolean_mask(lengths_B, lengths_B > 0) % 200
        return self.said(tf.gather(self.weights_VC, some_B))

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32, name=n) for n in IDS]
    )
    def tokens(self, token_ids, segment_ids, padding_mask):
        count_B1 = tf.reduce_sum(padding_mask, 1, keepdims=True)
        sums_B1 = tf.reduce_sum(token_ids + segment_ids, 1, keepdims=True)
        return self.said(tf.repeat(tf.cast(sums_B1 / count_B1, tf.float32), 3, 1))


def saved(model, folder):
    functions = {"serving_default": model.text, "tokens": model.tokens}
    tf.saved_model.save(model, str(folder), functions)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two versions of a good model, and one of a careless one."""
    folder = tmp_path_factory.mktemp("models")
    saved(Careless(), folder / "good" / "9")
    saved(Model(), folder / "good" / "10")
    (folder / "good" / "next").mkdir()
    (folder / "careless").mkdir()
    (folder / "careless" / "3").symlink_to(folder / "good" / "9")
    requests = {
        "serving_default": warmup_requests(["text"], [1, 5]),
        "tokens": warmup_requests(IDS, [4]),
    }
    write_warmup(folder / "good" / "10", requests)
    return folder


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools" / "serving_checks")


def rows(text):
    """requests, answers, errors and faults by the series' name."""
    found = {}
    for line in text.splitlines():
        name, *numbers = line.split()[:5] or [""]
        if name in ("real", "hostile", "random", "after"):
            found[name] = [int(number.replace(",", "")) for number in numbers]
    return found


def test_a_good_model_passes(models, tmp_path):
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
    found = rows(result.stdout)
    assert found["real"] == [40, 40, 0, 0]
    # Two signatures, three texts to begin with, of 1, 2 and 8 rows.
    assert found["after"] == [18, 18, 0, 0]
    for name in ("hostile", "random"):
        count, answers, errors, faults = found[name]
        assert (faults, answers + errors) == (0, count)
        assert min(answers, errors) >= 8
    assert found["random"][0] == 80
    growth = result.stdout.split("growth ")[1].split(" MiB")[0]
    assert -64 < float(growth) < 64


def test_a_careless_one_does_not(models, tools, capsys):
    import serve_check

    options = argparse.Namespace(
        model=str(models / "careless"), texts=["some", "words"], requests=10, fuzz=60,
        threads=2, seed=0, ids=100, growth=64, port=0, keep=False, verbose=True,
    )  # fmt: skip
    faults = "\n".join(serve_check.check(options, "function"))
    for told in (
        r"serving_default: an empty string: label is object \(0,\), not object \(1,\)",
        r"tokens: all padding: logits is not finite",
        r"tokens: segment_ids has one row: an error was due",
        r"random request \d+ of seed 0, ",
    ):
        assert re.search(told, faults), faults
    shown = capsys.readouterr().out
    found = rows(shown)
    assert found["real"] == [10, 10, 0, 0]
    assert found["after"][3] == 0
    assert sum(faults for *_, faults in found.values()) == faults.count("\n") + 1
    assert "serving_default: no rows                     an answer of 0 rows" in shown


def test_versions_and_warm_up_are_read_as_tf_serving_does(models, tools, tmp_path):
    import serve_check_server as server

    assert server.newest(models / "good") == (10, models / "good" / "10")
    with pytest.raises(SystemExit, match="no folder named by a number"):
        server.newest(tmp_path)
    folder = tmp_path / "1"
    shutil.copytree(models / "good" / "10", folder)
    service = server.Service("model", 1, folder, "function")
    assert service.warm_up() == 3
    write_warmup(folder, {"serving_defalut": warmup_requests(["text"], [1])})
    with pytest.raises(server.RefusedError, match='"serving_defalut" not found'):
        service.warm_up()
    (folder / FILE).unlink()
    assert service.warm_up() == 0


def test_what_must_come_back_follows_from_the_request(tools):
    import serve_check_requests as requests

    texts, ids = np.dtype(object), np.dtype(np.int32)
    outputs = {"logits": (np.dtype(np.float32), (-1, 3))}
    pairs = requests.Signature("pairs", {"a": (texts, 1), "b": (texts, 1)}, outputs)
    tokens = requests.Signature("tokens", {"ids": (ids, 2)}, outputs)
    two = requests.strings([b"x", b"y"])
    row = np.zeros([1, 4], np.int32)
    for signature, inputs, count, wanted in (
        (pairs, {"a": two, "b": two}, 2, requests.ANSWER),
        (pairs, {"a": two[:0], "b": two[:0]}, 0, requests.ANSWER),
        (pairs, {"a": two, "b": two[:1]}, None, requests.ERROR),
        (pairs, {"a": two}, None, requests.ERROR),
        (pairs, {"a": two, "b": two, "c": two}, None, requests.ERROR),
        (pairs, {"a": two[None], "b": two[None]}, None, requests.ERROR),
        (tokens, {"ids": row}, 1, requests.EITHER),
        (tokens, {"ids": row[:0]}, 0, requests.ANSWER),
        (tokens, {"ids": row.astype(np.int64)}, None, requests.ERROR),
    ):
        case = requests.Case("", signature, inputs)
        assert (case.rows, case.wanted) == (count, wanted)
    case = requests.Case("", tokens, {"ids": row})
    right = np.zeros([1, 3], np.float32)
    assert case.fault_of({"logits": right}) == ""
    for wrong in (
        right[:0],
        right[:, :2],
        right[0],
        right.astype(float),
        right + np.inf,
    ):
        assert "logits is " in case.fault_of({"logits": wrong})
    assert "outputs ['scores']" in case.fault_of({"scores": right})
    assert requests.Case("", tokens, {"ids": row}, "other").wanted == requests.ERROR


def test_random_requests_are_a_function_of_their_number(tools):
    import serve_check_requests as requests

    texts = requests.Signature("texts", {"text": (np.dtype(object), 1)}, {})
    ids = {name: (np.dtype(np.int32), 2) for name in IDS}
    both = [texts, requests.Signature("tokens", ids, {})]
    wanted = collections.Counter()
    for number in range(300):
        one, other = (requests.random_case(both, 100, 0, number) for _ in range(2))
        assert one.inputs.keys() == other.inputs.keys()
        for name, array in one.inputs.items():
            np.testing.assert_array_equal(array, other.inputs[name])
        wanted[one.wanted] += 1
    # Seven in ten are right; of the spoilt ones a few still are requests.
    assert 40 <= wanted[requests.ERROR] <= 100
    assert wanted[requests.ANSWER] >= 80
    assert wanted[requests.EITHER] >= 60
