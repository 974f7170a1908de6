"""Compare training steps with PyTorch on identical work, and with large matmuls.

A step contains masking, generator, sampling, discriminator, combined loss, backward
pass, clipping and update. The PyTorch model consists of Hugging Face's
ElectraForMaskedLM and ElectraForPreTraining with shared embeddings and logits at masked
positions only; it needs the extra `interop-test`.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable

import peers
from peers import COMPILED, LIMIT, OURS, TORCH


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


def step_flops(options: argparse.Namespace) -> int:
    from electra_tf.model import cost

    return cost.step_flops(read_config(options))


def token_ids(config):
    import numpy as np

    shape = (config.input.batch_size, config.records.max_length)
    ids_BL = np.random.default_rng(0).integers(5, config.model.vocabulary_size, shape)
    ids_BL[:, 0], ids_BL[:, -1] = 2, 3
    return ids_BL


def electra_tf(options: argparse.Namespace) -> Callable[[int], None]:
    import electra_tf.cli  # noqa: F401, I001, first, as a command does
    import numpy as np
    import tensorflow as tf

    from electra_tf.batch import Batch
    from electra_tf.pretraining.masking import SpecialTokens
    from electra_tf.pretraining.pretrainer import Pretrainer
    from electra_tf.training.loop import train_runner
    from electra_tf.training.optimizer import create_optimizer
    from electra_tf.training.strategy import choose, iterate

    config, strategy = read_config(options), choose("one_device")
    size = config.model.vocabulary_size
    tokens = SpecialTokens(2, 3, 4, size, is_continuation_V=np.zeros(size, bool))
    with strategy.scope():
        pretrainer = Pretrainer(config, tokens)
        pretrainer.compile(create_optimizer(config.optimizer, config.training.steps))
    ids_BL = tf.constant(token_ids(config), tf.int32)
    batch = Batch(ids_BL, tf.ones_like(ids_BL), tf.zeros_like(ids_BL))
    dataset = tf.data.Dataset.from_tensors(batch)
    runner = train_runner(strategy, pretrainer)
    iterator = iterate(strategy, lambda *_: dataset)
    return lambda steps: runner(iterator, steps)


def torch_electra(
    options: argparse.Namespace, is_compiled: bool
) -> Callable[[int], None]:
    import torch
    import torch_electra

    torch.set_num_threads(options.threads)
    config = read_config(options)
    device = "cuda" if options.device == "gpu" else "cpu"
    ids_BL = torch.from_numpy(token_ids(config)).to(device)
    step = torch_electra.make_step(config, ids_BL, is_compiled)

    def run(steps: int) -> None:
        for _ in range(steps):
            step()
        if device == "cuda":
            torch.cuda.synchronize()

    return run


def make(name: str, options: argparse.Namespace) -> Callable[[int], float]:
    """Return a peer's function from a number of steps to the milliseconds of one."""
    if name == LIMIT:
        flops, measure_peak_flops = step_flops(options), peers.peak_flops(options)
        return lambda steps: 1e3 * flops / measure_peak_flops(steps * flops)
    is_ours = name == OURS
    run = electra_tf(options) if is_ours else torch_electra(options, name == COMPILED)
    run(1)
    gc.freeze()  # excludes the model from garbage collection

    def milliseconds(steps: int) -> float:
        begin = time.perf_counter()
        run(steps)
        return 1e3 * (time.perf_counter() - begin) / steps

    milliseconds(1)  # a second step may still compile
    return milliseconds


def report(found: dict, times: dict[str, list[float]], options) -> None:
    flops = step_flops(options)
    device = "the GPU" if options.device == "gpu" else f"{options.threads} threads"
    print(
        f"\n{options.config}, {options.batch_size} x {options.length}, "
        f"{options.precision}, {device}, {flops / 1e9:.1f} GFLOP a step, medians of "
        f"{options.rounds} rounds of {options.steps}\n{'':14}{'ms':>9}{'min':>9}"
        f"{'max':>9}{'tokens/s':>10}{'time/ours':>11}{'GiB':>6}"
        f"{'GFLOP/s':>10}{'of limit':>10}"
    )
    for name, peer in found.items():
        median = statistics.median(times[name])
        print(
            f"{name:14}{median:9,.1f}{min(times[name]):9,.1f}{max(times[name]):9,.1f}"
            f"{1e3 * options.batch_size * options.length / median:10,.0f}"
            f"{peers.ratio(times[name], times[OURS]):11.2f}{peer.memory:6.2f}"
            f"{flops / median / 1e6:10,.1f}"
            f"{peers.ratio(times[LIMIT], times[name]):10.1%}"
        )


def main() -> None:
    parser = peers.parser(__doc__, (TORCH, COMPILED))
    add, precisions = parser.add_argument, ["float32", "mixed_bfloat16"]
    add("--set", action="append", default=[], help="--set of pretrain")
    add("--batch_size", type=int, default=32)
    add("--length", type=int, default=128)
    add("--steps", type=int, default=2, help="steps per round")
    add("--precision", default="float32", choices=precisions)
    add("--device", default="cpu", choices=["cpu", "gpu"])
    options = parser.parse_args()
    found = peers.start(make, options)
    times: dict[str, list[float]] = {name: [] for name in found}
    for number in range(options.rounds):
        for name, peer in found.items():
            times[name].append(peer.ask(options.steps))
            print(f"round {number + 1}: {name}: {times[name][-1]:,.0f} ms", flush=True)
    for peer in found.values():
        peer.end()
    report(found, times, options)


if __name__ == "__main__":
    main()
