"""Write pre-training steps as XLA programs, and read what they have trained.

Run in a process of its own: only here TensorFlow is imported, and JAX is not. Initial
weights and the order of the records are computed by programs from the seed.
"""

import argparse
import contextlib
import dataclasses
import io
import json
import lzma
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from device_begin import begun_from
from device_state import FlatState
from device_steps import read_state

from electra_tf.batch import Batch
from electra_tf.config.loader import load_config
from electra_tf.errors import InputError
from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.runs.experiment import Experiment, data_fingerprint
from electra_tf.text import pipeline
from electra_tf.text.record_folder import resolve_config
from electra_tf.text.record_set import RecordSet
from electra_tf.training import checkpoint as checkpoints
from electra_tf.training.run_directory import permanent_steps, run_lock
from electra_tf.training.schedule import WarmupPolynomialDecay

PRECISIONS = ("float32", "mixed_bfloat16")
FILES = "files"  # of a checkpoint, in the folder of a run that trains elsewhere
_FIRST_PURPOSE = 1000  # of the random numbers of the initial weights
_SAMPLES = 1000  # weights whose final values are compared
_ROWS = 2**14  # records that are read at a time
_PART = 23_000_000  # bytes of a file of records

Variables = dict[str, tf.Variable]


def variables_of(pretrainer: Pretrainer) -> Variables:
    """Return the weights and the optimizer's variables by path."""
    variables = [*pretrainer.trainable_variables, *pretrainer.optimizer.variables]
    return {variable.path: variable.value for variable in variables}


def step_program(
    pretrainer: Pretrainer,
    batch: np.ndarray,
    flat: FlatState | None = None,
    more: Variables | None = None,
) -> tuple[bytes, dict[str, Any]]:
    """Return the step as a program, with the names of its state and metrics.

    The program's parameters are the batch, then the state, of which `more` are names
    beside the pretrainer's; its first results are the metrics. With a `FlatState` it is
    for GPUs: the state has buffers, and calls name kernels.
    """
    names: list[str] = []
    context = flat.used if flat else contextlib.nullcontext

    @tf.function(jit_compile=True, autograph=False)
    def step(*fields: tf.Tensor) -> list[tf.Tensor]:
        with context():
            metrics = pretrainer.train_step(Batch(*fields))
        names[:] = sorted(metrics)
        return [metrics[name] for name in names]

    fields = [tf.constant(field) for field in batch]
    program = step.experimental_get_compiler_ir(*fields)(stage="hlo_serialized")
    variables = variables_of(pretrainer) | (flat.buffers if flat else {}) | (more or {})
    paths = {id(v.handle): path for path, v in variables.items()}
    captured = step.get_concrete_function(*fields).captured_inputs
    state = [paths[id(handle)] for handle in captured]
    layout = {"layout": flat.layout()} if flat else {}
    return program, {"state": state, "metrics": list(names), **layout}


def _program(function: Callable, *arguments: Any) -> bytes:
    compiled = tf.function(function, jit_compile=True, autograph=False)
    return compiled.experimental_get_compiler_ir(*arguments)(stage="hlo_serialized")


def _initial_values(variables: Variables) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    """Return a function that computes the initial values of the variables from a seed.

    Constant ones keep their value. The others are normal, cut at two standard
    deviations, with the deviation of their initialiser, whose own random numbers are
    not the same on all devices.
    """
    values = {name: variable.numpy() for name, variable in variables.items()}

    def compute(seed: tf.Tensor) -> list[tf.Tensor]:
        rng = make_rng(seed, TRAINING, 0)
        tensors = []
        for purpose, value in enumerate(values.values(), _FIRST_PURPOSE):
            if not value.ndim or value.min() == value.max():
                # Depends on the seed, so that the program contains no large constants.
                zero = tf.cast(seed * 0, value.dtype)
                tensors.append(tf.fill(value.shape, zero + value.flat[0]))
                continue
            uniform = rng.uniform(purpose, value.shape[0], value.shape[1:])
            normal = tf.math.erfinv((2 * uniform - 1) * 0.9545) * 2**0.5
            tensors.append(normal * float(value.std() / 0.8796))
        return tensors

    return compute


# ---- Steps to compare with those of TensorFlow.


def write_reference(options: argparse.Namespace, folder: pathlib.Path) -> None:
    """Write programs as serialised HLO, batches, and the results of TensorFlow's steps.

    `options` are `config`, `set`, `batch_size`, `data`, `kernels` and `run`, the number
    of steps.
    """
    experiment = _comparable(options, "float32", "off")
    records, settings = experiment.open(options.data), experiment.config.input
    dataset = pipeline.training_batches(records, settings).take(options.run)
    batches = np.array([np.stack(batch) for batch in dataset.as_numpy_iterator()])
    np.savez_compressed(folder / "batches.npz", batches=batches)
    programs = {}
    for precision in PRECISIONS:
        pretrainer = _comparable(options, precision, "on").pretrainer()
        flat = FlatState(pretrainer) if options.kernels == "gpu" else None
        program, programs[precision] = step_program(pretrainer, batches[0], flat)
        (folder / f"{precision}.hlo").write_bytes(program)
    pretrainer, seed = experiment.pretrainer(), experiment.config.training.seed
    variables, seed = variables_of(pretrainer), tf.constant(seed, tf.int64)
    initial = _initial_values(variables)
    (folder / "initial.hlo").write_bytes(_program(initial, seed))
    for variable, value in zip(variables.values(), initial(seed), strict=True):
        variable.assign(value)
    before = _compared_weights(pretrainer)
    step = tf.function(pretrainer.train_step, autograph=False)
    rows = [step(Batch(*map(tf.constant, batch))) for batch in batches]
    weights = _compared_weights(pretrainer)
    np.savez_compressed(folder / "reference.npz", **_sample(before, weights))
    description = {
        "seed": int(seed),
        "variables": list(variables),
        "programs": programs,
        "reference": {name: [float(row[name]) for row in rows] for name in rows[0]},
        "norms": {name: float(np.linalg.norm(w)) for name, w in weights.items()},
    }
    _write_json(folder, description)


def _write_json(folder: pathlib.Path, description: dict[str, Any]) -> None:
    text = json.dumps(description, indent=1)
    (folder / "description.json").write_text(text, encoding="utf-8")


def _comparable(options: argparse.Namespace, precision: str, xla: str) -> Experiment:
    sets = [
        f"input.batch_size={options.batch_size}",
        # The weights must move, so that wrong updates show.
        f"optimizer.warmup_steps={max(1, options.run // 4)}",
        *options.set,
        f"training.precision={precision}",
        f"training.xla={xla}",
    ]
    return _resolve(options.data, options.config, sets)


def _resolve(data: str, config: str, sets: list[str]) -> Experiment:
    make = lambda base: load_config(config, sets, base=base)  # noqa: E731
    return Experiment(*resolve_config(data, None, make))


def _compared_weights(pretrainer: Pretrainer) -> dict[str, np.ndarray]:
    """Return all weights but the biases of keys, by path.

    Softmax ignores what a key's bias adds to all scores of a query, so its gradient is
    the rounding errors.
    """
    variables = pretrainer.trainable_variables
    return {v.path: v.numpy() for v in variables if not v.path.endswith("key/bias")}


def _sample(
    before: dict[str, np.ndarray], weights: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return random weights: tensor, index in it, first and last value."""
    random = np.random.default_rng(0)
    names = random.choice(list(weights), _SAMPLES)
    indices = np.array([random.integers(weights[name].size) for name in names])
    values = [
        [tensors[name].flat[index] for name, index in zip(names, indices, strict=True)]
        for tensors in (before, weights)
    ]
    return {"names": names, "indices": indices, "values": np.array(values)}


# ---- A run that trains elsewhere.


class LateSchedule(WarmupPolynomialDecay):
    """Schedule whose numbers of steps are variables, fixed when the speed is known."""

    def __init__(self, schedule: WarmupPolynomialDecay):
        super().__init__(**schedule.get_config())
        numbers = {"steps": schedule.steps, "warmup": schedule.warmup}
        self.variables = {
            f"schedule/{name}": tf.Variable(float(number), name=name)
            for name, number in numbers.items()
        }

    def __call__(self, step: tf.Tensor | int) -> tf.Tensor:
        """Return the rate of an update."""
        steps, warmup = self.variables.values()
        step = tf.cast(step, tf.float32)
        remaining = (steps - tf.minimum(step, steps)) / steps
        rate = self.peak * tf.pow(remaining, self.power)
        return rate * tf.minimum(1.0, step / tf.maximum(warmup, 1e-6))


def write_run(options: argparse.Namespace) -> None:
    """Write the step, the records, and programs of their order and the first state.

    `options` are `run`, which continues from its newest checkpoint, or `config`, `set`,
    `lengths` and `begin` of a new run; `data`, `folder` and `kernels`: with `gpu` the
    step calls those for GPUs, and the state has buffers.
    """
    folder, checkpoint = options.folder, None
    if options.config:
        experiment = _resolve(options.data, options.config, options.set)
    else:
        checkpoint = checkpoints.open_checkpoint(options.run)
        experiment = Experiment.from_checkpoint(checkpoint)
    record_set = experiment.open(options.data)
    experiment = experiment.with_counts(record_set)
    _check(checkpoint, experiment, record_set)
    config, pretrainer = experiment.config, _pretrainer(experiment)
    late = LateSchedule(pretrainer.optimizer.schedule)
    pretrainer.optimizer.schedule = late
    # `training.steps` of the config, a constant, would be that of the estimate.
    iterations = pretrainer.optimizer.iterations
    steps = late.variables["schedule/steps"]
    pretrainer._progress = lambda: tf.cast(iterations, tf.float32) / steps
    variables = variables_of(pretrainer)
    if checkpoint:
        checkpoints.restore(pretrainer, checkpoint)
        state = {name: v.numpy() for name, v in variables.items()}
        np.savez(folder / "state.npz", **state)
    seed = tf.constant(config.training.seed, tf.int64)
    (folder / "initial.hlo").write_bytes(_program(_initial_values(variables), seed))
    bits = _order_bits(record_set, config.input)
    (folder / "order.hlo").write_bytes(_program(bits, tf.constant(0, tf.int64)))
    ends = write_records(record_set, folder)
    batches = _batches([*sorted(options.lengths), record_set.max_length], ends, config)
    flat = FlatState(pretrainer) if options.kernels == "gpu" else None
    objective, programs = pretrainer.objective, {}
    for batch in batches:
        name, length = batch["program"], batch["length"]
        objective.mask = dataclasses.replace(objective.mask, length=length)
        fields = np.zeros((3, batch["rows"], length), np.int32)
        program, programs[name] = step_program(pretrainer, fields, flat, late.variables)
        (folder / f"{name}.hlo").write_bytes(program)
    (folder / FILES).mkdir(exist_ok=True)
    for name, content in experiment.files().items():
        (folder / FILES / name).write_bytes(content)
    _write_json(folder, {
        "seed": config.training.seed,
        "variables": list(variables),
        "programs": programs,
        "batches": batches,
        "step": iterations.path,
        "first_step": checkpoint.step if checkpoint else 0,
        "begin": _begin(options.begin, experiment) if options.begin else {},
        "schedule": {name: float(v.numpy()) for name, v in late.variables.items()},
        "log_every": config.training.log_every,
        "length": record_set.max_length,
        "counts": record_set.counts,
        "window": config.input.shuffle_window,
        "weights": [v.path for v in pretrainer.trainable_variables],
        "metadata": data_fingerprint(record_set, experiment.tokenizer),
    })  # fmt: skip


def _begin(folder: pathlib.Path, experiment: Experiment) -> dict[str, str]:
    """Return the weights that begin with those of the run of an exported folder."""
    text = (folder / "description.json").read_text(encoding="utf-8")
    metadata = json.loads(text)["metadata"]
    origin = checkpoints.Checkpoint(str(folder / FILES), 0, metadata)
    return begun_from(Experiment.from_checkpoint(origin), metadata, experiment)


def _batches(lengths: list[int], ends: np.ndarray, config: Any) -> list[dict[str, Any]]:
    """Return the kinds of batches, of which each has one length.

    A record is in the batches of the shortest length that it fits. All batches have
    about as many positions. `steps` are those of `training.log_every`.
    """
    kinds = np.searchsorted(lengths, ends)
    counts = np.bincount(kinds, minlength=len(lengths))
    rows = [config.input.batch_size * lengths[-1] // length for length in lengths]
    padding = 1 - ends.sum() / np.array(lengths)[kinds].sum()
    print(f"{padding:.1%} of the positions are padding")
    every = config.training.log_every
    steps = np.round(every * (counts / rows) / (counts / rows).sum()).astype(int)
    steps[-1] = every - steps[:-1].sum()
    for length, count, size, number in zip(lengths, counts, rows, steps, strict=True):
        if count < size or number < 1:
            raise InputError(
                f"Batches of {length} positions must have {size} records and one or "
                f"more of {every} steps (training.log_every), not {count:,} records "
                f"and {number} steps; choose other --lengths"
            )
    return [
        {
            "program": "step" if length == lengths[-1] else f"step_{length}",
            "length": length,
            "rows": size,
            "steps": int(number),
        }
        for length, size, number in zip(lengths, rows, steps, strict=True)
    ]


def _pretrainer(experiment: Experiment) -> Pretrainer:
    """Return the model, whose step XLA compiles."""
    config = experiment.config
    training = dataclasses.replace(config.training, xla="on")
    config = dataclasses.replace(config, training=training)
    return dataclasses.replace(experiment, config=config).pretrainer()


def _check(
    checkpoint: checkpoints.Checkpoint | None,
    experiment: Experiment,
    record_set: RecordSet,
) -> None:
    """Raise an InputError for other records, or a step that changes."""
    found, config = (
        data_fingerprint(record_set, experiment.tokenizer),
        experiment.config,
    )
    if checkpoint and not found.items() <= checkpoint.metadata.items():
        raise InputError(
            f"The records must be those of the run {checkpoint.path}, not "
            f"{record_set.total:,} others; pass the --data of its pretrain"
        )
    if config.restart:
        raise InputError(
            "A run to move must have one stage, not those of objective.name: "
            f"{config.objective.name}"
        )
    if config.training.token_embeddings != "random" and not checkpoint:
        raise InputError(
            "A new run to move must have random training.token_embeddings, not "
            f"{config.training.token_embeddings}; begin it with electra-tf pretrain"
        )


def _order_bits(record_set: RecordSet, settings: Any) -> Callable:
    """Return a function from an epoch to the random bits that order its records.

    Their stable sorting is the order of `training_batches`: of the shards, then of the
    records of each window.
    """

    def draw(size: int, epoch: tf.Tensor, purpose: int, number: Any) -> tf.Tensor:
        seed = tf.stack([tf.constant(settings.seed, tf.int64), epoch])
        for part in (purpose, number):
            seed = tf.random.fold_in(seed, part, alg="philox")
        return tf.random.stateless_uniform(
            [size], seed, minval=None, maxval=None, dtype=tf.int64, alg="philox"
        )

    def compute(epoch: tf.Tensor) -> list[tf.Tensor]:
        starts = range(0, record_set.total, settings.shuffle_window)
        sizes = [min(settings.shuffle_window, record_set.total - s) for s in starts]
        shards = draw(len(record_set.counts), epoch, pipeline._SHARD_ORDER, 0)
        windows = [
            # The bits depend on the number's type, which is that of a data set.
            draw(size, epoch, pipeline._WINDOW_ORDER, tf.constant(number, tf.int64))
            for number, size in enumerate(sizes)
        ]
        return [shards, tf.concat(windows, 0)]

    return compute


def write_records(record_set: RecordSet, folder: pathlib.Path) -> np.ndarray:
    """Write the records as parts of an xz file, tokens as ranks of their frequency.

    Returns:
        The number of tokens of each record.
    """
    length, size = record_set.max_length, record_set.vocabulary_size
    tokens, ends, starts, position_L = [], [], [], np.arange(length)
    for number, batch in enumerate(pipeline.evaluation_batches(record_set, _ROWS)):
        count = min(_ROWS, record_set.total - number * _ROWS)
        ids_BL, mask_BL, segments_BL = (values.numpy()[:count] for values in batch)
        end_B = mask_BL.sum(1)
        start_B = end_B - segments_BL.sum(1)
        real_BL = position_L < end_B[:, None]
        second_BL = real_BL & (position_L >= start_B[:, None])
        if (mask_BL != real_BL).any() or (segments_BL != second_BL).any():
            raise InputError(
                f"Records {number * _ROWS:,} to {number * _ROWS + count:,} must have "
                "segment A, segment B and padding in turn; build them with electra-tf "
                "build_records"
            )
        tokens.append(ids_BL[real_BL].astype(np.uint16 if size <= 2**16 else np.int32))
        ends.append(end_B.astype(np.uint16))
        starts.append(start_B.astype(np.uint16))
    tokens = np.concatenate(tokens)
    ids_V = np.argsort(-np.bincount(tokens, minlength=size), kind="stable")
    ranks_V = np.argsort(ids_V).astype(tokens.dtype)
    buffer = io.BytesIO()
    np.savez(
        buffer,
        ids=ids_V.astype(np.int32),
        ranks=ranks_V[tokens],
        ends=np.concatenate(ends),
        starts=np.concatenate(starts),
    )
    # Settings for numbers of two bytes.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 3, "lp": 1, "pb": 1}]
    packed = lzma.compress(buffer.getvalue(), filters=filters)
    for number, start in enumerate(range(0, len(packed), _PART)):
        part = packed[start : start + _PART]
        (folder / f"records.xz.{number:02}").write_bytes(part)
    return np.concatenate(ends)


def read_run(run: str, folder: pathlib.Path, only_weights: bool) -> str:
    """Write the trained state as a checkpoint of a run; return its path."""
    description = json.loads((folder / "description.json").read_text(encoding="utf-8"))
    first, source = description["first_step"], folder / FILES
    origin = checkpoints.Checkpoint(str(source), first, description["metadata"])
    experiment = Experiment.from_checkpoint(origin)
    path = folder / ("weights.npz" if only_weights else "state.npz")
    if not path.exists():
        raise InputError(f"{path} is missing; run {folder}/run.py, and copy it back")
    state = read_state(path, description)
    step = int(state[description["step"]])
    if step <= first:
        raise InputError(
            f"{folder} must have trained on from step {first:,}; run {folder}/run.py, "
            f"and copy its {path.name} back"
        )
    config = experiment.config
    steps, warmup = (round(float(state[name])) for name in description["schedule"])
    # A step with kernels is nearer to float32 than to mixed_bfloat16 (docs/scaling.md).
    has_kernels = "layout" in description["programs"]["step"]
    exact = {"precision": "float32"} if has_kernels and only_weights else {}
    training = dataclasses.replace(config.training, steps=steps, **exact)
    optimizer = dataclasses.replace(config.optimizer, warmup_steps=warmup)
    config = dataclasses.replace(config, training=training, optimizer=optimizer)
    experiment = dataclasses.replace(experiment, config=config)
    pretrainer = _pretrainer(experiment)
    for name, variable in variables_of(pretrainer).items():
        if name in state:
            variable.assign(state[name])
    with run_lock(run):
        milestones = checkpoints.steps_at_shares(training.keep_at, steps)
        milestones |= permanent_steps(run, training.keep_at)
        target = os.path.join(run, checkpoints.CHECKPOINTS)
        manager = checkpoints.CheckpointManager(target, training.keep, milestones)
        weights, slots = checkpoints.training_state(pretrainer)
        slots = {} if only_weights else slots
        files = experiment.files()
        return manager.save(step, weights, slots, files, description["metadata"])
