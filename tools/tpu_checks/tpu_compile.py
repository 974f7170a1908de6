"""Compile the whole train step with the TPU compiler, without a TPU.

Masking, sampling, both models, backward pass, clipping and update are one XLA program,
which the compiler in `libtpu` compiles for one device of the topology. This validates
shapes, operations and memory, but does not run the program. The program is one device's
share of the step, without the reduction over devices.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # if the package is not installed
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# GB of memory per device, by the generation in the topology (Google Cloud's TPU docs).
MEMORY = {"v4": 32, "v5e": 16, "v5p": 95, "v6e": 32}
# Operations that leave the device.
_HOST_OPERATIONS = r"\b(infeed|outfeed|send|recv)\b\W? *\(|\w*callback\w*|py_client"
# Dynamic shapes in StableHLO and in the compiled program.
_DYNAMIC = r"tensor<[0-9x]*\?|\[[0-9,]*<="


def trace(options: argparse.Namespace, path: str) -> None:
    """Write the step as an XLA program. Only this process imports TensorFlow."""
    import numpy as np
    import tensorflow as tf

    from electra_tf.batch import Batch
    from electra_tf.config.loader import load_config
    from electra_tf.pretraining.masking import SpecialTokens
    from electra_tf.pretraining.pretrainer import Pretrainer
    from electra_tf.training.optimizer import create_optimizer

    sets = [
        f"input.batch_size={options.batch_size}",
        f"model.vocabulary_size={options.vocabulary_size}",
        "training.precision=mixed_bfloat16",
        "training.xla=on",
        *options.set,
    ]
    config = load_config(options.config, sets)
    size = options.vocabulary_size
    tokens = SpecialTokens(2, 3, 4, size, is_continuation_V=np.zeros(size, bool))
    pretrainer = Pretrainer(config, tokens)
    pretrainer.compile(create_optimizer(config.optimizer, config.training.steps))

    @tf.function(jit_compile=True, autograph=False)
    def step(*fields: tf.Tensor) -> list[tf.Tensor]:
        metrics = pretrainer.train_step(Batch(*fields), as_ratios=False)
        return tf.nest.flatten(metrics)

    shape = (options.batch_size, config.records.max_length)
    fields = [tf.zeros(shape, tf.int32)] * 3
    program = step.experimental_get_compiler_ir(*fields)(stage="hlo_serialized")
    with open(path, "wb") as file:
        file.write(program)


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


def compile_program(program: str, topology: str):
    """Compile a program for the first device of a topology."""
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax.experimental import topologies
    from jaxlib.mlir import ir

    description = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    device = description.devices[0]
    devices = xla_client._xla.DeviceList((device,))
    with mlir.make_ir_context():
        module = ir.Module.parse(program)
        return device.client.compile(module, devices, xla_client.CompileOptions())


def compiled_text(executable) -> str:
    """Return the compiled program as text; empty if JAX cannot read it (v6e)."""
    try:
        return "\n".join(m.to_string() for m in executable.hlo_modules())
    except RuntimeError as error:
        if "RET_CHECK" not in str(error):
            raise
        return ""


def measure(options: argparse.Namespace) -> dict:
    """Trace and compile the step; return its memory and operations."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.hlo")
        arguments = [f"--hlo={path}", f"--batch_size={options.batch_size}"]
        subprocess.run([sys.executable, *sys.argv, *arguments], check=True)
        program = to_stablehlo(pathlib.Path(path).read_bytes())
    start = time.perf_counter()
    executable = compile_program(program, options.topology)
    seconds = time.perf_counter() - start
    memory = executable.get_compiled_memory_stats()
    arguments, temporary = memory.argument_size_in_bytes, memory.temp_size_in_bytes
    new = memory.output_size_in_bytes - memory.alias_size_in_bytes
    compiled = compiled_text(executable)
    text = program + compiled
    return {
        "config": options.config,
        "topology": options.topology,
        "batch_size": options.batch_size,
        "compile_seconds": round(seconds, 1),
        "flops": executable.cost_analysis()["flops"],
        "argument_bytes": arguments,
        "temporary_bytes": temporary,
        "memory_share": (arguments + temporary + new) / options.memory,
        "leaves_the_device": sorted(
            {m.group() for m in re.finditer(_HOST_OPERATIONS, text)}
        ),
        "dynamic_shapes": len(re.findall(_DYNAMIC, text)),
        "compiled_text": bool(compiled),
    }


def try_batch(options: argparse.Namespace) -> str:
    """Print the results as JSON; return the compiler's message if memory is full."""
    try:
        print(json.dumps(measure(options)), flush=True)
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return str(error).splitlines()[0]
    return ""


def find_largest_batch(options: argparse.Namespace) -> None:
    """Search the largest batch that fits into memory, to an eighth."""
    fits, fails = 0, None
    while fails is None or fails - fits > max(1, fits // 8):
        if try_batch(options):
            fails = options.batch_size
            print(f"batch {fails} does not fit", flush=True)
        else:
            fits = options.batch_size
        options.batch_size = 2 * fits if fails is None else (fits + fails) // 2
    print(f"batch {fits} fits, {fails} does not")


def parse() -> argparse.Namespace:
    """Return the validated options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--config", default=str(ROOT / "configs/small.yaml"))
    add("--set", action="append", default=[], help="--set of pretrain")
    add("--topology", default="v5e:2x2", help="such as v5e:2x2, v4:2x2x1, v6e:2x2")
    add("--batch_size", type=int, default=16, help="rows per device; default: 16")
    add("--vocabulary_size", type=int, default=30522)
    add("--largest", action="store_true", help="search the largest batch that fits")
    add("--hlo", help=argparse.SUPPRESS)
    options = parser.parse_args()
    chip = options.topology.split(":")[0]
    if chip not in MEMORY:
        sys.exit(
            f"error: --topology must begin with one of {list(MEMORY)}. "
            f"Received: {options.topology!r}"
        )
    options.memory = MEMORY[chip] * 2**30
    return options


def main() -> None:
    """Compile one batch, or search the largest one."""
    options = parse()
    if options.hlo:
        trace(options, options.hlo)
        return
    # Without a lock on a TPU, several of these processes may run at once.
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "none",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
    if options.largest:
        find_largest_batch(options)
    elif message := try_batch(options):
        sys.exit(
            f"error: batch {options.batch_size} does not fit into a device of "
            f"{options.topology}. Pass a smaller --batch_size, or --set "
            f"training.accumulation=2. Compiler: {message}"
        )


if __name__ == "__main__":
    main()
