"""Tools that compile the step for GPUs: the table of kernels, the kernels' calls."""

import importlib
import json
import sys
import types

import numpy as np
import pytest
from conftest import ROOT, python

from electra_tf.errors import InputError

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
  %call.1 = (bf16[64,16]{1,0}, bf16[64,16]{1,0}) custom-call(%c, %d, %b), \
custom_call_target="__gpu$xla.gpu.triton", \
metadata={op_name="generator_1/encoder_1/layer_0/intermediate/XlaCustomCallV2"}, \
backend_config={grid_x = 1 : i32, name = "matmul_gelu_kernel"}
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
    update, matmul, gelu, copy = costs.Program(PROGRAM).kernels
    assert update.group == "update"
    assert update.bytes == 4 * (8 + 8 + 8)  # of a's 1,000 values 8 are read
    assert matmul.group == "generator: feed-forward"
    assert matmul.flops == {"bf16": 2 * 64 * 32 * 16}
    assert matmul.bytes == 2 * (64 * 32 + 32 * 16 + 64 * 16)
    # Its product and GELU of it are written.
    assert gelu.bytes == 2 * (64 * 32 + 32 * 16 + 2 * 64 * 16) + 4 * 8
    assert (gelu.group, gelu.flops) == (matmul.group, matmul.flops)
    assert (copy.count, copy.bytes) == (3, 64)
    assert update.seconds("h100") == pytest.approx(3.8e-6)
    large = costs.Kernel("x", "y", 1, 2.814e9, {}, [])
    assert large.seconds("h100") == pytest.approx(1e-3, rel=0.01)
    table = costs.cost_table([update, matmul, gelu, copy], "h100")
    assert table["total"]["kernels"] == 6
    assert table["total"]["estimate_ms"] == pytest.approx(6 * 3.8e-3)
    assert costs.as_text(table).splitlines()[-1].startswith("| total | 6 | 0.00 |")


@pytest.mark.parametrize(
    ("options", "kernels"),
    [
        (["--topology=h100"], "gpu"),
        (["--topology=v5e:2x2"], "any"),
        (["--run=2", "--data=records"], "any"),  # on a CPU
        (["--run=2", "--data=records", "--device=gpu"], "gpu"),
        (["--topology=h100", "--kernels=any"], "any"),
    ],
)
def test_kernels_for_gpus_are_chosen_for_gpus(tool, monkeypatch, options, kernels):
    monkeypatch.setattr(sys, "argv", ["device_compile.py", *options])
    assert tool("device_compile").parse().kernels == kernels


def test_records_travel_in_parts(tool, folder, tmp_path, monkeypatch):
    from electra_tf.text import pipeline
    from electra_tf.text.record_set import open_records

    pytest.importorskip("jax", reason="needs the extra tpu-check or gpu-check")
    export, run = tool("device_export"), tool("device_run")
    monkeypatch.setattr(export, "_PART", 2000)
    record_set = open_records(str(folder), max_length=32, tokenizer=None)
    ends = export.write_records(record_set, tmp_path)
    sizes = [path.stat().st_size for path in sorted(tmp_path.iterdir())]
    assert len(sizes) > 2
    assert set(sizes[:-1]) == {2000}
    sent = types.SimpleNamespace(_folder=tmp_path, _description={"length": 32})
    records = run.Trainer._read_records(sent)
    assert records["ids"].dtype == np.uint16
    np.testing.assert_array_equal(records["ends"], ends)
    batches = run.read_batch(records, np.arange(len(ends)), 32)
    (expected,) = pipeline.evaluation_batches(record_set, len(ends))
    for received, original in zip(batches, expected, strict=True):
        np.testing.assert_array_equal(received, original)


def test_batches_of_several_lengths_read_each_record_once_an_epoch(tool):
    export, run = tool("device_export"), tool("device_run")
    random = np.random.default_rng(0)
    ends = random.permutation([*range(1, 17)] * 5 + [*range(17, 33)] * 15)
    config = types.SimpleNamespace(
        input=types.SimpleNamespace(batch_size=4),
        training=types.SimpleNamespace(log_every=7),
    )
    batches = export._batches([16, 32], ends, config)
    # 80 records of up to 16 tokens are 10 batches, and 240 longer ones are 60.
    assert [list(batch.values()) for batch in batches] == [
        ["step_16", 16, 8, 1],
        ["step", 32, 4, 6],
    ]
    with pytest.raises(
        InputError, match=r"of 2 positions .*not 10 records and 0 steps"
    ):
        export._batches([2, 32], ends, config)
    trainer = run.Trainer.__new__(run.Trainer)
    trainer._description = {"counts": [200, 120], "window": 50}
    trainer._size, trainer._batches = 7, batches
    trainer._kinds, trainer._per_epoch = (ends > 16).astype(int), np.array([10, 60])

    def bits(epoch):
        random = np.random.default_rng(epoch)
        return random.permutation(2), random.permutation(320)

    trainer._bits = bits
    first, second = trainer._numbers(0, 70), trainer._numbers(70, 70)
    for kind, numbers in enumerate(first):
        assert (
            sorted(numbers.ravel()) == np.flatnonzero(trainer._kinds == kind).tolist()
        )
        assert (numbers != second[kind]).any()
    # An interruption changes nothing.
    parts = zip(*(trainer._numbers(*part) for part in ((0, 10), (10, 60))), strict=True)
    for whole, part in zip(first, parts, strict=True):
        np.testing.assert_array_equal(np.concatenate(part), whole)


@pytest.mark.slow
def test_small_needs_few_kernels_and_bytes_on_a_gpu():
    for name in ("jax", "jax_cuda13_plugin"):
        pytest.importorskip(name, reason="needs the extra gpu-check")
    result = python(
        *(ROOT / "tools/device_checks/device_compile.py", "--topology=h100"),
        *(f"--config={ROOT / 'configs/small.yaml'}", "--batch_size=128"),
        XLA_FLAGS="",
    )
    assert result.returncode == 0, result.stderr
    results = json.loads(result.stdout.splitlines()[-1])
    assert results["kernels"] <= 700
    assert results["gb"] <= 16
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


def test_times_of_kernels_are_sums_by_name_of_the_streams_of_a_gpu(tool):
    run, fields = tool("device_run"), types.SimpleNamespace

    def line(name, *events):
        events = [fields(name=name, duration_ns=time) for name, time in events]
        return fields(name=name, events=events)

    stream = line("Stream #13", ("add_1", 2e3), ("kernel.2", 1e3), ("add_12", 4e3))
    planes = [
        fields(name="/device:GPU:0", lines=[stream, line("Steps", ("1", 9e9))]),
        fields(name="/host:CPU", lines=[line("Stream", ("copy", 9e9))]),
    ]
    times = run.kernel_times(fields(planes=planes))
    assert times == {"add": [2e3, 4e3], "kernel": [1e3]}
    lines = [line.split() for line in run.format_times(times, steps=2).splitlines()]
    assert lines == [
        ["3.5", "1.5", "all"], ["3.0", "1.0", "add"], ["0.5", "0.5", "kernel"],
    ]  # fmt: skip


def test_a_run_begins_with_the_weights_that_init_checkpoint_loads(
    tool, folder, tmp_path
):
    from tiny import SETS

    export, steps = tool("device_export"), tool("device_steps")
    sets = [*SETS, "model.depth=2"]
    first = export._resolve(str(folder), "tiny", [*sets, "objective.name=mlm"])
    sets += ["model.generator_depth=0.5", "model.generator_heads=2"]
    sets.append("model.generator_width=1.0")
    second = export._resolve(str(folder), "tiny", sets)
    (tmp_path / "files").mkdir()
    for name, content in first.files().items():
        (tmp_path / "files" / name).write_bytes(content)
    record_set = first.open(str(folder))
    metadata = export.data_fingerprint(record_set, first.tokenizer)
    layout = {"sizes": {"all/weights": 6}, "regions": [
        {"buffer": "all/weights", "start": 2, "shape": [2], "paths": ["a", "b"]}
    ]}  # fmt: skip
    text = {"metadata": metadata, "programs": {"step": {"layout": layout}}}
    (tmp_path / "description.json").write_text(json.dumps(text))
    begun = export._begin(tmp_path, second)
    sources = {v.path for v in first.pretrainer().trainable_variables}
    own = {v.path for v in second.pretrainer().trainable_variables}
    assert set(begun.values()) == sources  # all of the masked LM is used
    assert begun.keys() < own
    for path, source in begun.items():
        assert path.split("/")[-2:] == source.split("/")[-2:]
    encoder = "electra/discriminator/encoder/"
    rest = own - begun.keys()
    assert rest
    assert all("discriminator/head/" in path for path in rest)
    generator = [p for p in begun if p.startswith("electra/generator/encoder/layer_0")]
    assert generator
    for path in generator:
        main = path.replace("electra/generator/encoder/", encoder)
        assert begun[path] == begun[main]
    np.savez(tmp_path / "state.npz", **{"all/weights": np.arange(6.0), "c": 1})
    state = steps.read_state(tmp_path / "state.npz", text)
    assert {name: value.tolist() for name, value in state.items()} == {
        "a": [2, 3], "b": [4, 5], "c": 1,
    }  # fmt: skip
