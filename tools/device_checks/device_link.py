"""Put the kernels of `device_kernels.py` into an exported program that calls them."""

import functools
import json
import re
from typing import Any

_PREFIX = "electra_tf."  # of calls in `electra_tf/kernels/device_layer_ops.py`
_CALL = re.compile(
    r"(?P<result>%[\w]+) = stablehlo\.custom_call @electra_tf\.(?P<name>\w+)"
    r"\((?P<operands>[^)]*)\) \{.*?backend_config = \"(?P<settings>[^\"]*)\".*?\} : "
    r"\((?P<inputs>[^)]*)\) -> (?P<outputs>tuple<.*>|tensor<[^>]*>)(?P<place>.*)$",
    re.MULTILINE,
)
_ELEMENT = re.compile(r"(%\w+) = stablehlo\.get_tuple_element (%\w+)\[(\d+)\] : .* -> ")


def link(program: str, platform: str, interpret: bool = False) -> str:
    """Replace the calls of kernels in a StableHLO program by functions.

    Args:
        program: StableHLO as text.
        platform: JAX's name of the device, `cuda` or `cpu`.
        interpret: Whether kernels run as plain JAX operations, for tests on a CPU.
    """
    if not _CALL.search(program):
        return program
    import device_kernels

    device_kernels.interpret(interpret)
    lines, functions, counts = [], [], {}
    for line in program.splitlines():
        if match := _CALL.search(line):
            types = re.findall(r"tensor<[^>]*>", match["outputs"])
            function = f"kernel_{len(functions)}"
            # A function for each call, so that kernels keep the names of their layers.
            code = _lowered(match["name"], match["settings"], match["inputs"], platform)
            functions.append(_renamed(code, function, match["place"]))
            counts[match["result"]] = len(types)
            line = (
                f"{match['result']}:{len(types)} = call @{function}"
                f"({match['operands']}) : ({match['inputs']}) -> ({', '.join(types)})"
                f"{match['place']}"
            )
        elif (match := _ELEMENT.search(line)) and match[2] in counts:
            result, call, index = match.groups()
            kind = line[match.end() :].split(" loc(")[0]
            line = f"{result} = stablehlo.reshape {call}#{index} : ({kind}) -> {kind}"
        elif line.lstrip().startswith("func.func"):
            counts = {}
        lines.append(line)
    end = max(i for i, line in enumerate(lines) if line.startswith("}"))
    return "\n".join([*lines[:end], *functions, *lines[end:]])


def link_for(program: str, device: str) -> str:
    """Link for `cpu`, `gpu` or `tpu`; a CPU runs kernels as plain operations."""
    return link(program, "cuda" if device == "gpu" else device, device != "gpu")


@functools.cache
def _lowered(name: str, settings: str, inputs: str, platform: str) -> str:
    """Return the functions of a kernel as StableHLO; the first is its entry."""
    import jax
    from device_attention import KERNELS

    settings = json.loads(settings.replace(r"\22", '"'))
    kernel = functools.partial(KERNELS[name], **settings)
    shapes = [_shape(text) for text in re.findall(r"tensor<([^>]*)>", inputs)]
    with jax.enable_x64(False):
        traced = jax.jit(kernel, keep_unused=True).trace(*shapes)
        text = traced.lower(lowering_platforms=(platform,)).as_text()
    text = re.sub(r" \{(jax|mhlo)\.[^{}]*\}", "", text)
    return "\n".join(text.splitlines()[1:-1])


def _shape(text: str) -> Any:
    import jax

    *sizes, kind = text.split("x")
    names = {"f32": "float32", "bf16": "bfloat16", "i32": "int32", "ui32": "uint32"}
    return jax.ShapeDtypeStruct([int(size) for size in sizes], names[kind])


def _renamed(code: str, function: str, place: str) -> str:
    """Return functions under new names, and their matmuls and kernels with a place."""
    names = re.findall(r"func\.func \w+ @(\w+)", code)
    for name in names:
        new = function if name == names[0] else f"{function}_{name}"
        code = re.sub(rf"(func\.func )\w+ @{name}\(", rf"\1private @{new}(", code)
        code = re.sub(rf"call @{name}\(", f"call @{new}(", code)
    lines = [
        line + place if re.search(r"custom_call|dot_general", line) else line
        for line in code.splitlines()
    ]
    return "\n".join(lines)
