"""Tools that compile the step for GPUs: the table of kernels, the kernels' calls."""

import importlib
import json

import numpy as np
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


def test_calls_of_kernels_become_functions(tool, monkeypatch):
    link = tool("device_link")
    kernels = tool_stub(monkeypatch)
    code = """  func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = call @helper(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func private @helper(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.custom_call @triton(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }"""
    monkeypatch.setattr(link, "_lowered", lambda *_: code)
    call = (
        "    %4 = stablehlo.custom_call @electra_tf.add_norm(%0, %3) {api_version = "
        '3 : i32, backend_config = "{\\22rate\\22: 0.1}"} : (tensor<4xf32>, '
        "tensor<2xf32>) -> tuple<tensor<4xf32>, tensor<2xf32>> loc(#loc7)"
    )
    element = (
        "    %5 = stablehlo.get_tuple_element %4[1] : (tuple<tensor<4xf32>, "
        "tensor<2xf32>>) -> tensor<2xf32> loc(#loc7)"
    )
    program = "\n".join(
        ["module {", "  func.func @main() {", call, element, "  }", "}"]
    )
    lines = [line.lstrip() for line in link.link(program, "cuda").splitlines()]
    assert kernels == [False]
    assert lines[2] == (
        "%4:2 = call @kernel_0(%0, %3) : (tensor<4xf32>, tensor<2xf32>) -> "
        "(tensor<4xf32>, tensor<2xf32>) loc(#loc7)"
    )
    reshape = "stablehlo.reshape %4#1 : (tensor<2xf32>) -> tensor<2xf32>"
    assert lines[3] == f"%5 = {reshape}"
    text = "\n".join(lines[5:])
    assert "func.func private @kernel_0(" in text
    assert "call @kernel_0_helper(" in text
    assert "func.func private @kernel_0_helper(" in text
    assert "-> tensor<4xf32> loc(#loc7)\nreturn" in text  # the Triton call
    assert lines[-1] == "}"


def tool_stub(monkeypatch):
    """Replace the kernels' module, which needs JAX; return the calls of `interpret`."""
    import sys
    import types

    calls = []
    stub = types.SimpleNamespace(interpret=calls.append)
    monkeypatch.setitem(sys.modules, "device_kernels", stub)
    return calls


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
    assert results["kernels"] <= 900
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


def test_buffers_and_tensors_of_a_layout(tool):
    layouts = tool("device_layout")
    layout = {
        "sizes": {"flat/weights": 16},
        "regions": [
            {
                "buffer": "flat/weights",
                "start": 0,
                "shape": [2, 2],
                "paths": ["a", "b"],
            },
            {"buffer": "flat/weights", "start": 12, "shape": [3], "paths": ["c"]},
        ],
    }
    state = {
        "a": np.array([[0, 1], [2, 3]]),
        "b": np.array([[4, 5], [6, 7]]),
        "c": np.array([8, 9, 10]),
        "step": np.int64(5),
    }
    packed = layouts.pack(state, layout)
    values = [0, 1, 4, 5, 2, 3, 6, 7, 0, 0, 0, 0, 8, 9, 10, 0]  # a and b side by side
    assert packed["flat/weights"].tolist() == values
    assert packed["step"] == 5
    back = layouts.unpack(packed, layout)
    assert back.keys() == state.keys()
    assert all(np.array_equal(back[name], state[name]) for name in state)
