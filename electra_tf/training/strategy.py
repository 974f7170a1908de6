"""Choose the distribution strategy."""

import json
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from electra_tf.errors import InputError, cause_of
from electra_tf.training.workers import (
    host_of,
    limited_registration,
    wait_for_workers,
)


def choose(
    name: str = "auto", tpu: str | None = None, cpu_replicas: int = 1
) -> tf.distribute.Strategy:
    """Create the distribution strategy, before TensorFlow initializes a device."""
    if tpu is not None and name not in ("auto", "tpu"):
        raise InputError(
            f"--tpu={tpu} must be used with --strategy=tpu or auto, not {name}"
        )
    gpus = tf.config.list_physical_devices("GPU")
    if cpu_replicas > 1:
        if name != "mirrored" or gpus:
            raise InputError(
                f"--cpu_replicas={cpu_replicas} must be used with --strategy=mirrored "
                f"and without GPUs, not with --strategy={name} and {len(gpus)} GPUs"
            )
        cpu = tf.config.list_physical_devices("CPU")[0]
        devices = [tf.config.LogicalDeviceConfiguration() for _ in range(cpu_replicas)]
        tf.config.set_logical_device_configuration(cpu, devices)
    if name == "auto":
        name = "mirrored" if len(gpus) > 1 else "one_device"
        if tpu is not None or len(_workers()) > 1:
            name = "multi_worker" if tpu is None else "tpu"
    if name == "tpu":
        return _tpu(tpu or "local")
    if name == "multi_worker":
        return _multi_worker()
    names = [device.name for device in tf.config.list_logical_devices("GPU")]
    if name == "mirrored":
        cpus = [device.name for device in tf.config.list_logical_devices("CPU")]
        return tf.distribute.MirroredStrategy(names or cpus)
    return tf.distribute.OneDeviceStrategy((names or ["/device:CPU:0"])[0])


def check_batch(
    strategy: tf.distribute.Strategy, batch_size: int, accumulation: int
) -> None:
    """Raise an InputError unless a batch divides evenly into micro-batches."""
    replicas = strategy.num_replicas_in_sync
    divisor = replicas * accumulation
    if batch_size % divisor:
        below = batch_size // divisor * divisor
        raise InputError(
            f"input.batch_size {batch_size} must be divisible by the {replicas} "
            "replicas"
            + f" times training.accumulation={accumulation}" * (accumulation > 1)
            + f"; set input.batch_size={below or divisor} or {below + divisor}"
        )


def iterate(
    strategy: tf.distribute.Strategy,
    make_batches: Callable[[int, int], tf.data.Dataset],
) -> Any:
    """Return an endless iterator of this process's rows of each batch.

    `make_batches` is a function of the host and the number of hosts.

    A distributed iterator would wait at its end for up to a minute, for the autotuning
    thread of a dataset of its own.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    batches = make_batches(*host_of(strategy)).repeat()
    return iter(batches.with_options(options))


def timed_batch(iterator: Any) -> tuple[Any, tf.Tensor]:
    """Return the next batch and the seconds of waiting for it, within a function."""
    begin = tf.timestamp()
    with tf.control_dependencies([begin]):
        batch = iterator.get_next()
    with tf.control_dependencies(tf.nest.flatten(batch)):
        return batch, tf.timestamp() - begin


def _workers() -> list[str]:
    """Return the addresses of all workers in TF_CONFIG, the chief's first."""
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
        return [*cluster.get("chief", []), *cluster.get("worker", [])]
    except (ValueError, AttributeError, RecursionError) as error:
        raise _bad_tf_config(str(error)) from error


def _multi_worker() -> tf.distribute.Strategy:
    workers = _workers()
    if not workers:
        raise _bad_tf_config("no TF_CONFIG, or one without workers")
    print(f"waiting for all workers: {', '.join(workers)}", flush=True)
    if (own := _own_number(workers)) is not None:
        wait_for_workers(workers, own)
    try:
        with limited_registration():
            return tf.distribute.MultiWorkerMirroredStrategy()
    except (ValueError, TypeError, tf.errors.OpError) as error:
        raise _bad_tf_config(str(error)) from error


def _own_number(workers: list[str]) -> int | None:
    """Return the place of this worker in `_workers`; None: TensorFlow has an error."""
    config = json.loads(os.environ["TF_CONFIG"])
    try:
        jobs, task = config["cluster"], config["task"]
        addresses, index = jobs[task["type"]], int(task["index"])
        is_valid = all(isinstance(job, list) for job in jobs.values()) and index >= 0
        return workers.index(addresses[index]) if is_valid else None
    except (KeyError, TypeError, ValueError, IndexError):
        return None


def _bad_tf_config(received: str) -> InputError:
    return InputError(
        'TF_CONFIG must be {"cluster": {"worker": ["host:port", ...]}, "task": '
        '{"type": "worker", "index": 0}}, with the addresses of all workers and the '
        f"index of this one: {received[:300]}"
    )


def _tpu(name: str) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError, OSError) as error:
        cause = cause_of(error).partition(". ")[0]
        raise InputError(
            f"--tpu={name} must be an available TPU, and TensorFlow must support TPUs "
            f"(pip install tensorflow-tpu on a TPU VM): {cause}; without --tpu it "
            "trains on GPUs or the CPU"
        ) from error
