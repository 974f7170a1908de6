"""Compile the whole train step for a TPU or a GPU, on a machine without one.

Masking, sampling, both models, backward pass, clipping and update are one XLA program,
which the compiler in `libtpu` or in JAX's CUDA plugin compiles for one device's share
of a batch. This validates shapes, operations and memory, but does not run the program.

The output is JSON: `leaves_the_device` lists transfers, callbacks and buffers in the
host's memory, `kernels` counts the body of a loop once, `bytes` are those that all
kernels together read and write, `memory` those of arguments and temporary values.
"""

import argparse
import functools
import importlib.metadata
import json
import os
import pathlib
import re
import sys
from typing import Any

import jax
import numpy as np
import tensorflow as tf
from jax._src.lib import _jax
from jax.experimental import topologies

from electra_tf.batch import Batch
from electra_tf.config.loader import load_config
from electra_tf.pretraining.masking import SpecialTokens
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.training.optimizer import create_optimizer

sys.path.insert(0, str(pathlib.Path(__file__).parent / "one_gpu"))
# No process looks for devices, or waits for another one's lock on a TPU.
_ENVIRONMENT = {
    **{"CUDA_VISIBLE_DEVICES": "-1", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"},
    **{"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "none"},
    **{"TPU_WORKER_HOSTNAMES": "localhost", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"},
}

TPUS = ("v4", "v5e", "v5p")  # JAX cannot read the compiled program of a v6e
# What the compiler asks of a GPU, from NVIDIA's data sheets. The driver keeps 1 KiB of
# each multiprocessor's shared memory.
_GPU = (
    "threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: 2048 "
    "block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535 "
    "registers_per_core_limit: 65536 registers_per_block_limit: 65536 "
    "shared_memory_per_block: 49152 device_memory_size: 84825604096 "
)
GPUS = {
    "h100": _GPU + "core_count: 132 fpus_per_core: 128 l2_cache_size: 52428800 "
    "shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448 "
    "clock_rate_ghz: 1.98 memory_bandwidth: 3350000000000 "
    "cuda_compute_capability { major: 9 }",
    "a100": _GPU + "core_count: 108 fpus_per_core: 64 l2_cache_size: 41943040 "
    "shared_memory_per_core: 167936 shared_memory_per_block_optin: 166912 "
    "clock_rate_ghz: 1.41 memory_bandwidth: 2039000000000 "
    "cuda_compute_capability { major: 8 }",
}
_HOST = (
    r"\b(?:infeed|outfeed|send|recv)\b\W? *\(|\w*callback\w*|py_client|\S+:S\(5\)\S*"
)
_NO_KERNEL = {
    *("parameter", "get-tuple-element", "bitcast", "constant", "tuple", "after-all"),
    *("while", "call", "conditional", "async-start", "async-done", "async-update"),
}


def trace(options: argparse.Namespace) -> str:
    """Return the step as StableHLO."""
    from device_layer_ops import make_layer_ops

    sets = ["model.vocabulary_size=30522", "training.precision=mixed_bfloat16"]
    sets += ["training.xla=on", *options.set]
    config = load_config(options.config, sets)
    size = config.model.vocabulary_size
    tokens = SpecialTokens(2, 3, 4, size, is_continuation_V=np.zeros(size, bool))
    pretrainer = Pretrainer(config, tokens)
    pretrainer.compile(create_optimizer(config.optimizer, config.training.steps))
    if options.kernels:
        make = functools.partial(make_layer_ops, config.training.precision)
        pretrainer.objective.make_layer_ops = make

    @tf.function(jit_compile=True, autograph=False)
    def step(*fields: tf.Tensor) -> list[tf.Tensor]:
        return list(pretrainer.train_step(Batch(*fields)).values())

    shape = config.input.batch_size, config.records.max_length
    fields = [tf.zeros(shape, tf.int32)] * 3
    return step.experimental_get_compiler_ir(*fields)(stage="stablehlo")


def compile_step(program: str, topology: str) -> Any:
    """Compile a StableHLO program for the first device of a topology."""
    from program import convert

    gpu, named = GPUS.get(topology), {"topology_name": topology, "platform": "tpu"}
    if gpu:
        target = f'gpu_device_info {{ {gpu} }} platform_name: "CUDA" {_libraries()}'
        named = {"target_config": target, "topology": "1x1x1", "platform": "cuda"}
    device = topologies.get_topology_desc(**named).devices[0]
    place = jax.sharding.SingleDeviceSharding(device)
    code, aliases = convert(program, "gpu" if gpu else "tpu")
    exported = jax.export.deserialize(bytearray(code))
    arguments = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=place)
        for a in exported.in_avals
    ]
    step = jax.jit(exported.call, donate_argnums=tuple(aliases))
    # Autotuning runs kernels, which needs the GPU.
    settings = {"xla_gpu_autotune_level": 0} if gpu else {}
    return step.lower(*arguments).compile(compiler_options=settings)


def _libraries() -> str:
    """Return the versions of cuDNN and CUDA as text protocol buffers."""
    texts = []
    for package in ("nvidia-cudnn-cu13", "nvidia-cuda-runtime"):
        major, minor, patch = importlib.metadata.version(package).split(".")[:3]
        texts.append(f"{{ major: {major} minor: {minor} patch: {patch} }}")
    return "dnn_version_info {} runtime_version {}".format(*texts)


def count_kernels(compiled: str) -> int:
    """Count the operations of a compiled program that a device starts one by one."""
    calls = re.findall(r" ([\w-]+)\(.*?(?:calls|to_apply)=%?([\w.-]+)", compiled)
    inner = {name for kind, name in calls if kind not in ("call", "async-start")}
    count, name = 0, ""
    for line in compiled.splitlines():
        if header := re.match(r"(?:ENTRY )?%?([\w.-]+) \(.*\{$", line):
            name = header[1]
        elif name not in inner:
            operation = re.search(r" = (?:\(.*?\)|\S+) ([\w-]+)\(", line)
            count += bool(operation) and operation[1] not in _NO_KERNEL
    return count


def find_host_operations(program: str) -> list[str]:
    """Return the operations that leave the device, and buffers in host memory."""
    text = re.sub(r'"[^"]{300,}"', "", program)  # code of kernels
    return sorted(set(re.findall(_HOST, text)))


def report(program: str, compiled: Any) -> dict[str, Any]:
    """Return the properties of a program and of what was compiled of it."""
    text, memory = compiled.as_text(), compiled.memory_analysis()
    (module,) = compiled.runtime_executable().hlo_modules()
    costs = _jax.hlo_module_cost_analysis(jax.devices("cpu")[0].client, module)
    return {
        "leaves_the_device": find_host_operations(program + text),
        "kernels": count_kernels(text),
        "bytes": costs["bytes accessed"],
        "memory": memory.argument_size_in_bytes + memory.temp_size_in_bytes,
    }


def parse() -> argparse.Namespace:
    """Return the validated options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--config", default="small")
    add("--set", action="append", default=[], help="--set of pretrain")
    add("--topology", default="v5e:2x2", help="such as v5e:2x2, v4:2x2x1, h100, a100")
    add("--kernels", action="store_true", help="those of tools/one_gpu, on GPUs")
    add("--save", type=pathlib.Path, help="file for the text of the compiled program")
    options = parser.parse_args()
    name, _, shape = options.topology.partition(":")
    if not (shape and name in TPUS) and options.topology not in GPUS:
        names = ", ".join([*(f"{name}:SHAPE" for name in TPUS), *GPUS])
        parser.error(f"--topology must be one of {names}. Received: {options.topology}")
    if options.kernels and options.topology not in GPUS:
        parser.error(f"--kernels needs a GPU. Received: {options.topology}")
    return options


def main() -> None:
    options = parse()
    os.environ |= _ENVIRONMENT
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    program = trace(options)
    compiled = compile_step(program, options.topology)
    if options.save:
        options.save.write_text(compiled.as_text(), encoding="utf-8")
    print(json.dumps(report(program, compiled)))


if __name__ == "__main__":
    main()
