"""Tools that export the train step for one GPU, and compile it without a device."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.conftest import ROOT, python

pytest.importorskip("jax", reason="needs the extra tpu-check or gpu-check")
pytestmark = pytest.mark.tools

SETTINGS = (
    *("training.steps=6", "training.save_every=3", "training.keep_at=[0.5]"),
    *("training.log_every=2", "optimizer.warmup_steps=2", "input.batch_size=8"),
)


def move(*arguments):
    return python(ROOT / "tools/one_gpu/move.py", *arguments, JAX_PLATFORMS="cpu")


def run_without_tensorflow(folder):
    code = "import sys, runpy; sys.modules['tensorflow'] = None; "
    code += "runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    command = [sys.executable, "-c", code, folder / "run.py", "--device=cpu"]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def half_run(folder, tmp_path_factory):
    """Return a run of 6 steps, and a copy that has completed 3 of them."""
    from tests.tiny import SETS

    whole = tmp_path_factory.mktemp("moved") / "whole"
    result = python(
        *("-m", "electra_tf.pretrain", "--config=tiny", f"--model_dir={whole}"),
        *(f"--data={folder}", *(f"--set={item}" for item in (*SETS, *SETTINGS))),
    )
    assert result.returncode == 0, result.stderr
    half = shutil.copytree(whole, whole.with_name("half"))
    shutil.rmtree(half / "checkpoints/step_00000006")
    return whole, half


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 3])
def test_a_run_that_was_moved_equals_one_that_stayed(folder, half_run, tmp_path, first):
    from safetensors.numpy import load_file

    from tests.tiny import SETS

    whole, run, step = half_run[0], tmp_path / "run", tmp_path / "step"
    options = f"--run={run}", f"--folder={step}"
    start = ["--config=tiny", *(f"--set={item}" for item in (*SETS, *SETTINGS))]
    if first:
        shutil.copytree(half_run[1], run)
        start = [options[0]]
    data = f"--data={folder}", "--device=cpu"
    result = move("export", *data, *start, options[1])
    assert result.returncode == 0, result.stderr
    result = move("import", *options)
    assert f"must have trained on from step {first}" in result.stderr
    before = dict(np.load(step / "state.npz"))
    result = run_without_tensorflow(step)
    assert result.returncode == 0, result.stderr
    lines = (step / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["step"] == 6
    after = dict(np.load(step / "state.npz"))
    assert max(np.abs(after[key] - before[key]).max() for key in after) > 1e-4
    result = move("import", *options)
    assert result.returncode == 0, result.stderr
    path = "checkpoints/step_00000006"
    for name in ("weights", "optimizer"):
        stayed, moved = (
            load_file(one / path / f"{name}.safetensors") for one in (whole, run)
        )
        assert stayed.keys() == moved.keys()
        # Only rounding errors move the biases of keys.
        for key in (key for key in stayed if not key.endswith("key/bias")):
            np.testing.assert_allclose(moved[key], stayed[key], atol=1e-5, err_msg=key)


def compile_tiny(*arguments):
    """Return what `device_compile` prints of a step of 8 x 32 tokens."""
    sets = "input.batch_size=8", "model.vocabulary_size=1000", "model.depth=1"
    result = python(
        *(ROOT / "tools/device_compile.py", "--config=tiny", *arguments),
        *(f"--set={item}" for item in sets),
        XLA_FLAGS="",
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "package", "kernels"),
    [
        (["--topology=v5e:2x2"], "libtpu", 2000),
        (["--topology=h100", "--kernels"], "jax_cuda13_plugin", 300),
    ],
)
def test_compilers_of_other_devices_compile_the_whole_step(arguments, package, kernels):
    pytest.importorskip(package, reason="needs the extra tpu-check or gpu-check")
    results = compile_tiny(*arguments)
    assert results["leaves_the_device"] == []
    assert kernels / 2 < results["kernels"] < kernels
    assert 5e6 < results["memory"] < 2e7
    assert 5e7 < results["bytes"] < 1e8


def test_patterns_of_host_operations(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from device_compile import find_host_operations

    on_device = "%0 = stablehlo.add %1, %2 : tensor<2x3xf32> send_buffer f32[8]{0:S(1)}"
    assert find_host_operations(on_device) == []
    for text in (
        '"stablehlo.infeed"(%0)',
        "%x = f32[] send(f32[] %y), channel_id=1",
        "stablehlo.custom_call @xla_python_cpu_callback(%0)",
        "%x = f32[8,4]{1,0:S(5)} copy(%y)",
    ):
        assert len(find_host_operations(text)) == 1
