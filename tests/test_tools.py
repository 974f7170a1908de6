"""Test that the tools run and print consistent numbers."""

import argparse
import importlib
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT, python

pytestmark = pytest.mark.tools


def device_compile(*arguments):
    path = ROOT / "tools/device_checks/device_compile.py"
    return python(path, *arguments, XLA_FLAGS="")


@pytest.fixture
def compiler(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "device_checks"))
    return importlib.import_module("device_compile")


@pytest.fixture
def programs(compiler):
    return importlib.import_module("device_programs")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "package"), [("v5e:2x2", "libtpu"), ("h100", "jax_cuda13_plugin")]
)
def test_compilers_of_other_devices_compile_the_whole_step(topology, package):
    for name in ("jax", package):
        pytest.importorskip(name, reason="needs the extra tpu-check or gpu-check")
    config = f"--config={ROOT / 'configs' / 'tiny.yaml'}"
    sizes = ("--batch_size=8", "--vocabulary_size=1000", "--set=model.depth=1")
    result = device_compile(config, *sizes, f"--topology={topology}")
    assert result.returncode == 0, result.stderr
    results = json.loads(result.stdout.splitlines()[-1])
    assert results["leaves_the_device"] == []
    assert results["dynamic_shapes"] == 0
    assert 0 < results["memory_share"] < 0.01
    # For 8 x 32 positions.
    assert 1e8 < results["flops"] < 1e9
    assert sum(results["matmul_flops"].values()) == pytest.approx(
        results["flops"], rel=0.1
    )
    # Encoders compute in bfloat16, and the vocabulary's logits in float32.
    assert results["matmul_flops"]["bf16"] > 10 * results["matmul_flops"]["f32"] > 0
    assert results["fusions"] > 100
    assert results["bytes_accessed"] > results["argument_bytes"]
    assert results["memory_seconds"] > results["matmul_seconds"] > 0


@pytest.fixture(scope="module")
def runs(folder, tmp_path_factory):
    """Return the folders of `--run` with two seeds, and the results of the second."""
    from tiny import SETS

    pytest.importorskip("jax", reason="needs the extra tpu-check or gpu-check")
    folders = [tmp_path_factory.mktemp("run") for _ in range(2)]
    sets = [f"--set={item}" for item in SETS]
    for seed, output in enumerate(folders):
        result = device_compile(
            *("--config=tiny", "--run=4", *sets, f"--set=training.seed={seed}"),
            *("--batch_size=8", f"--data={folder}", f"--folder={output}"),
        )
        assert result.returncode == 0, result.stderr
    return *folders, json.loads(result.stdout.splitlines()[-1])


def run_without_tensorflow(folder, *arguments, before=""):
    code = (
        "import itertools, os, sys, types; sys.modules['tensorflow'] = None; "
        f"sys.path.insert(0, sys.argv.pop(1)); import run; {before}run.main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, folder, *arguments], capture_output=True, text=True
    )


@pytest.mark.slow
def test_the_compiled_step_equals_the_step_of_tensorflow(runs):
    *folders, results = runs
    assert results["steps"] == 4
    assert max(results["differences"].values()) < 1e-5
    assert results["largest_update"] > 1e-4
    for folder in folders:
        assert sum(path.stat().st_size for path in folder.iterdir()) < 10e6


@pytest.mark.slow
def test_another_weight_or_dropout_seed_is_a_difference(runs, tmp_path):
    first, other, _ = runs
    changed = tmp_path / "weight"
    shutil.copytree(first, changed)
    samples = dict(np.load(changed / "reference.npz"))
    samples["values"][1, 17] += 1e-3
    np.savez(changed / "reference.npz", **samples)
    # The step's seed, which is part of the program, is the other run's.
    reseeded = tmp_path / "seed"
    shutil.copytree(first, reseeded)
    shutil.copy(other / "float32.jax", reseeded)
    assert run_without_tensorflow(first).returncode == 0
    for folder in (changed, reseeded):
        result = run_without_tensorflow(folder)
        assert result.returncode == 1
        assert "differs" in result.stderr


@pytest.mark.parametrize(
    ("first", "fails_to_compile"), [(100, True), (100, False), (4096, False)]
)
def test_find_largest_batch(compiler, monkeypatch, capsys, first, fails_to_compile):
    sizes = []

    def measure(options):
        sizes.append(options.batch_size)
        if fails_to_compile and options.batch_size > 700:
            raise RuntimeError("RESOURCE_EXHAUSTED: Ran out of memory")
        # 700 rows fill the memory.
        share = 0.2 + 0.8 * options.batch_size / 700
        size = options.batch_size
        return {"batch_size": size, "argument_bytes": 2, "memory_share": share}

    monkeypatch.setattr(compiler, "measure", measure)
    compiler.find_largest_batch(argparse.Namespace(batch_size=first, memory=10))
    assert len(sizes) < (5 if first == 100 else 10)
    output = capsys.readouterr().out.splitlines()[-1]
    fits, fails = map(int, re.findall(r"\d+", output))
    assert 600 < fits <= 700 < fails <= fits + fits // 8


def device_train(*arguments):
    return python(ROOT / "tools/device_checks/device_train.py", *arguments)


@pytest.fixture(scope="module")
def half_run(folder, tmp_path_factory):
    """Return a run of 6 steps, and a copy that has completed 3 of them."""
    from tiny import SETS

    whole = tmp_path_factory.mktemp("moved") / "whole"
    settings = (
        *("training.steps=6", "training.save_every=3", "training.keep_at=[0.5]"),
        *("training.log_every=2", "optimizer.warmup_steps=2", "input.batch_size=8"),
    )
    result = python(
        *("-m", "electra_tf.pretrain", "--config=tiny", f"--model_dir={whole}"),
        *(f"--data={folder}", *(f"--set={item}" for item in (*SETS, *settings))),
    )
    assert result.returncode == 0, result.stderr
    half = shutil.copytree(whole, whole.with_name("half"))
    shutil.rmtree(half / "checkpoints/step_00000006")
    return whole, half


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["any", "gpu"])
def test_a_run_that_was_moved_equals_one_that_stayed(
    folder, half_run, tmp_path, kernels
):
    from safetensors.numpy import load_file

    pytest.importorskip("jax", reason="needs the extra tpu-check or gpu-check")
    whole, run = half_run[0], shutil.copytree(half_run[1], tmp_path / "run")
    options = f"--run={run}", f"--folder={tmp_path / 'step'}"
    chosen = f"--kernels={kernels}", "--device=cpu"
    result = device_train("export", f"--data={folder}", *options, *chosen)
    assert result.returncode == 0, result.stderr
    result = device_train("import", *options)
    assert "must have trained on from step 3" in result.stderr
    result = device_train("compile", options[1])
    assert result.returncode == 0, result.stderr
    result = run_without_tensorflow(tmp_path / "step")
    assert result.returncode == 0, result.stderr
    assert "compiled.bin is loaded" in result.stdout
    lines = (tmp_path / "step/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [5, 6]
    result = device_train("import", *options)
    assert result.returncode == 0, result.stderr
    assert (run / "checkpoints/step_00000003").exists()  # a milestone
    for name in ("weights", "optimizer"):
        path = f"checkpoints/step_00000006/{name}.safetensors"
        stayed, moved = load_file(whole / path), load_file(run / path)
        start = load_file(run / path.replace("6/", "3/"))
        if name == "weights":
            stayed_weights = stayed
        assert stayed.keys() == moved.keys()
        # Only rounding errors move the biases of keys.
        for key in (key for key in stayed if not key.endswith("key/bias")):
            np.testing.assert_allclose(moved[key], stayed[key], atol=1e-5, err_msg=key)
        assert any(np.abs(start[key] - stayed[key]).max() > 1e-4 for key in stayed)
    shutil.rmtree(run / "checkpoints/step_00000006")
    (tmp_path / "step/state.npz").unlink()
    result = device_train("import", *options, "--weights")
    assert result.returncode == 0, result.stderr
    alone = load_file(run / "checkpoints/step_00000006/weights.safetensors")
    for key, values in alone.items():
        np.testing.assert_allclose(values, stayed_weights[key], atol=1e-3, err_msg=key)
    result = device_train("export", f"--data={folder}", *options)
    assert "no state of the optimizer" in result.stderr


# A second passes between two readings of the clock. XLA compiles fast code slowly.
CLOCK = (
    "os.environ['XLA_FLAGS'] = '--xla_backend_optimization_level=0'; "
    "run.time = types.SimpleNamespace(monotonic=itertools.count().__next__); "
)


@pytest.mark.slow
def test_a_new_run_trains_elsewhere_and_is_fine_tuned_here(folder, tmp_path, here):
    from safetensors.numpy import load_file
    from tiny import SETS

    pytest.importorskip("jax", reason="needs the extra tpu-check or gpu-check")
    step, run, data = tmp_path / "step", tmp_path / "run", tmp_path / "data"
    sets = (*SETS, "training.log_every=20", "training.steps=1000")
    result = device_train(
        *("export", "--config=tiny", f"--data={folder}", f"--folder={step}"),
        *("--device=cpu", "--lengths", "16"),
        *("--set=optimizer.warmup_steps=100", *(f"--set={item}" for item in sets)),
    )
    assert result.returncode == 0, result.stderr
    assert re.search(r"\b\d\.\d% of the positions are padding", result.stdout)
    batches = json.loads((step / "description.json").read_text())["batches"]
    assert [(b["length"], b["rows"]) for b in batches] == [(16, 16), (32, 8)]
    assert sum(b["steps"] for b in batches) == 20
    # The machine makes the first state and the order of the records.
    names = {path.name for path in step.iterdir()}
    programs = {"initial.jax", "order.jax", "step.jax", "step_16.jax"}
    others = {"description.json", "files", "records.xz.00", "run.py"}
    others |= {"device_compare.py", "device_steps.py"}
    assert names == programs | others
    (step / "compiled.bin").write_bytes(b"of another release")
    result = run_without_tensorflow(step, "--profile", "--timed_steps=20")
    assert result.returncode == 0, result.stderr
    assert re.search(r"\d ms a step, [\d,]+ positions/s\nloss \d+\.\d+;", result.stdout)
    assert names | {"compiled.bin"} == {path.name for path in step.iterdir()}
    # 200 steps take a second, and (60 * 0.08 - 3) seconds are left.
    result = run_without_tensorflow(step, "--minutes=0.08", before=CLOCK)
    assert result.returncode == 0, result.stderr
    assert "compiled.bin does not load, so it is compiled here" in result.stdout
    steps = int(0.95 * 1.8 * 200) // 20 * 20
    assert f"5.00 ms a step, so {steps} steps" in result.stdout
    lines = (step / "metrics.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in lines]
    assert [line["step"] for line in lines] == [*range(20, steps + 1, 20)]
    rates = [line["learning_rate"] for line in lines]
    assert np.argmax(rates) == 2  # after 34 steps of warm-up
    assert rates[-1] < 0.1 * max(rates)
    assert lines[-1]["loss"] < 0.95 * lines[0]["loss"]
    (step / "state.npz").unlink()
    arrays = np.load(step / "weights.npz")
    kinds = {name: arrays[name].dtype.name for name in arrays.files}
    few = {"schedule/steps": "float32", "schedule/warmup": "float32"}
    few[next(name for name in kinds if "iteration" in name)] = "int64"
    assert {name: kinds.pop(name) for name in few} == few
    assert set(kinds.values()) == {"float16"}
    result = device_train("import", f"--run={run}", f"--folder={step}", "--weights")
    assert result.returncode == 0, result.stderr
    checkpoint = run / f"checkpoints/step_{steps:08}"
    text = (checkpoint / "config.yaml").read_text()
    assert f"steps: {steps}\n" in text
    assert f"warmup_steps: {steps // 10}\n" in text
    assert load_file(checkpoint / "optimizer.safetensors") == {}
    data.mkdir()
    for name in ("train", "dev"):
        (data / f"{name}.csv").write_text("text,label\n" + "a b,no\nb a,yes\n" * 8)
    result = here(
        *("finetune", "--task=csv", f"--data={data}", f"--checkpoint={run}"),
        *(f"--output={tmp_path / 'model'}", "--text_columns=text"),
        *("--label_column=label", "--set=training.epochs=3"),
    )
    assert result.returncode == 0, result.stderr


def test_patterns_of_host_operations_and_dynamic_shapes(programs):
    device_operation = (
        "%0 = stablehlo.add %1, %2 : tensor<2x3xf32> send_buffer f32[8]{0:S(1)} add("
    )
    nothing = {"leaves_the_device": [], "dynamic_shapes": 0}
    assert programs.find_obstacles(device_operation, device_operation) == nothing
    for text in (
        '"stablehlo.infeed"(%0)',
        "%x = f32[] send(f32[] %y), channel_id=1",
        "stablehlo.custom_call @xla_python_cpu_callback(%0)",
        "%x = f32[8,4]{1,0:S(5)} copy(%y)",
    ):
        assert len(programs.find_obstacles(text, "")["leaves_the_device"]) == 1
    for text in ("tensor<?x3xf32>", "tensor<2x?xf32>", "f32[<=8,4]", "f32[4,<=8]"):
        assert programs.find_obstacles("", text)["dynamic_shapes"] == 1


def test_install_rejects_unsupported_python(tmp_path):
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
    assert "Python 3.11 to 3.13" in result.stderr
    assert not (tmp_path / ".venv").exists()


_STUB = """#!/usr/bin/env bash
# Stands in for Python: `-m venv DIR` makes an environment with this file in it.
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
else
    echo "$0 $*"
fi
"""


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        ("install", ".venv"),
        ("install serving,interop-test", ".venv"),
        ("install test", ".venv-test"),
        ("install docs,test", ".venv-test"),
        ("test -m slow", ".venv-test"),
        ("device_compile", ".venv-test"),
        ("device_train", ".venv-test"),
        ("quickstart", ".venv"),
    ],
)
def test_the_extra_test_leaves_the_environment_of_trainings_alone(
    tmp_path, command, folder
):
    output = run_with_stub(tmp_path, *command.split())
    assert [path.name for path in tmp_path.glob(".venv*")] == [folder]
    assert f"{folder}/bin/python" in output.splitlines()[-1]


def run_with_stub(folder, program, *arguments):
    """Run a tool in a folder of its own, with a stub as Python; return its output."""
    (folder / "tools").mkdir()
    for name in ("install", program):
        shutil.copy(ROOT / "tools" / name, folder / "tools")
    shutil.copy(ROOT / "setup.cfg", folder)
    (folder / "python").write_text(_STUB)
    (folder / "python").chmod(0o755)
    return subprocess.run(
        [folder / "tools" / program, *arguments],
        env={**os.environ, "PYTHON": str(folder / "python")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
