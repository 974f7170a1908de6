"""Describe a run: time, memory, passes and sizes, from steps on synthetic text."""

import contextlib
import dataclasses
import functools
import math
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from electra_tf.batch import Batch
from electra_tf.model import cost, original_flops
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.runs.experiment import Experiment
from electra_tf.training.checkpoint import steps_at_shares
from electra_tf.training.loop import malloc_trim, train_runner
from electra_tf.training.strategy import runs_on_cpu

# FLOPs of the larger measured step, about a second of a CPU core.
_CPU_FLOPS, _DEVICE_FLOPS = 3e11, 1e13
_SECONDS, _MIN_REPEATS = 3.0, 3
_BYTES_PER_PARAMETER = 16  # float32: weight, two slots, gradient
_STATUS, _MACHINE = "/proc/self/status", "/proc/meminfo"


@dataclasses.dataclass(frozen=True)
class StepEstimate:
    """Step of the whole batch, extrapolated from a few rows."""

    seconds: float
    memory: int | None
    measured: tuple[int, ...]
    """Rows of the batches that were measured."""


def describe(
    experiment: Experiment,
    strategy: tf.distribute.Strategy,
    records: int,
    load_weights: Callable[[Pretrainer], str | None],
) -> str:
    """Return time, memory, passes over the records, disk and sizes of a run as text."""
    config, shapes = experiment.config, variable_shapes(experiment)
    steps, flops = config.training.steps, experiment.step_flops
    needed = _BYTES_PER_PARAMETER * sum(parameter_counts(shapes).values())
    rows = steps * config.input.batch_size
    end = experiment.config_warnings()
    lines = [
        f"passes over the records: {rows / records:,.1f} ({steps:,} steps read "
        f"{rows:,} rows; the data has {records:,})"
    ]
    try:
        available = _kernel_bytes(_MACHINE, "MemAvailable")
        if runs_on_cpu(strategy) and available is not None and needed > available:
            raise MemoryError
        pretrainer = experiment.pretrainer(strategy)
        if summary := load_weights(pretrainer):
            end.append(summary)
        kept = config.training.keep
        kept += len(steps_at_shares(config.training.keep_at, steps))
        size = checkpoint_bytes(pretrainer)
        lines.append(
            f"checkpoint: {size / 1e6:,.0f} MB; at most {kept} are kept, "
            f"{kept * size / 1e6:,.0f} MB"
        )
        estimate = measure_steps(pretrainer, strategy)
        lines = [*_describe_estimate(experiment, strategy, estimate), *lines]
    except (MemoryError, tf.errors.ResourceExhaustedError):
        lines += [
            "memory and time: not measured, as the model needs more memory than is "
            f"free here ({needed / 2**30:.2f} GiB for weights, slots and gradients)",
        ]
    lines += [
        *_describe_sizes(experiment, shapes),
        f"{flops:.4g} FLOPs per step, {flops * steps:.4g} in "
        f"{steps:,} steps; {original_flops.training_flops(config):.4g} by the paper's "
        "rule of counting",
    ]
    return "\n".join([*lines, *end])


def measure_steps(
    pretrainer: Pretrainer, strategy: tf.distribute.Strategy
) -> StepEstimate:
    """Run steps of two small batches and extrapolate to the batch of the config.

    The steps change the weights of the pretrainer.
    """
    config = pretrainer.config
    replicas = strategy.num_replicas_in_sync
    unit = replicas * config.training.accumulation
    rows = config.input.batch_size // unit
    limit = _CPU_FLOPS if runs_on_cpu(strategy) else replicas * _DEVICE_FLOPS
    flops_per_row = cost.step_flops(config) / rows
    large = min(rows, max(2, int(limit / flops_per_row)))
    measured = sorted({max(1, large // 2), large})
    stages = [
        (0, config.generator_share),
        (config.restart or 0, 1 - config.generator_share),
    ]
    seconds, memory = 0.0, 0
    for start, share in stages:
        if share > 0:
            pretrainer.begin(start)
            times, peaks = _measure_stage(pretrainer, strategy, measured, unit)
            seconds += share * _extrapolate(times, rows)
            if memory is not None and peaks is not None:
                memory = max(memory, round(_extrapolate(peaks, rows)))
            else:
                memory = None
    return StepEstimate(seconds, memory, tuple(unit * n for n in measured))


def _measure_stage(
    pretrainer: Pretrainer,
    strategy: tf.distribute.Strategy,
    measured: Iterable[int],
    unit: int,
) -> tuple[dict[int, float], dict[int, int] | None]:
    """Measure steps of `unit` times each number of rows, in turns.

    Returns:
        Seconds by the number, and the peak of memory in bytes; None: not measured here.
    """
    steps, traces = {}, {}
    for rows in measured:
        before = _kernel_bytes(_STATUS, "VmRSS") or 0
        batches = tf.data.Dataset.from_tensors(
            _synthetic_batch(pretrainer, rows * unit)
        )
        runner = train_runner(strategy, pretrainer)
        iterator = runner.iterate(lambda *_, batches=batches: batches)
        runner(iterator, 0)
        steps[rows] = functools.partial(runner, iterator, 1)
        traces[rows] = (_kernel_bytes(_STATUS, "VmRSS") or 0) - before
    for step in steps.values():  # allocates what later steps use again
        step()
    malloc_trim()
    peaks = {rows: _peak_memory(strategy, step) for rows, step in steps.items()}
    seconds: dict[int, list[float]] = {rows: [] for rows in steps}
    begin = time.perf_counter()
    while (
        min(map(len, seconds.values())) < _MIN_REPEATS
        or time.perf_counter() - begin < _SECONDS
    ):
        for rows, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[rows].append(time.perf_counter() - start)
    times = {rows: min(several) for rows, several in seconds.items()}
    if None in peaks.values():
        return times, None
    # A run has one compiled step; here all exist during each measurement.
    is_shared = runs_on_cpu(strategy)
    surplus = sum(traces.values()) - max(traces.values()) if is_shared else 0
    return times, {rows: max(0, peak - surplus) for rows, peak in peaks.items()}


def _synthetic_batch(pretrainer: Pretrainer, rows: int) -> Batch:
    """Return rows of random ids without padding."""
    tokens, length = pretrainer.tokens, pretrainer.config.records.max_length
    special = max(tokens.cls, tokens.sep, tokens.mask)
    first = special + 1 if special + 1 < tokens.vocabulary_size else 0
    ids_BL = np.random.default_rng(0).integers(
        first, tokens.vocabulary_size, [rows, length], np.int32
    )
    ids_BL[:, 0], ids_BL[:, -1] = tokens.cls, tokens.sep
    return Batch(ids_BL, np.ones_like(ids_BL), np.zeros_like(ids_BL))


def _extrapolate(values: Mapping[int, float], rows: int) -> float:
    """Return the value at a number of rows of the line through those measured."""
    (first, start), (last, end) = min(values.items()), max(values.items())
    slope = (end - start) / (last - first) if last > first else 0.0
    return end + slope * (rows - last)


def _peak_memory(
    strategy: tf.distribute.Strategy, step: Callable[[], Any]
) -> int | None:
    """Return the peak memory of a step: of the process on CPUs, else of a device."""
    if not runs_on_cpu(strategy):
        devices = [device.name[-5:] for device in tf.config.list_logical_devices("GPU")]
        for device in devices:
            tf.config.experimental.reset_memory_stats(device)
        step()
        peaks = [tf.config.experimental.get_memory_info(d)["peak"] for d in devices]
        return max(peaks, default=None)
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    except OSError:
        return None
    step()
    return _kernel_bytes(_STATUS, "VmHWM")


def _kernel_bytes(path: str, name: str) -> int | None:
    """Return a size that the Linux kernel reports; None on another system."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(path).read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def variable_shapes(experiment: Experiment) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all trained weights by path, without their memory."""
    with keras.StatelessScope(initialize_variables=False):
        pretrainer = Pretrainer(experiment.config, experiment.special_tokens)
    return {v.path: tuple(v.shape) for v in pretrainer.trainable_variables}


def parameter_counts(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the number of parameters of each part of a model."""
    counts: dict[str, int] = {}
    for path, shape in shapes.items():
        names = path.split("/")
        depth = 1 + next(
            (i for i, n in enumerate(names) if n == "head" or n.endswith("encoder")),
            len(names) - 2,
        )
        name = "/".join(names[: depth + (names[depth] == "embeddings")])
        counts[name] = counts.get(name, 0) + math.prod(shape)
    return counts


def _describe_sizes(
    experiment: Experiment, shapes: Mapping[str, tuple[int, ...]]
) -> list[str]:
    model, objective = experiment.config.model, experiment.config.objective
    encoders = {objective.facts.main_network: model.encoder}
    if objective.has_generator:
        encoders["generator"] = model.generator
    counts = parameter_counts(shapes)
    return [
        *(
            f"{name}: {shape.depth} layers of width {shape.width}, heads: "
            f"{shape.heads}, feed-forward: {shape.feed_forward}, embeddings: "
            f"{shape.embedding}"
            for name, shape in encoders.items()
        ),
        *(f"{name}: {n:,} parameters" for name, n in counts.items()),
        f"all: {sum(counts.values()):,} parameters, {len(shapes)} weights",
    ]


def checkpoint_bytes(pretrainer: Pretrainer) -> int:
    """Return the size of a checkpoint: weights and slots, float32."""
    variables = (*pretrainer.variables, *pretrainer.optimizer.variables)
    # A variable is in both.
    return 4 * sum({id(v): math.prod(v.shape) for v in variables}.values())


def _describe_estimate(
    experiment: Experiment,
    strategy: tf.distribute.Strategy,
    estimate: StepEstimate,
) -> list[str]:
    batch = experiment.config.input.batch_size
    replicas = strategy.num_replicas_in_sync
    owner = "this process" if runs_on_cpu(strategy) else f"each of {replicas} devices"
    measured = " and ".join(f"{n:,}" for n in estimate.measured)
    how = f"measured on {measured} rows of random ids"
    if estimate.measured[-1] != batch:
        how += f" and extrapolated linearly to {batch:,}"
    memory = "not measured on this system"
    if estimate.memory is not None:
        memory = f"about {estimate.memory / 2**30:.2f} GiB of {owner}"
    total = _format_duration(experiment.config.training.steps * estimate.seconds)
    return [
        f"time to train: about {total}, without start-up and evaluation",
        f"step: about {estimate.seconds:.3g} s, "
        f"{experiment.step_flops / estimate.seconds:.3g} FLOP/s; {how}",
        f"memory: {memory}",
    ]


def _format_duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"
