"""Train on one GPU with JAX, and bring the result back.

    tools/one_gpu/move export --config=tiny --data=records --folder=step
    python step/run.py                   # there, after copying the folder
    tools/one_gpu/move import --run=run --folder=step

`export` writes the whole train step as one program with kernels for GPUs, the records,
a program of their order, and the state. `--run`, in place of `--config`, continues a
run from its newest checkpoint, with the batches and random numbers that it would have
here. `run.py` needs JAX, flatbuffers and NumPy, not TensorFlow. `import` writes its
state as a checkpoint, from which `pretrain` resumes and which all commands read.
"""

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import tensorflow as tf
from device_layer_ops import make_layer_ops
from program import convert

from electra_tf.batch import Batch
from electra_tf.config.loader import load_config
from electra_tf.errors import InputError
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.runs.experiment import Experiment, data_fingerprint
from electra_tf.text import pipeline
from electra_tf.text.record_set import RecordSet, resolve_config
from electra_tf.training import checkpoint as checkpoints
from electra_tf.training.run_directory import is_milestone, run_lock

FILES = "files"  # of a checkpoint, in the folder
_ROWS = 2**14  # records that are read at a time


def export_run(options: argparse.Namespace) -> None:
    """Write the step, the order, the records, the state and the runner."""
    folder, checkpoint, experiment = options.folder, *_start(options)
    record_set = experiment.open(options.data)
    experiment = experiment.with_counts(record_set)
    _check(checkpoint, experiment, record_set)
    config, pretrainer = experiment.config, _pretrainer(experiment)
    if checkpoint:
        checkpoints.restore(pretrainer, checkpoint)
    (folder / FILES).mkdir(parents=True, exist_ok=True)
    for name, content in experiment.files().items():
        (folder / FILES / name).write_bytes(content)
    _write_records(record_set, folder / "records.npz")
    state = {name: v.numpy() for name, v in _variables(pretrainer).items()}
    np.savez_compressed(folder / "state.npz", **state)
    description = {
        **_write_step(folder, options.device, pretrainer),
        "step": pretrainer.optimizer.iterations.path,
        "first_step": checkpoint.step if checkpoint else 0,
        "steps": config.training.steps,
        "log_every": config.training.log_every,
        "rows": config.input.batch_size,
        "counts": record_set.counts,
        "window": config.input.shuffle_window,
        "metadata": data_fingerprint(record_set, experiment.tokenizer),
    }
    bits = _order_bits(record_set, config.input)
    order = tf.function(bits, jit_compile=True, autograph=False)
    order = order.experimental_get_compiler_ir(tf.constant(0, tf.int64))("stablehlo")
    (folder / "order.jax").write_bytes(convert(order, options.device)[0])
    text = json.dumps(description, indent=1)
    (folder / "description.json").write_text(text, encoding="utf-8")
    shutil.copy(pathlib.Path(__file__).with_name("run.py"), folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {size:,} bytes; start run.py in it")


def _start(
    options: argparse.Namespace,
) -> tuple[checkpoints.Checkpoint | None, Experiment]:
    """Return the newest checkpoint of a run and its experiment, or a new one."""
    if options.run:
        checkpoint = checkpoints.open_checkpoint(options.run)
        return checkpoint, Experiment.from_checkpoint(checkpoint)
    make = lambda base: load_config(options.config, options.set, base=base)  # noqa: E731
    return None, Experiment(*resolve_config(options.data, None, make))


def _write_step(
    folder: pathlib.Path, device: str, pretrainer: Pretrainer
) -> dict[str, Any]:
    """Write the step; return its state, its metrics and the results by state."""
    config = pretrainer.config
    shape = 3, config.input.batch_size, config.records.max_length
    program, names = step_program(pretrainer, np.zeros(shape, np.int32))
    code, aliases = convert(program, device)
    (folder / "step.jax").write_bytes(code)
    parameters = enumerate(names["state"], 3)  # after the batch's fields
    results = {name: aliases[p] for p, name in parameters if p in aliases}
    return {**names, "results": results}


def _variables(pretrainer: Pretrainer) -> dict[str, tf.Variable]:
    """Return the weights and the optimizer's variables by path."""
    variables = [*pretrainer.trainable_variables, *pretrainer.optimizer.variables]
    return {variable.path: variable.value for variable in variables}


def step_program(
    pretrainer: Pretrainer, batch: np.ndarray
) -> tuple[str, dict[str, list[str]]]:
    """Return the step as StableHLO, with the names of its state and metrics.

    The program's parameters are the batch's fields, then the state. Its first results
    are the metrics.
    """
    names: list[str] = []
    precision = pretrainer.config.training.precision
    make = functools.partial(make_layer_ops, precision)
    pretrainer.objective.make_layer_ops = make

    @tf.function(jit_compile=True, autograph=False)
    def step(*fields: tf.Tensor) -> list[tf.Tensor]:
        metrics = pretrainer.train_step(Batch(*fields))
        names[:] = sorted(metrics)
        return [metrics[name] for name in names]

    fields = [tf.constant(field) for field in batch]
    program = step.experimental_get_compiler_ir(*fields)("stablehlo")
    paths = {id(v.handle): path for path, v in _variables(pretrainer).items()}
    captured = step.get_concrete_function(*fields).captured_inputs
    return program, {"state": [paths[id(h)] for h in captured], "metrics": names}


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
    found = data_fingerprint(record_set, experiment.tokenizer)
    config = experiment.config
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


def _write_records(record_set: RecordSet, path: pathlib.Path) -> None:
    """Write the tokens of all records, and of each record its two ends."""
    small = np.uint16 if record_set.vocabulary_size <= 2**16 else np.int32
    ids, ends, starts = [], [], []
    position_L = np.arange(record_set.max_length)
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
        ids.append(ids_BL.astype(small))
        ends.append(end_B.astype(np.uint16))
        starts.append(start_B.astype(np.uint16))
    fields = {"ids": ids, "ends": ends, "starts": starts}
    arrays = {name: np.concatenate(parts) for name, parts in fields.items()}
    np.savez_compressed(path, **arrays)


def import_run(run: str, folder: pathlib.Path) -> str:
    """Write the trained state as a checkpoint of a run; return its path."""
    description = json.loads((folder / "description.json").read_text(encoding="utf-8"))
    first, metadata = description["first_step"], description["metadata"]
    origin = checkpoints.Checkpoint(str(folder / FILES), first, metadata)
    experiment = Experiment.from_checkpoint(origin)
    with np.load(folder / "state.npz") as file:
        state = dict(file)
    step = int(state[description["step"]])
    if step <= first:
        raise InputError(
            f"{folder} must have trained on from step {first:,}; run {folder}/run.py, "
            "and copy its state.npz back"
        )
    training = experiment.config.training
    pretrainer = _pretrainer(experiment)
    for name, variable in _variables(pretrainer).items():
        variable.assign(state[name])
    with run_lock(run):
        target = os.path.join(run, checkpoints.CHECKPOINTS)
        kept = functools.partial(is_milestone, training)
        manager = checkpoints.CheckpointManager(target, training.keep, kept)
        weights, slots = checkpoints.training_state(pretrainer)
        return manager.save(step, weights, slots, experiment.files(), metadata)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("command", choices=("export", "import"))
    add("--folder", required=True, type=pathlib.Path, help="with run.py and its files")
    add("--run", help="run directory of pretrain")
    add("--config", help="for export: that of a new run")
    add("--set", action="append", default=[], help="--set of pretrain")
    add("--data", help="for export: the run's records")
    add("--device", choices=("gpu", "cpu"), default="gpu", help="cpu: only for tests")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)  # the step number is int64
    try:
        if options.command == "import":
            if not options.run:
                parser.error("import needs --run=DIR")
            print(import_run(options.run, options.folder))
            return
        if not options.data or bool(options.run) == bool(options.config):
            parser.error("export needs --data=DIR, and one of --config and --run")
        export_run(options)
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
