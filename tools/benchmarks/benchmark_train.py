"""Training steps beside PyTorch's on identical work, and beside large products.

Each peer is a process of its own that lives through all rounds and is held to the same
cores; while one is timed the others wait. A step is all of it: masking, generator,
sampling, discriminator, combined loss, backward pass, clipping, update. The PyTorch
pair is Hugging Face's ElectraForMaskedLM and ElectraForPreTraining with shared
embeddings and logits at masked positions alone; --torch_python names an interpreter
that has torch and transformers where this one has not (extra `interop-test`). `input`
is the input pipeline alone, a batch for a step. At the end stands what `pretrain
--dry_run` predicts beside what was measured.
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
LIMIT, OURS, INPUT = "products", "electra_tf", "input"
EAGER, COMPILED, FORECAST = "torch", "torch.compile", "forecast"
BATCHES = 200  # of the input pipeline, for a step of the others


def read_config(options: argparse.Namespace):
    """The experiment: a config's, with the benchmark's batch and a full vocabulary."""
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
    work = cost.BatchShape(rows, length, math.ceil(config.masking.rate * length))
    return cost.step_flops(config.model, "electra", True, work)


def large_products(options: argparse.Namespace) -> tuple[int, int, float]:
    """Size and number of products, and the part of their FLOPs that a step has."""
    size = 8192 if options.device == "gpu" else 2048
    flops = flops_of(read_config(options))
    count = max(1, round(flops / (2 * size**3)))
    return size, count, flops / (count * 2 * size**3)


def products(options: argparse.Namespace) -> Steps:
    """The limit: as many FLOPs in large products."""
    import tensorflow as tf

    size, count, _ = large_products(options)
    dtype = tf.float32 if options.precision == "float32" else tf.bfloat16
    matrix = tf.cast(tf.random.stateless_normal([size, size], [0, 0]), dtype)

    @tf.function
    def run(steps):
        found = matrix
        for _ in tf.range(steps * count):
            found = tf.matmul(found, matrix) / size
        return tf.reduce_sum(found)

    return lambda steps: run(tf.constant(steps)).numpy()


def built(options: argparse.Namespace):
    """Experiment, devices and the compiled model."""
    import electra_tf.cli  # noqa: F401, I001, first, as a command does
    import numpy as np

    from electra_tf.pretraining.masking import SpecialTokens
    from electra_tf.pretraining.pretrainer import Pretrainer
    from electra_tf.training.optimizer import create_optimizer
    from electra_tf.training.strategy import choose

    config, devices = read_config(options), choose("one_device")
    size = config.model.vocabulary_size
    tokens = SpecialTokens(2, 3, 4, size, is_continuation_V=np.zeros(size, bool))
    with devices.scope():
        pretrainer = Pretrainer(config, tokens)
        pretrainer.compile(create_optimizer(config.optimizer, config.training.steps))
    return config, devices, pretrainer


def electra_tf(options: argparse.Namespace) -> Steps:
    """Ours, as the training loop calls it."""
    import electra_tf.cli  # noqa: F401, I001, first, as a command does
    import tensorflow as tf

    from electra_tf.batch import Batch
    from electra_tf.training.multi_step_runner import MultiStepRunner, distribute

    config, devices, pretrainer = built(options)
    ids_BL = tf.constant(token_ids(config), tf.int32)
    batch = Batch(ids_BL, tf.ones_like(ids_BL), tf.zeros_like(ids_BL))
    found = tf.data.Dataset.from_tensors(batch).repeat()
    iterator = iter(distribute(devices, lambda *_: found))
    loop = MultiStepRunner(devices, lambda b: pretrainer.train_step(b, as_ratios=False))
    return lambda steps: loop(iterator, steps)


def input_pipeline(options: argparse.Namespace) -> Steps:
    """Records of made-up words, as training reads them."""
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
    found = benchmark_pipeline.make_records(
        pathlib.Path(folder.name), options.length, lines
    )
    batches = iter(training_batches(found, InputConfig(batch_size=options.batch_size)))

    def run(steps: int, folder=folder) -> None:  # which goes with its last reader
        for _ in range(steps * BATCHES):
            next(batches)

    return run


def forecast(options: argparse.Namespace) -> tuple[float, float]:
    """Seconds of a step and GiB, before any step is run."""
    import electra_tf.cli  # noqa: F401, I001, first, as a command does
    import math

    from electra_tf.runs.experiment import num_parameters
    from electra_tf.runs.cost_estimate import estimate_cost as predict
    from electra_tf.model.cost import BatchShape

    config, devices, pretrainer = built(options)
    length = config.records.max_length
    slots = math.ceil(config.masking.rate * length)
    total = num_parameters(pretrainer.trainable_variables)
    found = predict(
        config, devices, total, BatchShape(config.input.batch_size, length, slots)
    )
    return found.seconds, found.memory / 2**30


def torch_pair(options: argparse.Namespace, compiled: bool) -> Steps:
    """Hugging Face's two models in one train step."""
    import benchmark_torch as pair
    import torch

    torch.set_num_threads(options.threads)
    config = read_config(options)
    device = "cuda" if options.device == "gpu" else "cpu"
    ids_BL = torch.from_numpy(token_ids(config)).to(device)
    step = pair.step(config, ids_BL, compiled)

    def run(steps: int) -> None:
        for _ in range(steps):
            step()
        if device == "cuda":
            torch.cuda.synchronize()

    return run


PEERS: dict[str, Callable[[argparse.Namespace], Steps]] = {
    LIMIT: products,
    OURS: electra_tf,
    INPUT: input_pipeline,
    EAGER: lambda options: torch_pair(options, compiled=False),
    COMPILED: lambda options: torch_pair(options, compiled=True),
}


def memory(options: argparse.Namespace) -> float:
    """GiB this process has held at most: on the host, or on the GPU."""
    if options.device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if "torch" in options.peer:
        import torch

        return torch.cuda.max_memory_allocated() / 2**30
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**30


def serve(options: argparse.Namespace, begin: float) -> None:
    """A peer's process: numbers of steps come in, seconds a step go out."""
    if options.peer == FORECAST:
        print(0.0, flush=True)
        sys.stdin.readline()
        print(*forecast(options), flush=True)
        return
    run, share = PEERS[options.peer](options), 1.0
    if options.peer == INPUT:
        share = 1 / BATCHES
    if options.peer == LIMIT:
        *_, share = large_products(options)
    run(1)
    start = time.time() - begin
    run(1)
    gc.freeze()  # what stays is not searched for garbage, at the end least of all
    print(start, flush=True)  # with all done, or the first round would be beside it
    for line in sys.stdin:
        steps, start = int(line), time.perf_counter()
        run(steps)
        seconds = (time.perf_counter() - start) / steps
        print(share * seconds, memory(options), flush=True)


class Peer:
    """A peer's process, from outside."""

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
    where = "the GPU" if options.device == "gpu" else f"{options.threads} threads"
    print(
        f"\n{options.config}, {options.batch_size} x {options.length}, "
        f"{options.precision}, {where}, {flops / 1e9:.1f} GFLOP a step, medians of "
        f"{options.rounds} rounds of {options.steps}\n"
        f"{'':16}{'ms/step':>9}{'min':>9}{'max':>9}{'tokens/s':>11}{'GFLOP/s':>9}"
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
        rates = f"{flops / middle / 1e6:9,.1f}{limit:9.1%}{ours:10.2f}"
        if peer.name == INPUT:
            rates = f"{'':18}{ours:10.4f}"
        print(
            f"{peer.name:16}{middle:9,.1f}{min(own):9,.1f}{max(own):9,.1f}"
            f"{1e3 * tokens / middle:11,.0f}{rates}{peer.memory:6.2f}{peer.start:8.1f}"
        )


def report_forecast(ours: Peer, measured: float, options) -> None:
    """Prints what was to be expected beside what came."""
    expected = Peer(FORECAST, options)
    milliseconds = expected.milliseconds()
    expected.end()
    print(
        f"forecast: {milliseconds:,.0f} ms/step, {milliseconds / measured:.2f} of the "
        f"measured; {expected.memory:.2f} GiB, {expected.memory / ours.memory:.2f} of "
        "the measured"
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
    seen = "import tensorflow as tf; exit(not tf.config.list_physical_devices('GPU'))"
    look = [sys.executable, "-c", seen]
    if options.device == "gpu" and subprocess.run(look).returncode:
        sys.exit("error: TensorFlow sees no GPU here; measure the CPU: --device=cpu")
    names = common.check_peers(options, [LIMIT, OURS], [*PEERS])
    peers = [Peer(name, options) for name in names]
    results = common.interleaved(
        options.rounds, {p.name: p.milliseconds for p in peers}
    )
    for peer in peers:
        peer.end()
    report(peers, results, options)
    ours = peers[names.index(OURS)]
    report_forecast(ours, common.statistics.median(results[OURS]), options)


if __name__ == "__main__":
    main()
