"""Tools that compile the step for GPUs: the table of kernels, the kernels' calls."""

import importlib
import json

import pytest
from conftest import ROOT, python

pytestmark = pytest.mark.tools

PROGRAM = """HloModule step

%fused_slice (p.1: f32[1000], p.2: f32[8]) -> f32[8] {
  %p.1 = f32[1000]{0} parameter(0)
  %p.2 = f32[8]{0} parameter(1)
  %slice.1 = f32[8]{0} slice(%p.1), slice={[8:16]}
  ROOT %add.1 = f32[8]{0} add(%slice.1, %p.2), metadata={op_name="update_2/add"}
}

%gemm (p.3: bf16[64,32], p.4: bf16[32,16]) -> bf16[64,16] {
  %p.3 = bf16[64,32]{1,0} parameter(0)
  %p.4 = bf16[32,16]{1,0} parameter(1)
  ROOT %dot.1 = bf16[64,16]{1,0} dot(%p.3, %p.4), lhs_contracting_dims={1}, \
rhs_contracting_dims={0}, metadata={op_name="generator_1/encoder_1/layer_0/output/dot"}
}

%body (t.1: (s32[], f32[8])) -> (s32[], f32[8]) {
  %t.1 = (s32[], f32[8]{0}) parameter(0)
  %get.1 = f32[8]{0} get-tuple-element(%t.1), index=1
  %copy.1 = f32[8]{0} copy(%get.1)
  ROOT %tuple.1 = (s32[], f32[8]{0}) tuple(%get.1, %copy.1)
}

%condition (t.2: (s32[], f32[8])) -> pred[] {
  %t.2 = (s32[], f32[8]{0}) parameter(0)
  ROOT %constant.1 = pred[] constant(true)
}

ENTRY %main (a: f32[1000], b: f32[8], c: bf16[64,32], d: bf16[32,16]) -> f32[8] {
  %a = f32[1000]{0} parameter(0)
  %b = f32[8]{0} parameter(1)
  %c = bf16[64,32]{1,0} parameter(2)
  %d = bf16[32,16]{1,0} parameter(3)
  %fusion.1 = f32[8]{0} fusion(%a, %b), kind=kLoop, calls=%fused_slice
  %fusion.2 = bf16[64,16]{1,0} fusion(%c, %d), kind=kCustom, calls=%gemm
  %tuple.2 = (s32[], f32[8]{0}) tuple(%a, %fusion.1)
  %while.1 = (s32[], f32[8]{0}) while(%tuple.2), condition=%condition, body=%body, \
backend_config={"known_trip_count":{"n":"3"}}
  ROOT %get.2 = f32[8]{0} get-tuple-element(%while.1), index=1
}
"""


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "device_checks"))
    return importlib.import_module


def test_kernels_of_a_compiled_program(tool):
    costs = tool("device_costs")
    update, matmul, copy = costs.Program(PROGRAM).kernels
    assert update.group == "update"
    assert update.bytes == 4 * (8 + 8 + 8)  # of a's 1,000 values 8 are read
    assert matmul.group == "generator: feed-forward"
    assert matmul.flops == {"bf16": 2 * 64 * 32 * 16}
    assert matmul.bytes == 2 * (64 * 32 + 32 * 16 + 64 * 16)
    assert (copy.count, copy.bytes) == (3, 64)
    assert update.seconds("h100") == pytest.approx(3.8e-6)
    large = costs.Kernel("x", "y", 1, 2.814e9, {}, [])
    assert large.seconds("h100") == pytest.approx(1e-3, rel=0.01)
    table = costs.cost_table([update, matmul, copy], "h100")
    assert table["total"]["kernels"] == 5
    assert table["total"]["estimate_ms"] == pytest.approx(5 * 3.8e-3)
    assert costs.as_text(table).splitlines()[-1].startswith("| total | 5 | 0.00 |")


@pytest.mark.slow
def test_small_needs_few_kernels_and_bytes_on_a_gpu():
    for name in ("jax", "jax_cuda13_plugin"):
        pytest.importorskip(name, reason="needs the extra gpu-check")
    result = python(
        *(ROOT / "tools/device_checks/device_compile.py", "--topology=h100"),
        *(f"--config={ROOT / 'configs/small.yaml'}", "--batch_size=128"),
    )
    assert result.returncode == 0, result.stderr
    results = json.loads(result.stdout.splitlines()[-1])
    assert results["kernels"] <= 760
    assert results["gb"] <= 17
    assert results["leaves_the_device"] == []


@pytest.mark.slow
def test_a_step_with_kernels_equals_that_of_tensorflow(folder, tmp_path):
    from tiny import SETS

    pytest.importorskip("jax", reason="needs the extra tpu-check or gpu-check")
    result = python(
        *(ROOT / "tools/device_checks/device_compile.py", "--config=tiny", "--run=4"),
        *(*(f"--set={item}" for item in SETS), "--kernels=gpu", "--batch_size=8"),
        *(f"--data={folder}", "--tolerance=1e-5"),
    )
    assert result.returncode == 0, result.stderr
    float32, bfloat16 = map(json.loads, result.stdout.splitlines()[-2:])
    assert max(float32["differences"].values()) < 1e-5
    assert bfloat16["differences"]["loss"] < 2e-4
    assert float32["largest_update"] > 1e-4
