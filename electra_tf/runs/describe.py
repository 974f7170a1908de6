"""Describe a run before it trains: sizes, cost, and three measured steps."""

import math
import resource
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.kernels.fused_layer_ops import has_only_cpus
from electra_tf.model.cost import step_flops
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.runs.experiment import Experiment
from electra_tf.text.pipeline import training_batches
from electra_tf.text.record_set import RecordSet
from electra_tf.training.bfloat16 import precision_hints
from electra_tf.training.checkpoint import steps_at_shares
from electra_tf.training.loop import train_runner
from electra_tf.training.strategy import iterate


def describe(
    experiment: Experiment,
    strategy: tf.distribute.Strategy,
    record_set: RecordSet,
    load_weights: Callable[[Pretrainer], str] | None = None,
) -> Iterator[str]:
    """Yield lines on shapes, cost and epochs, then on sizes, time and memory.

    The steps are measured last, so that a process that they end has printed the rest.
    """
    config, steps = experiment.config, experiment.config.training.steps
    yield from _describe_shapes(config)
    flops, rows = step_flops(config), steps * config.input.batch_size
    yield f"{flops:.4g} FLOPs per step, {flops * steps:.4g} in {steps:,} steps"
    yield (
        f"epochs over the records: {rows / record_set.total:,.1f} ({steps:,} steps "
        f"read {rows:,} rows; the data has {record_set.total:,})"
    )
    yield f"warm-up: {config.optimizer.warmup_steps:,} of {steps:,} steps"
    yield from experiment.config_warnings()
    yield from precision_hints(config.training.precision)
    try:
        pretrainer = experiment.pretrainer(strategy)
        counts = parameter_counts(pretrainer)
        for name, count in {**counts, "all": sum(counts.values())}.items():
            yield f"{name}: {count:,} parameters"
        size = checkpoint_bytes(pretrainer)
        kept = config.training.keep
        kept += len(steps_at_shares(config.training.keep_at, steps))
        yield (
            f"checkpoint: {size / 1e6:,.0f} MB; at most {kept} are kept, "
            f"{kept * size / 1e6:,.0f} MB"
        )
        if load_weights is not None:
            yield load_weights(pretrainer)
        seconds = measure_steps(pretrainer, strategy, record_set)
    except tf.errors.ResourceExhaustedError:
        yield "memory and time: not measured, as a step needs more memory than is free"
        return
    yield (
        f"step: about {seconds:.3g} s, {flops / seconds:.3g} FLOP/s; measured on "
        "three steps"
    )
    memory, owner = _peak_memory()
    if memory:
        yield f"memory: {memory / 2**30:.2f} GiB of {owner}"
    total = _format_duration(steps * seconds)
    yield f"time to train: about {total}, without start-up and evaluation"
    yield f"10 minutes: about {float(f'{600 / seconds:.2g}'):,.0f} steps"


def measure_steps(
    pretrainer: Pretrainer, strategy: tf.distribute.Strategy, record_set: RecordSet
) -> float:
    """Run three steps of each stage, which change the weights.

    Return the seconds of a step, a mean over the stages' steps.
    """
    config, seconds = pretrainer.config, 0.0
    share = config.generator_share  # 0 for a run of one stage
    shares = {0: share, config.restart or 0: 1 - share}
    for start, share in shares.items():
        pretrainer.begin(start)
        runner = train_runner(strategy, pretrainer)
        batches = iterate(
            strategy,
            lambda host, hosts: training_batches(
                record_set, config.input, host=host, hosts=hosts
            ),
        )
        runner(batches, 1)  # compiles
        begin = time.perf_counter()
        runner(batches, 2)
        seconds += share * (time.perf_counter() - begin) / 2
    return seconds


def checkpoint_bytes(pretrainer: Pretrainer) -> int:
    """Return the size of a checkpoint: weights and slots, float32."""
    variables = (*pretrainer.variables, *pretrainer.optimizer.variables)
    # A variable is in both.
    return 4 * sum({id(v): math.prod(v.shape) for v in variables}.values())


def parameter_counts(pretrainer: Pretrainer) -> dict[str, int]:
    """Return the number of parameters of each part of a model."""
    counts: dict[str, int] = {}
    for variable in pretrainer.trainable_variables:
        names = variable.path.split("/")
        depth = 1 + next(
            (i for i, n in enumerate(names) if n == "head" or n.endswith("encoder")),
            len(names) - 2,
        )
        name = "/".join(names[: depth + (names[depth] == "embeddings")])
        counts[name] = counts.get(name, 0) + math.prod(variable.shape)
    return counts


def _describe_shapes(config: PretrainingConfig) -> Iterator[str]:
    encoders = {config.objective.main_network: config.model.encoder}
    if config.objective.has_generator:
        encoders["generator"] = config.model.generator
    for name, shape in encoders.items():
        yield (
            f"{name}: {shape.depth} layers of width {shape.width}, heads: "
            f"{shape.heads}, feed-forward: {shape.feed_forward}, embeddings: "
            f"{shape.embedding}"
        )


def _peak_memory() -> tuple[int, str]:
    """Return bytes and their owner: this process, or the GPU that needs most, if any.

    Of a TPU there is no number: 0.
    """
    if has_only_cpus():
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "this process"
    names = [device.name[-5:] for device in tf.config.list_logical_devices("GPU")]
    peaks = [tf.config.experimental.get_memory_info(name)["peak"] for name in names]
    return max(peaks, default=0), "a GPU"


def _format_duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
