"""Write a run of pre-training for `device_loop.py`, and read what it has trained.

Run in a process of its own: only here TensorFlow is imported, and JAX is not.
"""

import dataclasses
import json
import os
import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from device_layout import pack, unpack
from device_reference import step_program, variables_of

from electra_tf.config.data import InputConfig
from electra_tf.errors import InputError
from electra_tf.pretraining.flat_state import FlatState
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.runs.experiment import Experiment, data_fingerprint
from electra_tf.text.pipeline import evaluation_batches, training_batches
from electra_tf.text.record_set import RecordSet
from electra_tf.text.records import FEATURES
from electra_tf.training.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    CheckpointManager,
    open_checkpoint,
    restore,
    steps_at_shares,
    training_state,
)
from electra_tf.training.run_directory import permanent_steps, run_lock

_ROWS = 2**14  # records that are read at a time


def write_run(run: str, data: str, folder: pathlib.Path, kernels: str) -> None:
    """Write the step, the state, the records and their order.

    With the kernels `gpu` the step calls those for GPUs, and the state has buffers.
    """
    checkpoint = open_checkpoint(run)
    experiment = Experiment.from_checkpoint(checkpoint)
    record_set = experiment.open(data)
    _check(checkpoint, experiment, record_set)
    pretrainer = _restored(checkpoint, experiment)
    ids_BL, ends_B, starts_B = read_records(record_set)
    np.savez(folder / "records.npz", ids=ids_BL, ends=ends_B, starts=starts_B)
    settings, steps = experiment.config.input, experiment.config.training.steps
    order_SB = record_order(record_set, settings, checkpoint.step, steps)
    np.save(folder / "order.npy", order_SB)
    state = {name: v.numpy() for name, v in variables_of(pretrainer).items()}
    flat = FlatState(pretrainer) if kernels == "gpu" else None
    if flat:
        state = pack(state, flat.layout())
    np.savez(folder / "state.npz", **state)
    weights = {v.path for v in pretrainer.trainable_variables}
    if flat:
        weights |= {name for name in flat.buffers if name.endswith("/weights")}
    shape = settings.batch_size, record_set.max_length
    program, names = step_program(pretrainer, np.zeros((3, *shape), np.int32), flat)
    (folder / "step.hlo").write_bytes(program)
    description = names | {
        "first_step": checkpoint.step,
        "steps": steps,
        "log_every": experiment.config.training.log_every,
        "step": pretrainer.optimizer.iterations.path,
        "weights": [name for name in state if name in weights],
    }
    text = json.dumps(description, indent=1)
    (folder / "description.json").write_text(text, encoding="utf-8")


def read_run(run: str, folder: pathlib.Path, only_weights: bool = False) -> str:
    """Write the trained state as a checkpoint of the run; return its path."""
    with run_lock(run):
        checkpoint = open_checkpoint(run)
        experiment = Experiment.from_checkpoint(checkpoint)
        pretrainer = _restored(checkpoint, experiment)
        state = _read_state(folder, "weights.npz" if only_weights else "state.npz")
        for name, variable in variables_of(pretrainer).items():
            if name in state:
                variable.assign(state[name])
        step = int(pretrainer.optimizer.iterations.numpy())
        if step <= checkpoint.step:
            raise InputError(
                f"{folder} must have trained on from {checkpoint.path}",
                f"step {step:,}",
                f"Run {folder}/run.py, and copy its state.npz back",
            )
        settings = experiment.config.training
        milestones = steps_at_shares(settings.keep_at, settings.steps)
        milestones |= permanent_steps(run, settings.keep_at)
        folder = os.path.join(run, CHECKPOINTS)
        manager = CheckpointManager(folder, settings.keep, milestones)
        weights, slots = training_state(pretrainer)
        slots = {} if only_weights else slots
        files = experiment.files()
        return manager.save(step, weights, slots, files, checkpoint.metadata)


def _read_state(folder: pathlib.Path, file: str) -> dict[str, np.ndarray]:
    """Return the trained weights, and the optimizer's variables if present, by path."""
    text = (folder / "description.json").read_text(encoding="utf-8")
    layout = json.loads(text).get("layout")
    with np.load(folder / file) as arrays:
        state = {name: arrays[name] for name in arrays.files}
    return unpack(state, layout) if layout else state


def _restored(checkpoint: Checkpoint, experiment: Experiment) -> Pretrainer:
    """Return the run's model, whose step XLA compiles, in the checkpoint's state."""
    config = experiment.config
    training = dataclasses.replace(config.training, xla="on")
    config = dataclasses.replace(config, training=training)
    pretrainer = dataclasses.replace(experiment, config=config).pretrainer()
    restore(pretrainer, checkpoint)
    return pretrainer


def _check(
    checkpoint: Checkpoint, experiment: Experiment, record_set: RecordSet
) -> None:
    """Raise an InputError for other records, or a step that changes."""
    found = data_fingerprint(record_set, experiment.tokenizer)
    if any(checkpoint.metadata.get(name) != value for name, value in found.items()):
        raise InputError(
            f"The records must be those of the run {checkpoint.path}",
            f"{record_set.total:,} records with another checksum",
            "Pass the --data of its pretrain",
        )
    config = experiment.config
    if len(config.input.phases) > 1 or config.stage_starts:
        raise InputError(
            "A run to move must have one stage and one batch size",
            f"{config.objective.name} with the batch sizes of {config.input.phases}",
            "Train it with electra-tf pretrain",
        )


def read_records(record_set: RecordSet) -> tuple[np.ndarray, ...]:
    """Return ids [N, L], and the ends and the starts of segment B [N]."""
    length, dtype = record_set.max_length, np.uint16
    if record_set.vocabulary_size > np.iinfo(dtype).max:
        dtype = np.int32
    ids_NL = np.zeros((record_set.total, length), dtype)
    ends_N, starts_N = np.zeros((2, record_set.total), np.int32)
    position_L = np.arange(length)
    for number, batch in enumerate(evaluation_batches(record_set, _ROWS)):
        rows = slice(number * _ROWS, min((number + 1) * _ROWS, record_set.total))
        ids_BL, mask_BL, segments_BL = (
            values.numpy()[: rows.stop - rows.start] for values in batch
        )
        ids_NL[rows], ends_N[rows] = ids_BL, mask_BL.sum(1)
        starts_N[rows] = ends_N[rows] - segments_BL.sum(1)
        real_BL = position_L < ends_N[rows, None]
        second_BL = real_BL & (position_L >= starts_N[rows, None])
        if (mask_BL != real_BL).any() or (segments_BL != second_BL).any():
            raise InputError(
                "Records to move must have segment A, segment B and padding in turn",
                f"another order in records {rows.start:,} to {rows.stop:,}",
                "Build them with electra-tf build_records",
            )
    return ids_NL, ends_N, starts_N


def record_order(
    record_set: RecordSet, settings: InputConfig, first: int, steps: int
) -> np.ndarray:
    """Return the numbers of the records of each batch from `first` on, int32 [S, B]."""
    order_SB = np.zeros((steps - first, settings.batch_size), np.int32)
    with tempfile.TemporaryDirectory() as folder:
        numbers = _number_records(record_set, folder)
        batches = training_batches(numbers, settings, first_batch=first)
        for row_B, batch in zip(order_SB, batches.as_numpy_iterator(), strict=False):
            row_B[:] = batch.input_ids_BL[:, 0]
    return order_SB


def _number_records(record_set: RecordSet, folder: str) -> RecordSet:
    """Return as many records, each with its number as the only token."""
    paths, number = [], 0
    for shard, count in enumerate(record_set.counts):
        paths.append(os.path.join(folder, f"{shard:05d}"))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for _ in range(count):
                values = dict.fromkeys(FEATURES, 0) | {FEATURES[0]: number}
                writer.write(_example(values))
                number += 1
    return RecordSet(tuple(paths), record_set.counts, 1, max(2, record_set.total))


def _example(values: dict[str, int]) -> bytes:
    features = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        for name, value in values.items()
    }
    message = tf.train.Example(features=tf.train.Features(feature=features))
    return message.SerializeToString()
