"""The whole train step, compiled by the TPU's own compiler without a TPU.

Masking, sampling, both towers, backward pass, clipping and update become one program
of XLA, which the compiler within `libtpu` compiles for a device of the topology. So
shapes, operations and memory are proved; that the program runs, and how fast, is not.
One device's share of the step is compiled: the sum over devices is not in it.
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
sys.path.insert(0, str(ROOT))  # where the package is not installed
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# GB of memory a device has, by the topology's first word (Google Cloud's TPU pages).
MEMORY = {"v4": 32, "v5e": 16, "v5p": 95, "v6e": 32}
# What would leave the device, by its name in a program.
_LEAVES = r"\b(infeed|outfeed|send|recv)\b\W? *\(|\w*callback\w*|py_client"
# Shapes that are known only as it runs, in StableHLO and in the compiled program.
_DYNAMIC = r"tensor<[0-9x]*\?|\[[0-9,]*<="


def trace(options: argparse.Namespace, path: str) -> None:
    """Writes the step as a program of XLA; its own process has TensorFlow."""
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
    continues_V = np.zeros(options.vocabulary_size, bool)
    pretrainer = Pretrainer(
        config, SpecialTokens(2, 3, 4, len(continues_V), is_continuation_V=continues_V)
    )
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


def portable(program: bytes) -> str:
    """The program as StableHLO, which knows no `copy` and has another `erf`."""
    from jax._src.lib import xla_client

    text = xla_client._xla.mlir.xla_computation_to_mlir_module(
        xla_client.XlaComputation(program)
    )
    text = text.decode() if isinstance(text, bytes) else text
    operation = r"mhlo\.{} (%\S+) (.*?): (tensor<[^>]*>)"
    text = re.sub(
        operation.format("copy"), r"stablehlo.reshape \1 \2: (\3) -> \3", text
    )
    return re.sub(operation.format("erf"), r"chlo.erf \1 \2: \3 -> \3", text)


def compiled(program: str, topology: str):
    """What the compiler of the topology's first device makes of it."""
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax.experimental import topologies
    from jaxlib.mlir import ir

    found = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    device = found.devices[0]
    devices = xla_client._xla.DeviceList((device,))
    with mlir.make_ir_context():
        module = ir.Module.parse(program)
        return device.client.compile(module, devices, xla_client.CompileOptions())


def compiled_text(found) -> str:
    """What the compiler made; nothing where JAX cannot read it (v6e's, mid 2026)."""
    try:
        return "\n".join(module.to_string() for module in found.hlo_modules())
    except RuntimeError as error:
        if "RET_CHECK" not in str(error):
            raise
        return ""


def measure(options: argparse.Namespace) -> dict:
    """Traces, compiles, and reads what the compiler says of memory and operations."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.hlo")
        command = [sys.executable, *sys.argv, f"--hlo={path}"]
        command += [f"--batch_size={options.batch_size}"]
        subprocess.run(command, check=True)
        with open(path, "rb") as file:
            program = portable(file.read())
    start = time.perf_counter()
    found = compiled(program, options.topology)
    seconds = time.perf_counter() - start
    memory = found.get_compiled_memory_stats()
    text = program + compiled_text(found)
    arguments, temporary = memory.argument_size_in_bytes, memory.temp_size_in_bytes
    new = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return {
        "config": options.config,
        "topology": options.topology,
        "batch_size": options.batch_size,
        "compile_seconds": round(seconds, 1),
        "argument_bytes": arguments,
        "temporary_bytes": temporary,
        "memory_share": (arguments + temporary + new) / options.memory,
        "flops": found.cost_analysis()["flops"],
        "leaves_the_device": sorted({m.group() for m in re.finditer(_LEAVES, text)}),
        "dynamic_shapes": len(re.findall(_DYNAMIC, text)),
        "compiled_text": len(text) > len(program),
    }


def report(found: dict) -> None:
    """Prints a few lines for people and one of JSON."""
    arguments, temporary = (
        found[f"{kind}_bytes"] / 1e9 for kind in ("argument", "temporary")
    )
    print(
        f"{found['config']}, {found['topology']}, batch {found['batch_size']}:\n"
        f"  compiled in {found['compile_seconds']} s, {found['flops']:.3g} FLOPs\n"
        f"  memory: {arguments:.2f} GB of arguments, {temporary:.2f} GB temporary, "
        f"{found['memory_share']:.0%} of the device's\n"
        f"  operations that leave the device: {found['leaves_the_device'] or 'none'}; "
        f"dynamic shapes: {found['dynamic_shapes'] or 'none'}"
        + ("" if found["compiled_text"] else " (in the program before it is compiled)")
    )
    print(json.dumps(found), flush=True)


def largest(options: argparse.Namespace) -> None:
    """Compiles ever larger batches; ends an eighth below one that is too large."""
    shares, fails = {}, None
    while True:
        try:
            found = measure(options)
            report(found)
            shares[options.batch_size] = found["memory_share"]
        except RuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            fails = options.batch_size
            print(f"batch {fails} does not fit", flush=True)
        fits = max(shares, default=0)
        if fails is not None and fails - fits <= max(1, fits // 8):
            break
        options.batch_size = following(shares, fails)
    print(f"batch {fits} fits, {fails} does not")


def following(shares: dict[int, float], fails: int | None) -> int:
    """The batch to try next.

    Args:
        shares: Of the memory, by the batches that fit.
        fails: The least batch that does not fit, if any.

    Returns:
        In between; or, as memory grows by the row, just beyond where it would be full.
    """
    fits = max(shares, default=0)
    if fails is not None:
        return (fits + fails) // 2
    if len(shares) == 1:
        return 2 * fits
    before = sorted(shares)[-2]
    a_row = (shares[fits] - shares[before]) / (fits - before)
    full = fits + (1 - shares[fits]) / max(a_row, 1e-9)
    return max(fits + fits // 8 + 1, min(round(full * 17 / 16), 16 * fits))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default=str(ROOT / "configs/small.yaml"))
    parser.add_argument("--set", action="append", default=[], help="as for pretrain")
    parser.add_argument(
        "--topology", default="v5e:2x2", help="such as v5e:2x2, v4:2x2x1, v6e:2x2"
    )
    parser.add_argument(
        "--batch_size", type=int, default=16, help="rows of one device; default: 16"
    )
    parser.add_argument("--vocabulary_size", type=int, default=30522)
    parser.add_argument(
        "--largest", action="store_true", help="go on to the largest batch that fits"
    )
    parser.add_argument("--hlo", help=argparse.SUPPRESS)
    options = parser.parse_args()
    chip = options.topology.split(":")[0]
    if chip not in MEMORY:
        sys.exit(f"error: --topology begins with one of {list(MEMORY)}, not {chip!r}")
    options.memory = MEMORY[chip] * 2**30
    if options.hlo:
        trace(options, options.hlo)
        return
    # No TPU is asked for, so two of these may run at once.
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "none",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
    if options.largest:
        largest(options)
        return
    try:
        report(measure(options))
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        sys.exit(
            f"error: batch {options.batch_size} does not fit into a device of "
            f"{options.topology}. Take a smaller one, or work it off in parts: --set "
            f"training.accumulation=2. The compiler: {str(error).splitlines()[0]}"
        )


if __name__ == "__main__":
    main()
