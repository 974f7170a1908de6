"""Convert programs of TensorFlow for JAX, with our kernels in place of their calls."""

import dataclasses
import functools
import json
import re
from typing import Any

import gpu_kernels
import jax
from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

# A call by `device_layer_ops.py`.
_CALL = re.compile(
    r"(?P<result>%\w+) = stablehlo\.custom_call @electra_tf\.(?P<name>\w+)"
    r"\((?P<operands>[^)]*)\) \{.*?backend_config = \"(?P<settings>[^\"]*)\".*?\} : "
    r"\((?P<inputs>[^)]*)\) -> (?P<outputs>tuple<.*>|tensor<[^>]*>)"
)
_ELEMENT = re.compile(
    r"stablehlo\.get_tuple_element (%\w+)\[(\d+)\] : .* -> (tensor<[^>]*>)"
)
# Parameters of a program and the results that replace them.
_ALIAS = re.compile(
    r"parameter_number = (\d+) : i64\}, output_index = array<i64: (\d+)>"
)
_DTYPES = {
    **{"f32": "float32", "bf16": "bfloat16"},
    **{"i32": "int32", "i64": "int64", "ui32": "uint32"},
}


def convert(program: str, device: str) -> tuple[bytes, dict[int, int]]:
    """Convert TensorFlow's StableHLO for `jax.export.deserialize`.

    Args:
        program: StableHLO as text, with calls of kernels or without.
        device: `gpu`, `tpu`, or `cpu`, which interprets the kernels.

    Returns:
        The program, and the index of the result that replaces each parameter.
    """
    aliases = {int(p): int(r) for p, r in _ALIAS.findall(program)}
    # Operations of a dialect that has no versions, and its attributes.
    operands = r" (%\S+) (.*?): (tensor<[^>]*>)"
    for old, new in (
        (r"mhlo\.copy" + operands, r"stablehlo.reshape \1 \2: (\3) -> \3"),
        (r"mhlo\.erf" + operands, r"chlo.erf \1 \2: \3 -> \3"),
        (r" \{mhlo\.frontend_attributes = \{[^}]*\}\}", ""),
    ):
        program = re.sub(old, new, program)
    with mlir.make_ir_context():
        module = ir.Module.parse(_link(program, device))
        attributes = module.operation.attributes
        for name in [name for name in attributes if name.startswith("mhlo.")]:
            del attributes[name]
        operations = module.body.operations
        (signature,) = (o.type for o in operations if o.name.value == "main")
        version = stablehlo.get_version_from_compatibility_requirement(
            stablehlo.StablehloCompatibilityRequirement.WEEK_12
        )
        code = _jax.mlir.serialize_portable_artifact(module, version, False)
        types = signature.inputs, signature.results
        inputs, results = ([_shape(str(t)) for t in several] for several in types)
    return _as_export(code, inputs, results), aliases


def _as_export(code: bytes, inputs: list[Any], results: list[Any]) -> bytes:
    """Return JAX's export of a function of the same types, with another program."""

    def function(*arguments: Any) -> list[Any]:
        return [jax.numpy.zeros(result.shape, result.dtype) for result in results]

    exported = jax.export.export(
        jax.jit(function, keep_unused=True),
        platforms=["cpu"],
        disabled_checks=[jax.export.DisabledSafetyCheck.platform()],
    )(*inputs)
    exported = dataclasses.replace(exported, mlir_module_serialized=code)
    return bytes(exported.serialize())


def _link(program: str, device: str) -> str:
    """Replace the calls of kernels by calls of functions, one for equal calls."""
    functions: dict[tuple[str, ...], str] = {}

    def call(match: re.Match) -> str:
        key = match["name"], match["settings"], match["inputs"]
        if key not in functions:
            functions[key] = _lowered(*key, device, f"kernel_{len(functions)}")
        name = re.search(r"@(\w+)", functions[key])[1]
        types = re.findall(r"tensor<[^>]*>", match["outputs"])
        return (
            f"{match['result']}:{len(types)} = call @{name}({match['operands']}) : "
            f"({match['inputs']}) -> ({', '.join(types)})"
        )

    program = _ELEMENT.sub(
        r"stablehlo.reshape \1#\2 : (\3) -> \3", _CALL.sub(call, program)
    )
    start, end, rest = program.rpartition("\n}")
    return "\n".join([start, *functions.values()]) + end + rest


def _lowered(name: str, settings: str, inputs: str, device: str, function: str) -> str:
    """Return a kernel as functions of StableHLO, of which the first is `function`."""
    gpu_kernels.interpret(device != "gpu")
    settings = json.loads(settings.replace(r"\22", '"'))
    kernel = functools.partial(gpu_kernels.KERNELS[name], **settings)
    shapes = [_shape(text) for text in re.findall(r"tensor<[^>]*>", inputs)]
    platform = "cuda" if device == "gpu" else device
    with jax.enable_x64(False):
        traced = jax.jit(kernel, keep_unused=True).trace(*shapes)
        code = traced.lower(lowering_platforms=(platform,)).as_text()
    code = re.sub(r" \{(jax|mhlo)\.[^{}]*\}", "", code)
    code = "\n".join(code.splitlines()[1:-1])
    for old in re.findall(r"func\.func \w+ @(\w+)", code):
        new = function if old == "main" else f"{function}_{old}"
        code = re.sub(rf"func\.func \w+ @{old}\(", f"func.func private @{new}(", code)
        code = re.sub(rf"call @{old}\(", f"call @{new}(", code)
    return code


def _shape(tensor: str) -> jax.ShapeDtypeStruct:
    """Return shape and type of an MLIR tensor such as `tensor<2x3xf32>`."""
    *sizes, dtype = re.fullmatch(r"tensor<(.*)>", tensor)[1].split("x")
    return jax.ShapeDtypeStruct([int(size) for size in sizes], _DTYPES[dtype])
