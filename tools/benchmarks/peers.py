"""Peers of a benchmark: processes on the same cores, of which one works at a time.

Peers take turns in each round, so that a change of the machine's load affects all of
them.
"""

import argparse
import contextlib
import multiprocessing
import os
import pathlib
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Without it, the first peer of TensorFlow takes the GPU's memory from the others.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
OURS, TORCH, COMPILED, LIMIT = "electra_tf", "torch", "torch.compile", "matmul"
SPAWN = multiprocessing.get_context("spawn")


def parser(doc: str, names: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return a parser of the flags of all benchmarks, with the names of the peers."""
    result = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.set_defaults(device="cpu", precision="float32")
    if not names:
        return result
    add = result.add_argument
    add("--config", default="small", help="--config of pretrain")
    add("--threads", type=int, default=1)
    add("--rounds", type=int, default=5)
    add("--peers", nargs="*", default=names, choices=names, help="to compare with")
    return result


def start(make: Callable, options: argparse.Namespace) -> dict:
    """Start the processes; return them by name, the limit and ours first.

    `make(name, options)` returns a process's function from questions to answers.
    """
    return {n: Peer(n, make, options) for n in (LIMIT, OURS, *options.peers)}


class Peer:
    def __init__(self, name: str, make: Callable, options: argparse.Namespace):
        self.name, self.memory = name, 0.0
        self._connection, other = SPAWN.Pipe()
        # TensorFlow and PyTorch read these while they are imported.
        if options.device == "cpu":
            for threads in ("OMP_NUM", "TF_NUM_INTRAOP", "TF_NUM_INTEROP"):
                os.environ[f"{threads}_THREADS"] = str(options.threads)
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        SPAWN.Process(target=_run, args=(name, make, options, other)).start()
        other.close()
        self._receive()

    def ask(self, question: Any) -> Any:
        self._connection.send(question)
        return self._receive()

    def end(self) -> None:
        self._connection.close()

    def _receive(self) -> Any:
        try:
            self.memory, answer = self._connection.recv()
        except EOFError:
            sys.exit(f"error: the process of {self.name} failed")
        return answer


def _run(
    name: str, make: Callable, options: argparse.Namespace, connection: Any
) -> None:
    """Answer questions, on as many cores as there are threads."""
    if options.device == "cpu":
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[: options.threads])
    os.dup2(2, 1)  # libraries may print
    answer = make(name, options)
    connection.send((peak_memory(name, options.device), None))
    with contextlib.suppress(EOFError):
        while True:
            result = answer(connection.recv())
            connection.send((peak_memory(name, options.device), result))


def peak_memory(peer: str, device: str) -> float:
    """Return the peak GiB of this process, on the host or on the GPU."""
    if device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if peer.startswith(TORCH):
        import torch

        return torch.cuda.max_memory_allocated() / 2**30
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**30


def peak_flops(
    options: argparse.Namespace, clock: Callable[[], float] = time.perf_counter
) -> Callable[[float], float]:
    """Return a function that measures the FLOP/s of large matmuls.

    Its argument is the number of FLOPs, which it rounds to whole matmuls.
    """
    import tensorflow as tf

    size = 8192 if options.device == "gpu" else 2048
    dtype = tf.float32 if options.precision == "float32" else tf.bfloat16
    matrix = tf.cast(tf.random.stateless_normal([size, size], [0, 0]), dtype)

    @tf.function
    def multiply(count: tf.Tensor) -> tf.Tensor:
        product = matrix
        for _ in tf.range(count):
            product = tf.matmul(product, matrix) / size
        return tf.reduce_sum(product)

    def measure_peak_flops(flops: float) -> float:
        count = max(1, round(flops / (2 * size**3)))
        begin = clock()
        multiply(tf.constant(count)).numpy()
        return 2 * size**3 * count / (clock() - begin)

    measure_peak_flops(1)  # traces and compiles
    return measure_peak_flops


def ratio(values: Iterable[float], base: Iterable[float]) -> float:
    """Return the median of the ratios of each round."""
    return statistics.median(a / b for a, b in zip(values, base, strict=True))
