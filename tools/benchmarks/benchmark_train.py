"""Compare training steps with PyTorch on identical work, and with large matmuls.

Each peer is a separate process on the same cores, which runs for all rounds. Only one
is active at a time. A step contains masking, generator, sampling, discriminator,
combined loss, backward pass, clipping and update. The PyTorch model consists of Hugging
Face's ElectraForMaskedLM and ElectraForPreTraining with shared embeddings and logits at
masked positions only. --torch_python is an interpreter with torch and transformers, if
this one does not have them (extra `interop-test`). `input` is the input pipeline alone,
one batch per step. The last line compares the estimate of `pretrain --dry_run` with the
measurement.
"""

import argparse
import gc
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import benchmark_common as common

Steps = Callable[[int], None]
LIMIT, OURS, INPUT = "matmul", "electra_tf", "input"
EAGER, COMPILED, ESTIMATE = "torch", "torch.compile", "estimate"
BATCHES = 200  # batches of the input pipeline per step of the other peers


def read_config(options: argparse.Namespace):
    """Return the config with the benchmark's batch size and a full vocabulary."""
    from electra_tf.config.loader import load_config

    sets = [
        f"input.batch_size={options.batch_size}",
        f"records.max_length={options.length}",
        "model.vocabulary_size=30522",
        "training.steps=1000000",
        f"training.precision={options.precision}",
        *options.set,
    ]
    return load_config(options.config, sets)


def token_ids(config):
    """Return random ids, equal for all peers, without padding."""
    import numpy as np

    shape = (config.input.batch_size, config.records.max_length)
    ids_BL = np.random.default_rng(0).integers(5, config.model.vocabulary_size, shape)
    ids_BL[:, 0], ids_BL[:, -1] = 2, 3
    return ids_BL


def step_flops(config) -> int:
    """Return FLOPs of a step's matmuls."""
    import math

    from electra_tf.model import cost

    rows, length = config.input.batch_size, config.records.max_length
    shape = cost.BatchShape(rows, length, math.ceil(config.masking.rate * length))
    return cost.step_flops(config.model, "electra", True, shape)


def large_matmuls(options: argparse.Namespace) -> tuple[int, int, float]:
    """Return size and number of matmuls, and a step's share of their FLOPs."""
    size = 8192 if options.device == "gpu" else 2048
    flops = step_flops(read_config(options))
    count = max(1, round(flops / (2 * size**3)))
    return size, count, flops / (count * 2 * size**3)


def matmuls(options: argparse.Namespace) -> Steps:
    """Return the limit: large matmuls with the FLOPs of a step."""
    import tensorflow as tf

    size, count, _ = large_matmuls(options)
    dtype = tf.float32 if options.precision == "float32" else tf.bfloat16
    matrix = tf.cast(tf.random.stateless_normal([size, size], [0, 0]), dtype)

    @tf.function
    def run(steps):
        product = matrix
        for _ in tf.range(steps * count):
            product = tf.matmul(product, matrix) / size
        return tf.reduce_sum(product)

    return lambda steps: run(tf.constant(steps)).numpy()


def build(options: argparse.Namespace):
    """Return config, strategy and compiled model."""
    import electra_tf.cli  # noqa: F401, I001, first, as a command does
    import numpy as np

    from electra_tf.pretraining.masking import SpecialTokens
    from electra_tf.pretraining.pretrainer import Pretrainer
    from electra_tf.training.optimizer import create_optimizer
    from electra_tf.training.strategy import choose

    config, strategy = read_config(options), choose("one_device")
    size = config.model.vocabulary_size
    tokens = SpecialTokens(2, 3, 4, size, is_continuation_V=np.zeros(size, bool))
    with strategy.scope():
        pretrainer = Pretrainer(config, tokens)
        pretrainer.compile(create_optimizer(config.optimizer, config.training.steps))
    return config, strategy, pretrainer


def electra_tf(options: argparse.Namespace) -> Steps:
    """Return our step, as the training loop calls it."""
    import electra_tf.cli  # noqa: F401, I001, first, as a command does
    import tensorflow as tf

    from electra_tf.batch import Batch
    from electra_tf.training.loop import MultiStepRunner, distribute

    config, strategy, pretrainer = build(options)
    ids_BL = tf.constant(token_ids(config), tf.int32)
    batch = Batch(ids_BL, tf.ones_like(ids_BL), tf.zeros_like(ids_BL))
    dataset = tf.data.Dataset.from_tensors(batch).repeat()
    iterator = iter(distribute(strategy, lambda *_: dataset))
    loop = MultiStepRunner(
        strategy, lambda b: pretrainer.train_step(b, as_ratios=False)
    )
    return lambda steps: loop(iterator, steps)


def input_pipeline(options: argparse.Namespace) -> Steps:
    """Return the input pipeline of training on records of random words."""
    import benchmark_pipeline
    import numpy as np

    from electra_tf.config.pretraining import InputConfig
    from electra_tf.text.pipeline import training_batches

    random = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(random.choice(letters, random.integers(1, 9))) for _ in range(999)]
    lines = [" ".join(random.choice(words, 12)) for _ in range(40_000)]
    lines[20::20] = [""] * len(lines[20::20])
    folder = tempfile.TemporaryDirectory()
    record_set = benchmark_pipeline.make_records(
        pathlib.Path(folder.name), options.length, lines
    )
    batches = iter(
        training_batches(record_set, InputConfig(batch_size=options.batch_size))
    )

    def run(steps: int, folder=folder) -> None:  # keeps the folder while it is used
        for _ in range(steps * BATCHES):
            next(batches)

    return run


def estimate(options: argparse.Namespace) -> tuple[float, float]:
    """Return seconds per step and GiB as `pretrain --dry_run` estimates them."""
    import electra_tf.cli  # noqa: F401, I001, first, as a command does

    from electra_tf.runs.dry_run import measure_steps

    config, strategy, pretrainer = build(options)
    result = measure_steps(pretrainer, strategy, step_flops(config))
    return result.seconds, (result.memory or 0) / 2**30


def torch_electra(options: argparse.Namespace, compiled: bool) -> Steps:
    """Return a training step of Hugging Face's two models."""
    import benchmark_torch
    import torch

    torch.set_num_threads(options.threads)
    config = read_config(options)
    device = "cuda" if options.device == "gpu" else "cpu"
    ids_BL = torch.from_numpy(token_ids(config)).to(device)
    step = benchmark_torch.make_step(config, ids_BL, compiled)

    def run(steps: int) -> None:
        for _ in range(steps):
            step()
        if device == "cuda":
            torch.cuda.synchronize()

    return run


PEERS: dict[str, Callable[[argparse.Namespace], Steps]] = {
    LIMIT: matmuls,
    OURS: electra_tf,
    INPUT: input_pipeline,
    EAGER: lambda options: torch_electra(options, compiled=False),
    COMPILED: lambda options: torch_electra(options, compiled=True),
}


def peak_memory(options: argparse.Namespace) -> float:
    """Return the peak GiB of this process, on the host or on the GPU."""
    if options.device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if "torch" in options.peer:
        import torch

        return torch.cuda.max_memory_allocated() / 2**30
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**30


def serve(options: argparse.Namespace, begin: float) -> None:
    """Run a peer: read numbers of steps from standard input, print seconds per step."""
    if options.peer == ESTIMATE:
        print(0.0, flush=True)
        sys.stdin.readline()
        print(*estimate(options), flush=True)
        return
    run, share = PEERS[options.peer](options), 1.0
    if options.peer == INPUT:
        share = 1 / BATCHES
    if options.peer == LIMIT:
        *_, share = large_matmuls(options)
    run(1)
    start = time.time() - begin
    run(1)
    gc.freeze()  # excludes the model from garbage collection
    print(start, flush=True)  # last, as it starts the first round of another peer
    for line in sys.stdin:
        steps, start = int(line), time.perf_counter()
        run(steps)
        seconds = (time.perf_counter() - start) / steps
        print(share * seconds, peak_memory(options), flush=True)


class Peer:
    """Process of a peer."""

    def __init__(self, name: str, options: argparse.Namespace):
        python = options.torch_python if "torch" in name else sys.executable
        cores, environment = sorted(os.sched_getaffinity(0)), dict(os.environ)
        if options.device == "cpu":
            cores = cores[: options.threads]
            for threads in ("OMP_NUM", "TF_NUM_INTRAOP", "TF_NUM_INTEROP"):
                environment[f"{threads}_THREADS"] = str(options.threads)
            environment["CUDA_VISIBLE_DEVICES"] = ""
        self._process = subprocess.Popen(
            [python, *sys.argv, f"--peer={name}", f"--begin={time.time()}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        self.name, self._steps, self.memory = name, options.steps, 0.0
        self.start = self._read()[0]

    def milliseconds(self) -> float:
        """Run `options.steps` steps; return the milliseconds of one."""
        self._process.stdin.write(f"{self._steps}\n")
        self._process.stdin.flush()
        seconds, self.memory = self._read()
        return 1e3 * seconds

    def end(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> list[float]:
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"error: {self.name} ended with {self._process.wait()}")
        return [float(word) for word in line.split()]


def report(peers: list[Peer], results: dict[str, list[float]], options) -> None:
    """Print the table."""
    config = read_config(options)
    tokens, flops = options.batch_size * options.length, step_flops(config)
    device = "the GPU" if options.device == "gpu" else f"{options.threads} threads"
    print(
        f"\n{options.config}, {options.batch_size} x {options.length}, "
        f"{options.precision}, {device}, {flops / 1e9:.1f} GFLOP a step, medians of "
        f"{options.rounds} rounds of {options.steps}\n"
        f"{'':16}{'ms/step':>9}{'min':>9}{'max':>9}{'tokens/s':>11}{'GFLOP/s':>9}"
        f"{'of limit':>9}{'time/ours':>10}{'GiB':>6}{'start s':>8}"
    )
    for peer in peers:
        times = results[peer.name]
        median, limit, ours = (
            common.statistics.median(values)
            for values in (
                times,
                [a / b for a, b in zip(results[LIMIT], times, strict=True)],
                [a / b for a, b in zip(times, results[OURS], strict=True)],
            )
        )
        rates = f"{flops / median / 1e6:9,.1f}{limit:9.1%}{ours:10.2f}"
        if peer.name == INPUT:
            rates = f"{'':18}{ours:10.4f}"
        print(
            f"{peer.name:16}{median:9,.1f}{min(times):9,.1f}{max(times):9,.1f}"
            f"{1e3 * tokens / median:11,.0f}{rates}{peer.memory:6.2f}{peer.start:8.1f}"
        )


def report_estimate(ours: Peer, measured: float, options) -> None:
    """Print the estimate, and its ratio to the measurement."""
    peer = Peer(ESTIMATE, options)
    milliseconds = peer.milliseconds()
    peer.end()
    print(
        f"estimate: {milliseconds:,.0f} ms/step, {milliseconds / measured:.2f} of the "
        f"measured; {peer.memory:.2f} GiB, {peer.memory / ours.memory:.2f} of the "
        "measured"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default=str(common.ROOT / "configs/small.yaml"))
    parser.add_argument("--set", action="append", default=[], help="--set of pretrain")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="steps per round")
    parser.add_argument("--peers", default=",".join(PEERS), help="peers to run")
    parser.add_argument("--torch_python", default=sys.executable)
    parser.add_argument(
        "--precision", default="float32", choices=["float32", "mixed_bfloat16"]
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--begin", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        serve(options, options.begin)
        return
    program = (
        "import tensorflow as tf; exit(not tf.config.list_physical_devices('GPU'))"
    )
    command = [sys.executable, "-c", program]
    if options.device == "gpu" and subprocess.run(command).returncode:
        sys.exit("error: TensorFlow finds no GPU. Pass --device=cpu for the CPU")
    names = common.check_peers(options, [LIMIT, OURS], [*PEERS])
    peers = [Peer(name, options) for name in names]
    results = common.interleaved(
        options.rounds, {p.name: p.milliseconds for p in peers}
    )
    for peer in peers:
        peer.end()
    report(peers, results, options)
    ours = peers[names.index(OURS)]
    report_estimate(ours, common.statistics.median(results[OURS]), options)


if __name__ == "__main__":
    main()
