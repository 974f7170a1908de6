"""The tools run; what they print is theirs to answer for."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import GOLDEN, ROOT


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    lines = json.loads((GOLDEN / "dataset_builder.json").read_text())["lines"]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(lines * 24))
    return path


def run(name, *arguments, folder="benchmarks"):
    return subprocess.run(
        [sys.executable, ROOT / "tools" / folder / name, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


def table(result):
    """The rows of the last table, as name -> ratio."""
    assert result.returncode == 0, result.stderr
    rows = result.stdout.split("ratio")[-1].splitlines()[1:]
    return {row[:44].strip(): float(row.split()[-1]) for row in rows}


def test_the_records_benchmark_measures_peer_and_limit_in_one_run(text):
    result = run(
        "benchmark_records.py",
        f"--input={text}",
        f"--vocab={GOLDEN / 'vocab.txt'}",
        "--rounds=1",
        "--workers=1",
    )
    ratios = table(result)
    assert ratios["plain reading of the original"] == 1
    assert ratios["bare Tokenizer.encode"] > 2
    assert len(ratios) == 4


def test_the_pipeline_benchmark_measures_beside_the_bare_files(text, tmp_path):
    result = run(
        "benchmark_pipeline.py", f"--input={text}", "--rounds=1", "--rows=2048"
    )
    ratios = table(result)
    assert ratios["bare TFRecordDataset"] == 1
    assert len(ratios) == 4


@pytest.mark.parametrize(
    ("precision", "peers"),
    [
        ("float32", "products,electra_tf"),
        pytest.param(
            "mixed_bfloat16", "products,electra_tf,input", marks=pytest.mark.slow
        ),
    ],
)
def test_the_train_benchmark_measures_beside_large_products(precision, peers):
    result = run(
        "benchmark_train.py",
        f"--config={ROOT / 'configs' / 'tiny.yaml'}",
        "--batch_size=4",
        "--length=32",
        "--rounds=2",
        "--steps=1",
        f"--peers={peers}",
        f"--precision={precision}",
        "--set=model.depth=1",
    )
    assert result.returncode == 0, result.stderr
    rows = {row[0]: row for row in map(str.split, result.stdout.splitlines()) if row}
    limit, ours, forecast = rows["products"], rows["electra_tf"], rows["forecast:"]
    assert (limit[6], ours[7]) == ("100.0%", "1.00")
    # Tokens a second, FLOP/s and the share of the limit follow from the times.
    for _, milliseconds, _, _, tokens, _, _, _, memory, start in (limit, ours):
        expected = 4 * 32 * 1000 / float(milliseconds.replace(",", ""))
        assert float(tokens.replace(",", "")) == pytest.approx(expected, rel=0.3)
        assert float(memory) > 0.1
        assert float(start) > 1
    if "input" in peers:  # a batch is read in far less than a step's time
        assert len(rows["input"]) == 8
        assert 0 < float(rows["input"][5]) < 1 / 20
    # A step this small is mostly the calls of operations, which nobody predicts.
    expected, share, held = (float(forecast[at].replace(",", "")) for at in (1, 3, 9))
    assert 0 < share < 1.5
    assert expected > 0
    assert 0.75 < held < 1.25


def test_the_profile_adds_up():
    result = run(
        "benchmark_profile.py",
        f"--config={ROOT / 'configs' / 'tiny.yaml'}",
        "--batch_size=4",
        "--length=32",
        "--steps=1",
        "--set=model.depth=1",
    )
    assert result.returncode == 0, result.stderr
    _, table_ = result.stdout.split("ms a step, untraced\n")
    columns, *rows, beyond = table_.splitlines()
    kinds = columns.split()
    assert kinds[:2] == ["products", "chains"]
    numbers = {row[:36].strip(): row[36:].replace(",", "").split() for row in rows}
    *parts, whole = ([float(n) for n in row[:-1]] for row in numbers.values())
    np.testing.assert_allclose(np.sum(parts, 0), whole, atol=0.1 * len(parts))
    # On one thread the operations take most of the step, and no more than it.
    assert 0 <= float(beyond.split()[-1].rstrip("%")) < 70
    products = kinds.index("products")
    with_products = "backward: attention", "vocabulary backward"
    for part in ("discriminator forward: feed-forward", *with_products):
        assert float(numbers[part][products]) > 0
    for part, kind in (("backward: chains", "chains"), ("update", "others")):
        assert float(numbers[part][kinds.index(kind)]) > 0


def test_the_train_benchmark_says_what_it_needs(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = run("benchmark_train.py", "--torch_python=false")
    assert result.returncode == 1
    assert "false has not all of torch, transformers" in result.stderr
    result = run("benchmark_train.py", "--peers=torch")
    assert "--peers holds products and electra_tf" in result.stderr
    result = run("benchmark_train.py", "--device=gpu")
    assert result.returncode == 1
    assert "TensorFlow sees no GPU here" in result.stderr


@pytest.mark.slow
def test_the_forecast_of_a_step_is_near_the_truth():
    result = run(
        "benchmark_train.py",
        f"--config={ROOT / 'configs' / 'mini.yaml'}",
        "--batch_size=16",
        "--rounds=3",
        "--steps=2",
        "--peers=products,electra_tf",
    )
    assert result.returncode == 0, result.stderr
    forecast = result.stdout.splitlines()[-1].split()
    for share in (float(forecast[3]), float(forecast[9])):
        assert 0.75 < share < 1.25


@pytest.mark.slow
def test_the_tpus_compiler_takes_the_whole_step():
    for package in ("jax", "libtpu"):
        pytest.importorskip(package, reason="needs the extra tpu-check")
    result = run(
        "tpu_compile.py",
        f"--config={ROOT / 'configs' / 'tiny.yaml'}",
        "--batch_size=8",
        "--vocabulary_size=1000",
        "--set=model.depth=1",
        folder="tpu_checks",
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["leaves_the_device"] == []
    assert found["dynamic_shapes"] == 0
    assert 0 < found["memory_share"] < 0.01
    # Products of 8 x 32 positions, and what stands between them.
    assert 1e8 < found["flops"] < 1e9


def test_the_largest_batch_is_looked_for_where_memory_ends(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "tpu_checks"))
    import tpu_compile

    tried = []

    def measure(options):
        size = options.batch_size
        tried.append(size)
        if size > 700:
            raise RuntimeError("RESOURCE_EXHAUSTED: Ran out of memory")
        return {"batch_size": size, "memory_share": 0.1 + size / 800}

    monkeypatch.setattr(tpu_compile, "measure", measure)
    monkeypatch.setattr(tpu_compile, "report", lambda found: None)
    tpu_compile.largest(argparse.Namespace(batch_size=100))
    # 0.1 + size / 800 is 1 at 720; a sixteenth more is tried first.
    assert tried == [100, 200, 765, 482, 623, 694]


def test_a_batch_that_does_not_fit_is_told(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "tpu_checks"))
    import tpu_compile

    def measure(options):
        raise RuntimeError("RESOURCE_EXHAUSTED: 15.76G exceeds 15.75G\nmore")

    monkeypatch.setattr(tpu_compile, "measure", measure)
    monkeypatch.setattr(tpu_compile.os, "environ", {})
    monkeypatch.setattr(sys, "argv", ["tpu_compile.py", "--batch_size=16"])
    with pytest.raises(SystemExit, match=r"batch 16 does not fit.*15\.76G exceeds"):
        tpu_compile.main()


def test_what_leaves_the_device_or_has_no_fixed_shape_is_found(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "tpu_checks"))
    from tpu_compile import _DYNAMIC, _LEAVES

    stays = "%0 = stablehlo.add %1, %2 : tensor<2x3xf32> send_buffer f32[8]{0} add("
    for text in (
        '"stablehlo.infeed"(%0)',
        "%x = f32[] send(f32[] %y), channel_id=1",
        "stablehlo.custom_call @xla_python_cpu_callback(%0)",
    ):
        assert re.search(_LEAVES, text)
    for text in ("tensor<?x3xf32>", "tensor<2x?xf32>", "f32[<=8,4]", "f32[4,<=8]"):
        assert re.search(_DYNAMIC, text)
    assert not re.search(_LEAVES, stays)
    assert not re.search(_DYNAMIC, stays)


def test_an_unknown_topology_is_told():
    result = run("tpu_compile.py", "--topology=v1:2x2", folder="tpu_checks")
    assert result.returncode == 1
    assert "--topology begins with one of" in result.stderr


def test_a_python_that_does_not_fit_is_refused(tmp_path):
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "install", tmp_path / "tools")
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    result = subprocess.run(
        [tmp_path / "tools" / "install"],
        env={**os.environ, "PYTHON": "false"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert "Python 3.10 to 3.13" in result.stderr
    assert not (tmp_path / ".venv").exists()


def test_an_unknown_benchmark_lists_the_known():
    result = subprocess.run(
        [ROOT / "tools" / "benchmark", "nothing"], capture_output=True, text=True
    )
    assert result.returncode == 1
    assert "tools/benchmark records" in result.stderr
