"""Compare training steps with PyTorch on identical work, and with large matmuls.

A step contains masking, generator, sampling, discriminator, combined loss, backward
pass, clipping and update. The PyTorch model consists of Hugging Face's
ElectraForMaskedLM and ElectraForPreTraining with shared embeddings and logits at masked
positions only; it needs the extra `interop-test`.
"""

import argparse
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import peers
from peers import COMPILED, OURS, TORCH

LIMIT = "matmul"
Run = tuple[Callable[[int], None], float]
"""A function that runs steps, and a step's FLOPs relative to those of the config."""


def read_config(options: argparse.Namespace):
    """Return the config with the benchmark's batch size and a full vocabulary."""
    from electra_tf.config.loader import load_config

    sets = [
        f"input.batch_size={options.batch_size}",
        f"records.max_length={options.length}",
        "model.vocabulary_size=30522",
        "training.steps=1000000",
        f"training.precision={options.precision}",
    ]
    return load_config(options.config, [*sets, *options.set])


def token_ids(config):
    import numpy as np

    shape = (config.input.batch_size, config.records.max_length)
    ids_BL = np.random.default_rng(0).integers(5, config.model.vocabulary_size, shape)
    ids_BL[:, 0], ids_BL[:, -1] = 2, 3
    return ids_BL


def matmuls(options: argparse.Namespace) -> Run:
    """Return the limit: large matmuls with about the FLOPs of a step."""
    import tensorflow as tf

    from electra_tf.model import cost

    size = 8192 if options.device == "gpu" else 2048
    steps_in_matmuls = cost.step_flops(read_config(options)) / (2 * size**3)
    count = max(1, round(steps_in_matmuls))
    dtype = tf.float32 if options.precision == "float32" else tf.bfloat16
    matrix = tf.cast(tf.random.stateless_normal([size, size], [0, 0]), dtype)

    @tf.function
    def run(steps):
        product = matrix
        for _ in tf.range(steps * count):
            product = tf.matmul(product, matrix) / size
        return tf.reduce_sum(product)

    return lambda steps: run(tf.constant(steps)).numpy(), count / steps_in_matmuls


def build(options: argparse.Namespace):
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


def electra_tf(options: argparse.Namespace) -> Run:
    import electra_tf.cli  # noqa: F401, I001, first, as a command does
    import tensorflow as tf

    from electra_tf.batch import Batch
    from electra_tf.training.loop import train_runner

    config, strategy, pretrainer = build(options)
    ids_BL = tf.constant(token_ids(config), tf.int32)
    batch = Batch(ids_BL, tf.ones_like(ids_BL), tf.zeros_like(ids_BL))
    dataset = tf.data.Dataset.from_tensors(batch)
    runner = train_runner(strategy, pretrainer)
    iterator = runner.iterate(lambda *_: dataset)
    return lambda steps: runner(iterator, steps), 1.0


def torch_electra(options: argparse.Namespace, is_compiled: bool = False) -> Run:
    import torch
    import torch_models

    torch.set_num_threads(options.threads)
    config = read_config(options)
    device = "cuda" if options.device == "gpu" else "cpu"
    ids_BL = torch.from_numpy(token_ids(config)).to(device)
    step = torch_models.make_step(config, ids_BL, is_compiled)

    def run(steps: int) -> None:
        for _ in range(steps):
            step()
        if device == "cuda":
            torch.cuda.synchronize()

    return run, 1.0


PEERS = {
    LIMIT: matmuls,
    OURS: electra_tf,
    TORCH: torch_electra,
    COMPILED: partial(torch_electra, is_compiled=True),
}


def serve(channel: peers.Channel, options: argparse.Namespace) -> None:
    """Answer numbers of steps with the milliseconds of one."""
    run, share = PEERS[channel.peer](options)
    run(1)
    gc.freeze()  # excludes the model from garbage collection
    channel.answer()
    for steps in channel.questions():
        start = time.perf_counter()
        run(steps)
        channel.answer(1e3 * (time.perf_counter() - start) / steps / share)


def report(found: list[peers.Peer], results: dict[str, list[float]], options) -> None:
    from electra_tf.model import cost

    flops = cost.step_flops(read_config(options))
    device = "the GPU" if options.device == "gpu" else f"{options.threads} threads"
    print(
        f"\n{options.config}, {options.batch_size} x {options.length}, "
        f"{options.precision}, {device}, {flops / 1e9:.1f} GFLOP a step, medians of "
        f"{options.rounds} rounds of {options.steps}"
    )

    def rate(peer: peers.Peer) -> str:
        return f"{flops / statistics.median(results[peer.name]) / 1e6:,.1f}"

    def share(peer: peers.Peer) -> str:
        return f"{peers.ratio(results[LIMIT], results[peer.name]):.1%}"

    tokens, columns = options.batch_size * options.length, {"GFLOP/s": rate}
    peers.report_peers(found, results, tokens, columns | {"of limit": share})


def main() -> None:
    parser = peers.parser(__doc__, tuple(PEERS))
    add, precisions = parser.add_argument, ["float32", "mixed_bfloat16"]
    add("--batch_size", type=int, default=32)
    add("--length", type=int, default=128)
    add("--steps", type=int, default=2, help="steps per round")
    add("--precision", default="float32", choices=precisions)
    add("--device", default="cpu", choices=["cpu", "gpu"])
    options = parser.parse_args()
    program = (
        "import tensorflow as tf; exit(not tf.config.list_physical_devices('GPU'))"
    )
    command = [sys.executable, "-c", program]
    if options.device == "gpu" and subprocess.run(command).returncode:
        sys.exit("error: TensorFlow finds no GPU; pass --device=cpu for the CPU")
    names = peers.names(options, tuple(PEERS), [LIMIT, OURS])
    found = [peers.Peer(name, serve, options) for name in names]
    for peer in found:
        peer.ask(1)  # a second step may still compile
    asks = {peer.name: partial(peer.ask, options.steps) for peer in found}
    results = peers.interleaved(options.rounds, asks)
    for peer in found:
        peer.end()
    report(found, results, options)


if __name__ == "__main__":
    main()
