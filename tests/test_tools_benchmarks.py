"""Test that the benchmarks run and print consistent numbers."""

import importlib.util
import json

import pytest
from conftest import GOLDEN, ROOT, python

pytestmark = pytest.mark.tools
needs_openvino = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("openvino", "nncf"))),
    reason="needs openvino",
)
TINY = (f"--config={ROOT / 'configs' / 'tiny.yaml'}", "--set=model.depth=1")
VOCAB = f"--vocab={GOLDEN / 'vocab.txt'}"
LINES = json.loads((GOLDEN / "dataset_builder.json").read_text())["lines"]


def run(name, *arguments):
    path = ROOT / f"tools/benchmarks/benchmark_{name}.py"
    return python(path, *map(str, arguments))


def measure(name, *arguments):
    """Return the rows of words of standard output, without thousands separators."""
    result = run(name, *arguments)
    assert result.returncode == 0, result.stderr
    return [line.replace(",", "").split() for line in result.stdout.splitlines()]


def by_name(rows):
    return {row[0]: row for row in rows if row}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(LINES * 24))
    return f"--input={path}"


def test_records(text):
    *_, ours, bare, _ = measure("records", text, VOCAB, "--rounds=1", "--workers=1")
    assert (ours[0], ours[-1]) == ("electra_tf.build_records", "1.00")
    assert (bare[1], float(bare[-1]) > 2) == ("Tokenizer.encode", True)


def test_pipeline(text):
    *_, limit, _, _, _ = measure("pipeline", text, "--rounds=1", "--rows=2048")
    assert (limit[1], limit[-1]) == ("TFRecordDataset", "1.00")


@pytest.mark.parametrize(
    "precision", ["float32", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)]
)
def test_train(precision):
    sizes = ("--batch_size=4", "--length=32", "--rounds=2", "--steps=1")
    peers = (f"--precision={precision}", "--peers=matmul,electra_tf")
    rows = by_name(measure("train", *TINY, *sizes, *peers))
    limit, ours = rows["matmul"], rows["electra_tf"]
    assert (limit[9], ours[5]) == ("100.0%", "1.00")
    for _, milliseconds, _, _, tokens, _, memory, start, _, _ in (limit, ours):
        expected = 4 * 32 * 1000 / float(milliseconds)
        assert float(tokens) == pytest.approx(expected, rel=0.3)
        assert float(memory) > 0.1
        assert float(start) > 1


@pytest.mark.parametrize(
    "peers",
    [
        pytest.param("litert,onnxruntime", marks=pytest.mark.slow),
        pytest.param("openvino", marks=needs_openvino),
    ],
)
def test_serve(peers):
    sizes = ("--points", "1x5", "3x16", "--rounds=2", "--seconds=.05")
    rows = measure("serve", *TINY, VOCAB, *sizes, f"--peers={peers}")
    kinds = ("text", "tokens")
    points = [row for row in rows if row and row[0] in kinds]
    expected = [
        [kind, *point] for kind in kinds for point in (("1", "x5"), ("3", "x16"))
    ]
    assert [[kind, rows, "x" + n] for kind, rows, _, n, *_ in points] == expected
    head = next(row for row in rows if row[:1] == ["electra_tf"])
    for row in points:
        times = dict(zip(head, map(float, row[4:-2]), strict=False))
        assert min(times.values()) > 0
    differences = by_name(rows[-len(times) :])
    assert set(differences) == set(times)
    for name, (_, difference) in differences.items():
        assert float(difference) <= 1e-4 or "int8" in name
