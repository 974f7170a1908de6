"""Write a pre-training step as XLA programs, and TensorFlow's results of some steps.

Run in a process of its own: only here TensorFlow is imported, and JAX is not. The
initial weights are computed by another program from the seed, so they do not travel.
"""

import argparse
import contextlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.batch import Batch
from electra_tf.config.loader import load_config
from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.pretraining.flat_state import FlatState
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.runs.experiment import Experiment
from electra_tf.text.pipeline import training_batches

PRECISIONS = ("float32", "mixed_bfloat16")
_FIRST_PURPOSE = 1000  # of the random numbers of the initial weights
_SAMPLES = 1000  # weights whose final values are compared

Variables = dict[str, tf.Variable]


def write_reference(options: argparse.Namespace, folder: pathlib.Path) -> None:
    """Write programs as serialised HLO, batches, and the results of TensorFlow's steps.

    Args:
        options: `config`, `set`, `batch_size`, `data`, `kernels` and `run`, the number
            of steps.
        folder: An existing folder.
    """
    experiment = _experiment(options, "float32", "off")
    records, settings = experiment.open(options.data), experiment.config.input
    dataset = training_batches(records, settings).take(options.run)
    batches = np.array([np.stack(batch) for batch in dataset.as_numpy_iterator()])
    np.savez_compressed(folder / "batches.npz", batches=batches)
    programs = {}
    for precision in PRECISIONS:
        pretrainer = _experiment(options, precision, "on").pretrainer()
        flat = FlatState(pretrainer) if options.kernels == "gpu" else None
        program, programs[precision] = step_program(pretrainer, batches[0], flat)
        (folder / f"{precision}.hlo").write_bytes(program)
    description = _run_reference(experiment, batches, folder) | {"programs": programs}
    text = json.dumps(description, indent=1)
    (folder / "reference.json").write_text(text, encoding="utf-8")


def _run_reference(
    experiment: Experiment, batches: np.ndarray, folder: pathlib.Path
) -> dict[str, Any]:
    """Run TensorFlow's steps; write the initial values' program and final weights."""
    pretrainer, seed = experiment.pretrainer(), experiment.config.training.seed
    variables = variables_of(pretrainer)
    initial = _initial_values(variables)
    program = _program(initial, tf.constant(seed, tf.int64))
    (folder / "initial.hlo").write_bytes(program)
    values = initial(tf.constant(seed, tf.int64))
    for variable, value in zip(variables.values(), values, strict=True):
        variable.assign(value)
    before = _compared_weights(pretrainer)
    metrics = _run_steps(pretrainer, batches)
    weights = _compared_weights(pretrainer)
    np.savez_compressed(folder / "reference.npz", **_sample(before, weights))
    return {
        "seed": seed,
        "state": list(variables),
        "metrics": metrics,
        "norms": {name: float(np.linalg.norm(w)) for name, w in weights.items()},
    }


def _experiment(options: argparse.Namespace, precision: str, xla: str) -> Experiment:
    sets = [
        f"input.batch_size={options.batch_size}",
        # The weights must move, so that wrong updates show.
        f"optimizer.warmup_steps={max(1, options.run // 4)}",
        *options.set,
        f"training.precision={precision}",
        f"training.xla={xla}",
    ]
    return Experiment.resolve(
        options.data, None, lambda base: load_config(options.config, sets, base=base)
    )


def variables_of(pretrainer: Pretrainer) -> Variables:
    """Return the weights and the optimizer's variables by path."""
    variables = [*pretrainer.trainable_variables, *pretrainer.optimizer.variables]
    return {variable.path: variable.value for variable in variables}


def _initial_values(variables: Variables) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    """Return a function that computes the initial values of the variables from a seed.

    Constant ones keep their value. The others are uniform, with the standard deviation
    of their initialiser: its own random numbers are not the same on all devices.
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
            tensors.append((uniform - 0.5) * float(12**0.5 * value.std()))
        return tensors

    return compute


def _program(function: Callable, *arguments: Any) -> bytes:
    compiled = tf.function(function, jit_compile=True, autograph=False)
    return compiled.experimental_get_compiler_ir(*arguments)(stage="hlo_serialized")


def step_program(
    pretrainer: Pretrainer, batch: np.ndarray, flat: FlatState | None = None
) -> tuple[bytes, dict[str, list[str]]]:
    """Return the step as a program, with the names of its state and metrics.

    The program's parameters are the batch, then the state; its first results are the
    metrics. With a `FlatState` it is for GPUs: the state has buffers, and calls name
    kernels.
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
    variables = variables_of(pretrainer) | (flat.buffers if flat else {})
    paths = {id(v.handle): path for path, v in variables.items()}
    captured = step.get_concrete_function(*fields).captured_inputs
    description = {
        "state": [paths[id(handle)] for handle in captured],
        "metrics": list(names),
    }
    return program, description | ({"layout": flat.layout()} if flat else {})


def _run_steps(pretrainer: Pretrainer, batches: np.ndarray) -> dict[str, list[float]]:
    """Run TensorFlow's steps; return each metric's values."""
    step = tf.function(pretrainer.train_step, autograph=False)
    rows = [step(Batch(*(tf.constant(field) for field in batch))) for batch in batches]
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


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
