"""Suggest bfloat16 on devices that multiply it in hardware."""

import pathlib

_FLAGS = {"amx_bf16", "avx512_bf16"}  # of processors
_CAPABILITY = (8, 0)  # of GPUs
_HINT = "mixed_bfloat16 is faster here: --set training.precision=mixed_bfloat16"


def precision_hints(precision: str, cpuinfo: str = "/proc/cpuinfo") -> list[str]:
    """Return a line about a faster precision, if this machine's devices have one."""
    return [_HINT] if precision == "float32" and multiplies_bfloat16(cpuinfo) else []


def multiplies_bfloat16(cpuinfo: str = "/proc/cpuinfo") -> bool:
    """Return whether all GPUs, or else the processor, multiply bfloat16."""
    # Here, so that a program without TensorFlow may ask before it starts a training.
    import tensorflow as tf

    if gpus := tf.config.list_physical_devices("GPU"):
        details = map(tf.config.experimental.get_device_details, gpus)
        return all(one.get("compute_capability", ()) >= _CAPABILITY for one in details)
    path = pathlib.Path(cpuinfo)
    return path.exists() and not _FLAGS.isdisjoint(path.read_text().split())
