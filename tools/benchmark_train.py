"""Training steps beside PyTorch's on identical work, and beside large products.

Each peer is a process of its own that lives through all rounds and is held to the same
cores; while one is timed the others wait. A step is all of it: masking, generator,
sampling, discriminator, combined loss, backward pass, clipping, update. The PyTorch
pair is Hugging Face's ElectraForMaskedLM and ElectraForPreTraining with shared
embeddings and logits at masked positions alone; --torch_python names an interpreter
that has torch and transformers where this one has not (extra `interop-test`).
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import benchmark_common as common

Steps = Callable[[int], None]
LIMIT, OURS, EAGER, COMPILED = "products", "electra_tf", "torch", "torch.compile"


def read_config(options: argparse.Namespace):
    """The experiment: a config's, with the benchmark's batch and a full vocabulary."""
    from electra_tf.config import load

    sets = [
        f"input.batch_size={options.batch_size}",
        f"records.max_length={options.length}",
        "model.vocabulary_size=30522",
        "training.steps=1000000",
        *options.set,
    ]
    return load(options.config, sets)


def token_ids(config):
    """The same text for all: rows without padding, ids that are no special tokens."""
    import numpy as np

    shape = (config.input.batch_size, config.records.max_length)
    ids_BL = np.random.default_rng(0).integers(5, config.model.vocabulary_size, shape)
    ids_BL[:, 0], ids_BL[:, -1] = 2, 3
    return ids_BL


def flops_of(config) -> int:
    """Of a step's products."""
    import math

    from electra_tf.model import cost

    rows, length = config.input.batch_size, config.records.max_length
    work = cost.Work(rows, length, math.ceil(config.masking.rate * length))
    return cost.step_flops(config.model, "electra", True, work)


def products(options: argparse.Namespace) -> Steps:
    """The limit: as many FLOPs in large float32 products."""
    import tensorflow as tf

    size = 2048
    count = max(1, round(flops_of(read_config(options)) / (2 * size**3)))
    matrix = tf.random.stateless_normal([size, size], [0, 0])

    @tf.function
    def run(steps):
        found = matrix
        for _ in tf.range(steps * count):
            found = tf.matmul(found, matrix) / size
        return tf.reduce_sum(found)

    return lambda steps: run(tf.constant(steps)).numpy()


def electra_tf(options: argparse.Namespace) -> Steps:
    """Ours, as the training loop calls it."""
    import numpy as np
    import tensorflow as tf

    from electra_tf.batch import Batch
    from electra_tf.pretraining.masking import TokenIds
    from electra_tf.pretraining.pretrainer import Pretrainer
    from electra_tf.training.device_loop import DeviceLoop, distribute
    from electra_tf.training.optimizer import build_optimizer
    from electra_tf.training.strategy import choose

    config, devices = read_config(options), choose("one_device")
    size = config.model.vocabulary_size
    tokens = TokenIds(2, 3, 4, size, is_continuation_V=np.zeros(size, bool))
    with devices.scope():
        pretrainer = Pretrainer(config, tokens)
        pretrainer.compile(build_optimizer(config.optimizer, config.training.steps))
    ids_BL = tf.constant(token_ids(config), tf.int32)
    batch = Batch(ids_BL, tf.ones_like(ids_BL), tf.zeros_like(ids_BL))
    found = tf.data.Dataset.from_tensors(batch).repeat()
    iterator = iter(distribute(devices, lambda *_: found))
    loop = DeviceLoop(devices, lambda b: pretrainer.train_step(b, read=False))
    return lambda steps: loop(iterator, steps)


def torch_pair(options: argparse.Namespace, compiled: bool) -> Steps:
    """Hugging Face's two models in one train step."""
    import benchmark_torch as pair
    import torch

    torch.set_num_threads(options.threads)
    config = read_config(options)
    step = pair.step(config, torch.from_numpy(token_ids(config)), compiled)

    def run(steps: int) -> None:
        for _ in range(steps):
            step()

    return run


PEERS: dict[str, Callable[[argparse.Namespace], Steps]] = {
    LIMIT: products,
    OURS: electra_tf,
    EAGER: lambda options: torch_pair(options, compiled=False),
    COMPILED: lambda options: torch_pair(options, compiled=True),
}


def serve(options: argparse.Namespace, begin: float) -> None:
    """A peer's process: numbers of steps come in, seconds a step go out."""
    run = PEERS[options.peer](options)
    run(1)
    print(time.time() - begin, flush=True)
    run(1)
    for line in sys.stdin:
        steps, start = int(line), time.perf_counter()
        run(steps)
        seconds = (time.perf_counter() - start) / steps
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(seconds, peak, flush=True)


class Peer:
    """A peer's process, from outside."""

    def __init__(self, name: str, options: argparse.Namespace):
        python = options.torch_python if "torch" in name else sys.executable
        cores = sorted(os.sched_getaffinity(0))[: options.threads]
        threads = str(options.threads)
        names = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
        self._process = subprocess.Popen(
            [python, *sys.argv, f"--peer={name}", f"--begin={time.time()}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **dict.fromkeys(names, threads)},
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        self.name, self._steps, self.memory = name, options.steps, 0.0
        self.start = self._read()[0]

    def milliseconds(self) -> float:
        """Times some steps; of one of them."""
        self._process.stdin.write(f"{self._steps}\n")
        self._process.stdin.flush()
        seconds, self.memory = self._read()
        return 1e3 * seconds

    def end(self) -> None:
        """Lets the process go."""
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> list[float]:
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"error: {self.name} ended with {self._process.wait()}")
        return [float(word) for word in line.split()]


def report(peers: list[Peer], results: dict[str, list[float]], options) -> None:
    """Prints the table."""
    config = read_config(options)
    tokens, flops = options.batch_size * options.length, flops_of(config)
    print(
        f"\n{options.config}, {options.batch_size} x {options.length}, "
        f"{options.threads} threads, {flops / 1e9:.1f} GFLOP a step, medians of "
        f"{options.rounds} rounds of {options.steps}\n"
        f"{'':16}{'ms/step':>9}{'min':>9}{'max':>9}{'tokens/s':>10}{'GFLOP/s':>9}"
        f"{'of limit':>9}{'time/ours':>10}{'GiB':>6}{'start s':>8}"
    )
    for peer in peers:
        own = results[peer.name]
        middle, limit, ours = (
            common.statistics.median(values)
            for values in (
                own,
                [a / b for a, b in zip(results[LIMIT], own, strict=True)],
                [a / b for a, b in zip(own, results[OURS], strict=True)],
            )
        )
        print(
            f"{peer.name:16}{middle:9,.0f}{min(own):9,.0f}{max(own):9,.0f}"
            f"{1e3 * tokens / middle:10,.0f}{flops / middle / 1e6:9,.1f}{limit:9.1%}"
            f"{ours:10.2f}{peer.memory:6.2f}{peer.start:8.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default=str(common.ROOT / "configs/small.yaml"))
    parser.add_argument("--set", action="append", default=[], help="as for pretrain")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="timed in each round")
    parser.add_argument("--peers", default=",".join(PEERS), help="some of these")
    parser.add_argument("--torch_python", default=sys.executable)
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--begin", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        serve(options, options.begin)
        return
    names = options.peers.split(",")
    wrong = {LIMIT, OURS} - set(names) or set(names) - set(PEERS)
    if wrong:
        sys.exit(f"error: --peers holds {LIMIT} and {OURS}, and only {list(PEERS)}")
    probe = [options.torch_python, "-c", "import torch, transformers"]
    if {EAGER, COMPILED} & set(names) and subprocess.run(probe).returncode:
        sys.exit(
            f"error: {options.torch_python} has no torch and transformers. Install "
            "them with tools/install test,interop-test, name another interpreter with "
            f"--torch_python, or leave them out: --peers={LIMIT},{OURS}"
        )
    peers = [Peer(name, options) for name in names]
    results = common.interleaved(
        options.rounds, {p.name: p.milliseconds for p in peers}
    )
    for peer in peers:
        peer.end()
    report(peers, results, options)


if __name__ == "__main__":
    main()
