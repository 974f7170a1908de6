"""Test that tools/serve_check accepts good models and reports failures of bad ones."""

import argparse
import os
import re
import sys

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT, python
from serving.exports import exported, write_version

from electra_tf.serving.export import warmup_requests, write_warmup
from electra_tf.serving.export_options import IDS

pytestmark = pytest.mark.tools
TOOLS = ROOT / "tools" / "serving_checks"
CHECK, COMPARE = TOOLS / "serve_check.py", TOOLS / "serve_check_versions.py"
KINDS = ("classifier", "pairs", "regressor", "tagger", "answerer")


class BadModel(tf.Module):
    """Model that drops empty texts, broadcasts ids, and divides by zero."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def text(self, text):
        lengths_B = tf.strings.length(text)
        return {"length": tf.boolean_mask(lengths_B, lengths_B > 0)}

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32, name=n) for n in IDS]
    )
    def tokens(self, token_ids, segment_ids, padding_mask):
        sums_B = tf.reduce_sum(token_ids + segment_ids, 1)
        means_B = tf.cast(sums_B / tf.reduce_sum(padding_mask, 1), tf.float32)
        return {"mean": tf.ensure_shape(means_B, [None])}


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """Return a function that writes the export of a kind, and returns its folder."""
    folder = tmp_path_factory.mktemp("exports")

    def write(kind):
        if not (folder / kind).exists():
            write_version(exported(kind), folder / kind / "10")
            (folder / kind / "9").mkdir()
            (folder / kind / "next").mkdir()
        return folder / kind

    return write


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)


def parse_table(text):
    """Return numbers of requests, responses, errors and failures by series."""
    rows = (line.split()[:5] for line in text.splitlines())
    return {
        row[0]: [int(number.replace(",", "")) for number in row[1:]]
        for row in rows
        if row and row[0] in ("real", "hostile", "random", "after")
    }


def test_good_model_passes(exports):
    write_warmup(
        exports("tagger") / "10",
        {"serving_default": warmup_requests({"text": 1}, [1, 5]), "tokens": []},
    )
    model = f"--model={exports('tagger')}"
    result = python(CHECK, model, "--requests=40", "--fuzz=80", "--threads=3")
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{exports('tagger') / '10'}: entities(text), " in result.stdout
    assert "2 warm-up requests" in result.stdout
    table = parse_table(result.stdout)
    assert table["real"] == [40, 40, 0, 0]
    # Three signatures, nine texts, and requests of 1, 2 and 8 rows.
    assert table["after"] == [81, 81, 0, 0]
    for name in ("hostile", "random"):
        count, responses, errors, failures = table[name]
        assert (failures, responses + errors) == (0, count)
        assert min(responses, errors) >= 8
    assert table["random"][0] == 80


def test_failures_of_a_bad_model(tools, tmp_path, capsys):
    import serve_check

    model = BadModel()
    functions = {"serving_default": model.text, "tokens": model.tokens}
    tf.saved_model.save(model, str(tmp_path / "3"), functions)
    options = argparse.Namespace(
        model=tmp_path, requests=10, fuzz=60, threads=2,
        http=False, attack=False,
    )  # fmt: skip
    failures = "\n".join(serve_check.check(options))
    for pattern in (
        r"serving_default: an empty string: length is int32 \(0,\), not int32 \(1,\)",
        r"tokens: all padding: mean is not finite",
        r"tokens: segment_ids has one row: expected an error",
        r"random request \d+, ",
    ):
        assert re.search(pattern, failures), failures
    output = capsys.readouterr().out
    table = parse_table(output)
    assert table["real"] == [10, 10, 0, 0]
    assert table["after"][3] == 0
    assert sum(count for *_, count in table.values()) == failures.count("\n") + 1


def test_versions_are_compared_by_their_responses(exports, tools):
    import serve_check_versions as versions

    model = f"--model={exports('tagger')}"
    result = python(COMPARE, model, f"--python={sys.executable}")
    assert result.returncode == 0, result.stdout + result.stderr
    counts = re.search(r"(\d+) requests, (\d+) rejected", result.stdout)
    assert int(counts[1]) > 50
    assert int(counts[2]) >= 3
    assert "0 failures" in result.stdout
    array = np.float32([0.5, 100.0])
    for values, count in (
        ([0.5, 100.0009], 0),
        ([0.5001, 100.0], 1),
        ([0.5, np.nan], 1),
    ):
        other = {"a": {"x": np.float32(values)}}
        assert len(versions.compare({"a": {"x": array}}, other)[1]) == count
    error = {"a": "InvalidArgumentError"}
    assert versions.compare(error, error) == (0.0, [])
    for expected, received in (
        (error, {"a": {"x": array}}),
        ({"a": {"x": array}}, error),
        ({"a": {"x": array}}, {"a": {"x": array.astype(np.float64)}}),
        ({"a": "InternalError"}, {"a": "InternalError"}),
        (error, {}),
    ):
        assert len(versions.compare(expected, received)[1]) == 1


@pytest.mark.parametrize(
    "options",
    [["--fuzz=20"], pytest.param(["--attack", "--fuzz=500"], marks=pytest.mark.slow)],
)
def test_the_http_server_is_checked(exports, options):
    pytest.importorskip("aiohttp", reason="needs the extra `http`")
    model = f"--model={exports('tagger')}"
    result = python(CHECK, "--http", model, "--requests=40", *options)
    assert result.returncode == 0, result.stdout + result.stderr
    table = parse_table(result.stdout)
    assert table["real"] == [40, 40, 0, 0]
    assert min(table["hostile"][1:3]) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_exports_have_equal_responses_in_an_old_tensorflow(exports, kind):
    interpreter = os.environ.get("ELECTRA_TF_OLD_TENSORFLOW")
    if not interpreter:
        pytest.skip("ELECTRA_TF_OLD_TENSORFLOW names no interpreter")
    model = f"--model={exports(kind)}"
    result = python(COMPARE, model, f"--python={interpreter}")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_attack_doubles_the_memory(kind, exports):
    model = f"--model={exports(kind)}"
    result = python(CHECK, model, "--attack", "--fuzz=500", "--threads=2")
    assert result.returncode == 0, result.stdout + result.stderr
