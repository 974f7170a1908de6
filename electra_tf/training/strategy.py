"""Choose the distribution strategy."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from electra_tf.errors import InputError, cause_of
from electra_tf.training.workers import (
    addresses_in,
    host_of,
    limited_registration,
    place_in,
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
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
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
        with _reading_tf_config():
            if tpu is not None:
                name = "tpu"
            elif len(addresses_in(resolver)) > 1:
                name = "multi_worker"
    if name == "tpu":
        return _tpu(tpu or "local")
    if name == "multi_worker":
        return _multi_worker(resolver)
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


def _multi_worker(resolver: Any) -> tf.distribute.Strategy:
    with _reading_tf_config():
        own, workers = place_in(resolver)
    print(f"waiting for all workers: {', '.join(workers)}", flush=True)
    wait_for_workers(workers, own)
    with _reading_tf_config(), limited_registration():
        return tf.distribute.MultiWorkerMirroredStrategy(resolver)


@contextlib.contextmanager
def _reading_tf_config() -> Iterator[None]:
    """Raise an InputError for a TF_CONFIG that TensorFlow does not take."""
    try:
        yield
    except (ValueError, TypeError, RecursionError, tf.errors.OpError) as error:
        raise InputError(
            'TF_CONFIG must be {"cluster": {"worker": ["host:port", ...]}, "task": '
            '{"type": "worker", "index": 0}}, with the addresses of all workers and '
            f"the index of this one: {error!s:.300}"
        ) from error


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
