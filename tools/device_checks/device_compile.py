"""Compile the whole train step for a TPU or a GPU, on a machine without one.

Masking, sampling, both models, backward pass, clipping and update are one XLA program,
which the compiler in `libtpu` or in JAX's CUDA plugin compiles for one device. This
validates shapes, operations and memory, but does not run the program. The program is
one device's share of the step, without the reduction over devices.

With --run, JAX runs the step where it has a device, and losses, gradient norms and
weights are compared with TensorFlow's own step on a CPU.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import device_programs as programs
from device_costs import Program, as_text, cost_table
from device_link import link
from device_table import DEVICES

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # if the package is not installed
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def trace(options: argparse.Namespace, path: str) -> None:
    """Write the step as an XLA program. Only this process imports TensorFlow."""
    import numpy as np
    from device_export import step_program
    from device_state import FlatState

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

    flat = FlatState(pretrainer) if options.kernels == "gpu" else None
    fields = np.zeros((3, options.batch_size, config.records.max_length), np.int32)
    pathlib.Path(path).write_bytes(step_program(pretrainer, fields, flat)[0])


def measure(options: argparse.Namespace) -> dict:
    """Trace and compile the step; return its memory, operations and bounds."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.hlo")
        arguments = [f"--hlo={path}", f"--batch_size={options.batch_size}"]
        subprocess.run([sys.executable, *sys.argv, *arguments], check=True)
        program = programs.to_stablehlo(pathlib.Path(path).read_bytes())
    if options.kernels == "gpu":
        program = link(program, "cuda")
    start = time.perf_counter()
    executable = programs.compile_program(program, options.topology)
    seconds = time.perf_counter() - start
    compiled = programs.compiled_text(executable)
    if options.save:
        pathlib.Path(options.save).write_text(compiled, encoding="utf-8")
    costs, matmuls = programs.read_costs(executable), programs.matmul_flops(program)
    if DEVICES[options.topology.split(":")[0]].cuda:
        table = cost_table(Program(compiled).kernels, options.topology)
        print(as_text(table))
        costs |= table["total"]
        costs["flops"] += programs.kernel_flops(program).total()
    return {
        "config": options.config,
        "topology": options.topology,
        "batch_size": options.batch_size,
        "compile_seconds": round(seconds, 1),
        **costs,
        "matmul_flops": matmuls,
        **programs.bound_step(options.topology, matmuls, costs["bytes_accessed"]),
        **_memory(executable, options.memory),
        **programs.count_operations(compiled),
        **programs.find_obstacles(program, compiled),
        "compiled_text": bool(compiled),
    }


def _memory(executable, available: int) -> dict:
    memory = executable.get_compiled_memory_stats()
    arguments, temporary = memory.argument_size_in_bytes, memory.temp_size_in_bytes
    new = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return {
        "argument_bytes": arguments,
        "temporary_bytes": temporary,
        "memory_share": (arguments + temporary + new) / available,
    }


def try_batch(options: argparse.Namespace) -> tuple[dict, str]:
    """Print the results as JSON; return them, and why the batch does not fit.

    The TPU's compiler fails if memory is full. The GPU's reports the memory it needs.
    """
    try:
        results = measure(options)
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {}, str(error).splitlines()[0]
    print(json.dumps(results), flush=True)
    share = results["memory_share"]
    return results, f"{share:.0%} of the memory" if share > 1 else ""


def find_largest_batch(options: argparse.Namespace) -> None:
    """Search the largest batch that fits into memory, to an eighth."""
    fits, fails = 0, None
    while fails is None or fails - fits > max(1, fits // 8):
        size = options.batch_size
        results, problem = try_batch(options)
        if problem:
            fails = size
            print(f"batch {fails} does not fit", flush=True)
        else:
            fits = size
        guess = _linear_guess(results, options) if problem or fails is None else 0
        if fails is None:
            options.batch_size = max(guess, fits + max(1, fits // 8))
        else:
            is_between = fits < guess < fails
            options.batch_size = guess if is_between else (fits + fails) // 2
    print(f"batch {fits} fits, {fails} does not")


def _linear_guess(results: dict, options: argparse.Namespace) -> int:
    """Return the rows that fill the memory if only the arguments do not grow."""
    if not results:
        return 0
    fixed = results["argument_bytes"] / options.memory
    growing = max(results["memory_share"] - fixed, 1e-9)
    return int(results["batch_size"] * (1 - fixed) / growing)


def run(options: argparse.Namespace) -> int:
    """Write the step, run it with JAX and compare it with TensorFlow's step.

    Returns:
        The exit code of `device_run.py`.
    """
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(options.folder or folder)
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, *sys.argv, f"--reference={folder}"]
        on_cpu = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
        subprocess.run(command, check=True, env=on_cpu)
        with_jax = os.environ | {"JAX_ENABLE_X64": "1"}
        os.environ |= with_jax | {"JAX_PLATFORMS": "cpu"}
        programs.export_folder(folder, options.device)
        command = [sys.executable, folder / "run.py", f"--device={options.device}"]
        if options.kernels == "gpu":
            command.append("--all_precisions")
        if options.tolerance:
            command.append(f"--tolerance={options.tolerance}")
        return subprocess.run(command, env=with_jax).returncode


def parse() -> argparse.Namespace:
    """Return the validated options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--config", default=str(ROOT / "configs/small.yaml"))
    add("--set", action="append", default=[], help="--set of pretrain")
    add("--topology", default="v5e:2x2", help="such as v5e:2x2, v4:2x2x1, h100, a100")
    add("--batch_size", type=int, default=16, help="rows per device; default: 16")
    add("--vocabulary_size", type=int, default=30522)
    add("--largest", action="store_true", help="search the largest batch that fits")
    add("--save", help="file for the text of the compiled program")
    add("--run", type=int, metavar="STEPS", help="run steps, compare with TensorFlow")
    add("--device", default="cpu", choices=("cpu", "gpu"), help="for --run")
    add("--tolerance", type=float, help="for --run; default: 1e-4, on a GPU 5e-2")
    add("--kernels", choices=("gpu", "any"), help="default: those for the device")
    add("--data", help="for --run: folder of records")
    add("--folder", help="for --run: keep programs, batches and TensorFlow's results")
    add("--hlo", help=argparse.SUPPRESS)
    add("--reference", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run and not options.data:
        sys.exit("error: --run must have records. Received: no --data. Pass --data=DIR")
    name, _, shape = options.topology.partition(":")
    if name not in DEVICES or bool(shape) == bool(DEVICES[name].cuda):
        tpus = [f"{n}:SHAPE" for n, device in DEVICES.items() if not device.cuda]
        gpus = [n for n, device in DEVICES.items() if device.cuda]
        sys.exit(
            f"error: --topology must be one of {', '.join(tpus + gpus)}. "
            f"Received: {options.topology!r}"
        )
    options.memory = DEVICES[name].memory
    if options.kernels is None:
        is_gpu = options.device == "gpu" if options.run else DEVICES[name].cuda
        options.kernels = "gpu" if is_gpu else "any"
    return options


def main() -> None:
    """Compile one batch, or search the largest one."""
    options = parse()
    if options.hlo:
        trace(options, options.hlo)
        return
    if options.reference:
        from device_export import write_reference

        write_reference(options, pathlib.Path(options.reference))
        return
    if options.run:
        sys.exit(run(options))
    programs.set_environment(options.topology)
    if options.largest:
        find_largest_batch(options)
        return
    _, problem = try_batch(options)
    if problem:
        sys.exit(
            f"error: batch {options.batch_size} does not fit into a device of "
            f"{options.topology}. Pass a smaller --batch_size, or --set "
            f"training.accumulation=2. Compiler: {problem}"
        )


if __name__ == "__main__":
    main()
