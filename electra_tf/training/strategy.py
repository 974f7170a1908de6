"""Choose the distribution strategy."""

import json
import os

import tensorflow as tf

from electra_tf.errors import InputError

NAMES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")


def choose(
    name: str = "auto", tpu: str | None = None, cpu_replicas: int = 1
) -> tf.distribute.Strategy:
    """Create the strategy; call this before TensorFlow initializes a device.

    Args:
        name: One of NAMES. `auto`: the TPU that is named; several workers where
            TF_CONFIG names them; all GPUs where there are several; else one device.
        tpu: A TPU's name or address, `local` for the one of this machine.
        cpu_replicas: How many replicas the CPU is split into for `mirrored` where
            there is no GPU, to try distribution out.

    Returns:
        The strategy.

    Raises:
        InputError: The devices are not there, or contradict each other.
    """
    if tpu is not None and name not in ("auto", "tpu"):
        raise InputError(
            "--tpu goes with --strategy=tpu or auto", f"--strategy={name}", "Drop one"
        )
    if cpu_replicas > 1:
        _split_cpu(cpu_replicas, name)
    if name == "auto":
        name = _auto_name(tpu)
    if name == "tpu":
        return _tpu(tpu or "local")
    if name == "multi_worker":
        return _multi_worker()
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    if name == "mirrored":
        cpus = [device.name for device in tf.config.list_logical_devices("CPU")]
        return tf.distribute.MirroredStrategy(gpus or cpus)
    return tf.distribute.OneDeviceStrategy((gpus or ["/device:CPU:0"])[0])


def check_batch(strategy: tf.distribute.Strategy, batch_size: int, parts: int) -> None:
    """Raise an InputError unless a batch divides evenly among replicas and parts.

    Args:
        strategy: The replicas.
        batch_size: Rows of a global batch.
        parts: Accumulation parts of each replica.
    """
    shares = strategy.num_replicas_in_sync * parts
    if batch_size % shares:
        below = batch_size // shares * shares
        raise InputError(
            f"A batch is shared equally by {strategy.num_replicas_in_sync} replicas"
            + (f", each in {parts} parts" if parts > 1 else ""),
            f"input.batch_size {batch_size}",
            f"Set input.batch_size={below or shares} or {below + shares}",
        )


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Return whether this process is the chief, the only worker that writes."""
    resolver = strategy.cluster_resolver
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return True
    return resolver.task_type in (None, "chief") or (
        resolver.task_type == "worker"
        and resolver.task_id == 0
        and "chief" not in resolver.cluster_spec().jobs
    )


def _auto_name(tpu: str | None) -> str:
    if tpu is not None:
        return "tpu"
    if len(_workers()) > 1:
        return "multi_worker"
    several = len(tf.config.list_physical_devices("GPU")) > 1
    return "mirrored" if several else "one_device"


def _workers() -> list[str]:
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
        return [*cluster.get("chief", []), *cluster.get("worker", [])]
    except (ValueError, AttributeError) as error:
        raise _bad_tf_config(str(error)) from error


def _multi_worker() -> tf.distribute.Strategy:
    if not _workers():
        raise _bad_tf_config("no TF_CONFIG that names a worker")
    try:
        print(f"waiting for all workers: {', '.join(_workers())}", flush=True)
        return tf.distribute.MultiWorkerMirroredStrategy()
    except (ValueError, TypeError, tf.errors.OpError) as error:
        raise _bad_tf_config(str(error)) from error


def _bad_tf_config(arrived: str) -> InputError:
    return InputError(
        "For several workers, the variable TF_CONFIG tells each of them the addresses "
        "of all and its own place, and all are started",
        arrived[:300],
        'Set it to {"cluster": {"worker": ["host:port", ...]}, "task": {"type": '
        '"worker", "index": 0}}, with another index for each, or unset it',
    )


def _split_cpu(replicas: int, name: str) -> None:
    if name != "mirrored" or tf.config.list_physical_devices("GPU"):
        raise InputError(
            "--cpu_replicas goes with --strategy=mirrored where there is no GPU",
            f"--cpu_replicas={replicas} with --strategy={name}, on "
            f"{len(tf.config.list_physical_devices('GPU'))} GPUs",
            "Drop --cpu_replicas, or pass --strategy=mirrored",
        )
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(replicas)]
    tf.config.set_logical_device_configuration(cpu, parts)


def _tpu(name: str) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError, OSError) as error:
        words = str(error).strip().splitlines()
        where = "this machine" if name == "local" else name
        raise InputError(
            f"There is a TPU at {where}, and TensorFlow was built for it "
            "(pip install tensorflow-tpu on a TPU VM)",
            words[0][:200] if words else type(error).__name__,
            "Run on a TPU VM, name another TPU with --tpu=NAME, or train without: "
            "--strategy=auto takes the GPUs or the CPU that are there",
        ) from error
