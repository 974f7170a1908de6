"""Compile XLA programs for devices that are not present, and analyse the result.

Only JAX is used here. Its public API compiles functions of JAX, not programs of other
libraries, so two of its internal modules are needed: see the extras `tpu-check` and
`gpu-check` for the release.
"""

import collections
import dataclasses
import json
import math
import os
import pathlib
import re
import shutil
from typing import Any

from device_link import link_for
from device_table import DEVICES

# Operations that leave the device: transfers, callbacks, buffers in the host's memory.
_HOST_OPERATIONS = r"\b(infeed|outfeed|send|recv)\b\W? *\(|\w*callback\w*|py_client"
_HOST_MEMORY = r"\S+:S\(5\)\S*"
# Dynamic shapes in StableHLO and in the compiled program.
_DYNAMIC = r"tensor<[0-9x]*\?|\[[0-9,]*<="
# Shapes of a StableHLO matmul and the contracted axes of its left operand.
_MATMUL = re.compile(
    r"stablehlo\.dot(?:_general)? .*?(?:contracting_dims = \[([\d, ]*)\].*?)?"
    r": \(tensor<([^>]*)>, tensor<[^>]*>\) -> tensor<([^>]*)>"
)
# Rows, type of the operands and shape of the second in a kernel of `device_kernels`.
_KERNEL_MATMUL = re.compile(
    r'name = "matmul_gelu.*: \(tensor<(\d+)x\d+x(\w+)>, tensor<(\d+)x(\d+)x'
)

# Parameters of a program and the results that replace them.
_ALIAS = r"parameter_number = (\d+) : i64\}, output_index = array<i64: (\d+)>"
_DTYPES = {"f32": "float32", "i32": "int32", "i64": "int64"}  # of state and metrics


def set_environment(topology: str) -> None:
    """Prevent JAX from looking for devices; call this before JAX is imported."""
    os.environ |= {"JAX_PLATFORMS": "cpu"}
    if DEVICES[topology.split(":")[0]].cuda:
        os.environ |= {
            "CUDA_VISIBLE_DEVICES": "-1",
            "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        }
        return
    # Without a lock on a TPU, several of these processes may run at once.
    os.environ |= {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "none",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }


def to_stablehlo(program: bytes) -> str:
    """Convert the program to StableHLO, which lacks `copy` and has another `erf`."""
    from jax._src.lib import xla_client

    text = xla_client._xla.mlir.xla_computation_to_mlir_module(
        xla_client.XlaComputation(program)
    )
    text = text.decode() if isinstance(text, bytes) else text
    operands = r" (%\S+) (.*?): (tensor<[^>]*>)"
    text = re.sub(
        r"mhlo\.copy" + operands, r"stablehlo.reshape \1 \2: (\3) -> \3", text
    )
    return re.sub(r"mhlo\.erf" + operands, r"chlo.erf \1 \2: \3 -> \3", text)


def compile_program(program: str, topology: str) -> Any:
    """Compile a StableHLO program for the first device of a topology."""
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax.experimental import topologies
    from jaxlib.mlir import ir

    properties = DEVICES[topology.split(":")[0]]
    options = xla_client.CompileOptions()
    if properties.cuda:
        description = topologies.get_topology_desc(
            platform="cuda", target_config=properties.target_config(), topology="1x1x1"
        )
        # Autotuning runs kernels, which needs the GPU.
        options.env_option_overrides = [("xla_gpu_autotune_level", 0)]
    else:
        description = topologies.get_topology_desc(
            platform="tpu", topology_name=topology
        )
    device = description.devices[0]
    devices = xla_client._xla.DeviceList((device,))
    with mlir.make_ir_context():
        module = ir.Module.parse(program)
        return device.client.compile(module, devices, options)


def export_program(program: str) -> tuple[bytes, dict[int, int]]:
    """Convert a StableHLO program for `jax.export.deserialize`, for any device.

    Returns:
        The program, and the index of the result that replaces each parameter.
    """
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    aliases = {int(p): int(r) for p, r in re.findall(_ALIAS, program)}
    # These attributes belong to a dialect that has no versions.
    program = re.sub(r" \{mhlo\.frontend_attributes = \{[^}]*\}\}", "", program)
    with mlir.make_ir_context():
        module = ir.Module.parse(program)
        attributes = module.operation.attributes
        for name in [name for name in attributes if name.startswith("mhlo.")]:
            del attributes[name]
        functions = module.body.operations
        (signature,) = (f.type for f in functions if f.name.value == "main")
        inputs, results = map(_shapes, (signature.inputs, signature.results))
        version = stablehlo.get_version_from_compatibility_requirement(
            stablehlo.StablehloCompatibilityRequirement.WEEK_12
        )
        code = _jax.mlir.serialize_portable_artifact(module, version, False)
    return _as_export(code, inputs, results), aliases


def export_folder(folder: pathlib.Path, device: str) -> None:
    """Convert the programs of a folder for JAX and add the runner."""
    path = folder / "description.json"
    description = json.loads(path.read_text(encoding="utf-8"))
    for file in folder.glob("*.hlo"):
        program = link_for(to_stablehlo(file.read_bytes()), device)
        exported, aliases = export_program(program)
        file.with_suffix(".jax").write_bytes(exported)
        file.unlink()
        if names := description["programs"].get(file.stem):
            names["matmul_flops"] = matmul_flops(program)
            parameters = enumerate(names["state"], 3)  # after the batch's fields
            names["results"] = {n: aliases[p] for p, n in parameters if p in aliases}
    description["peaks"] = {n: d.peaks for n, d in DEVICES.items() if d.cuda}
    path.write_text(json.dumps(description, indent=1), encoding="utf-8")
    source = pathlib.Path(__file__).parent
    shutil.copy(source / "device_run.py", folder / "run.py")
    for name in ("device_steps.py", "device_compare.py"):
        shutil.copy(source / name, folder)


def _as_export(code: bytes, inputs: list[Any], results: list[Any]) -> bytes:
    """Return JAX's export of a function of the same types, with another program."""
    import jax

    def function(*arguments: Any) -> list[Any]:
        return [jax.numpy.zeros(result.shape, result.dtype) for result in results]

    exported = jax.export.export(
        jax.jit(function, keep_unused=True),
        platforms=["cpu"],
        disabled_checks=[jax.export.DisabledSafetyCheck.platform()],
    )(*inputs)
    exported = dataclasses.replace(exported, mlir_module_serialized=code)
    return bytes(exported.serialize())


def _shapes(types: Any) -> list[Any]:
    """Return the shapes and types of MLIR tensors."""
    import jax

    return [jax.ShapeDtypeStruct(t.shape, _DTYPES[str(t.element_type)]) for t in types]


def read_costs(executable: Any) -> dict[str, float]:
    """Return the FLOPs, and the bytes that all kernels together read and write."""
    import jax
    from jax._src.lib import xla_client

    try:
        costs = executable.cost_analysis()
    except RuntimeError as error:
        if "UNIMPLEMENTED" not in str(error):  # GPUs
            raise
        client = jax.devices("cpu")[0].client
        (module,) = executable.hlo_modules()
        costs = xla_client._xla.hlo_module_cost_analysis(client, module)
    return {"flops": costs["flops"], "bytes_accessed": costs["bytes accessed"]}


def compiled_text(executable: Any) -> str:
    """Return the compiled program as text; empty if JAX cannot read it (v6e)."""
    try:
        return "\n".join(m.to_string() for m in executable.hlo_modules())
    except RuntimeError as error:
        if "RET_CHECK" not in str(error):
            raise
        return ""


def matmul_flops(program: str) -> dict[str, int]:
    """Return the FLOPs of a StableHLO program's matmuls by type of the operands.

    A loop's body is counted once.
    """
    flops = collections.Counter()
    for axes, left, result in _MATMUL.findall(program):
        *sizes, dtype = left.split("x")
        contracted = [int(axis) for axis in axes.split(",")] if axes else [-1]
        *outputs, _ = result.split("x")
        products = [int(sizes[axis]) for axis in contracted]
        flops[dtype] += 2 * math.prod([*products, *map(int, outputs)])
    return dict(flops + kernel_flops(program))


def kernel_flops(program: str) -> collections.Counter:
    """Return the FLOPs of the matmuls with GELU within kernels, by type."""
    flops = collections.Counter()
    for rows, dtype, *sizes in _KERNEL_MATMUL.findall(program):
        flops[dtype] += 2 * math.prod(map(int, [rows, *sizes]))
    return flops


def count_operations(compiled: str) -> dict[str, Any]:
    """Count what a compiled program starts: fusions, copies, transposes, libraries."""
    fused = set(re.findall(r" fusion\(.*?calls=%?([\w.-]+)", compiled))
    counts, libraries, name = collections.Counter(), collections.Counter(), ""
    for line in compiled.splitlines():
        if header := re.match(r"(?:ENTRY )?%?([\w.-]+) \(.*\{$", line):
            name = header[1]
        elif name not in fused and (operation := re.search(r"\s([a-z-]+)\(", line)):
            counts[operation[1]] += 1
            libraries.update(re.findall(r'custom_call_target="([^"]*)"', line))
    return {
        "fusions": counts["fusion"],
        "copies": counts["copy"],
        "transposes": counts["transpose"],
        "library_calls": dict(libraries),
    }


def find_obstacles(program: str, compiled: str) -> dict[str, Any]:
    """Return the operations that leave the device and the number of dynamic shapes."""
    text = re.sub(r'"[^"]{300,}"', "", program + compiled)  # code of kernels
    patterns = f"{_HOST_OPERATIONS}|{_HOST_MEMORY}"
    return {
        "leaves_the_device": sorted({m[0] for m in re.finditer(patterns, text)}),
        "dynamic_shapes": len(re.findall(_DYNAMIC, text)),
    }


def bound_step(
    topology: str, matmuls: dict[str, int], bytes_accessed: float
) -> dict[str, float]:
    """Return the seconds of the matmuls at peak and of the bytes at full bandwidth."""
    device = DEVICES[topology.split(":")[0]]
    return {
        "matmul_seconds": sum(n / device.peaks[dtype] for dtype, n in matmuls.items()),
        "memory_seconds": bytes_accessed / device.bandwidth,
    }
