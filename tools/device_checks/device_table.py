"""Properties of the devices that the train step can be compiled for.

Figures are the makers': Google Cloud's TPU documentation, NVIDIA's data sheets, and for
the limits of kernels the CUDA programming guide.
"""

import dataclasses
import importlib.metadata
import sys

# Limits of kernels, the same for all CUDA devices below.
_CUDA_LIMITS = {
    "threads_per_warp": 32,
    "threads_per_block_limit": 1024,
    "threads_per_core_limit": 2048,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 2**16 - 1,
    "block_dim_limit_z": 2**16 - 1,
    "registers_per_core_limit": 2**16,
    "registers_per_block_limit": 2**16,
    "shared_memory_per_block": 48 * 2**10,
}


@dataclasses.dataclass(frozen=True)
class Cuda:
    """Properties of a GPU that the compiler needs beside those of `Device`."""

    name: str
    capability: int
    """Major version of the compute capability."""
    cores: int
    """Streaming multiprocessors."""
    units: int
    """float32 units of a multiprocessor."""
    shared_memory: int
    """Bytes of a multiprocessor."""
    cache: int
    """Bytes of the L2 cache."""
    clock: float
    """GHz, at most."""


@dataclasses.dataclass(frozen=True)
class Device:
    """Properties of one device."""

    memory: int
    """Bytes."""
    bandwidth: float
    """Bytes of memory per second."""
    peaks: dict[str, float]
    """FLOPs per second of matmuls by type of the operands."""
    cuda: Cuda | None = None
    """Properties of a GPU; None: a TPU."""

    def target_config(self, runtime: str = "") -> str:
        """Return XLA's description of the GPU, with the installed libraries.

        `runtime` is a version of CUDA, if not the installed one.
        """
        cuda = self.cuda
        limits = _CUDA_LIMITS | {
            "core_count": cuda.cores,
            "fpus_per_core": cuda.units,
            "shared_memory_per_core": cuda.shared_memory,
            # The driver keeps 1 KiB of each multiprocessor's shared memory.
            "shared_memory_per_block_optin": cuda.shared_memory - 2**10,
            "l2_cache_size": cuda.cache,
            "clock_rate_ghz": cuda.clock,
            "device_memory_size": self.memory,
            "memory_bandwidth": int(self.bandwidth),
        }
        fields = " ".join(f"{name}: {value}" for name, value in limits.items())
        version = importlib.metadata.version
        cudnn = _fields(version("nvidia-cudnn-cu13"))
        runtime = _fields(runtime or version("nvidia-cuda-runtime"))
        return (
            f"gpu_device_info {{ {fields} "
            f"cuda_compute_capability {{ major: {cuda.capability} }} }} "
            f'platform_name: "CUDA" dnn_version_info {{ {cudnn} }} '
            f'runtime_version {{ {runtime} }} device_description_str: "{cuda.name}"'
        )


def _fields(version: str) -> str:
    """Return a version as fields of a text protocol buffer."""
    pairs = zip(("major", "minor", "patch"), version.split("."), strict=False)
    return " ".join(f"{name}: {int(part)}" for name, part in pairs)


def _tpu(gib: int, gb_per_second: float, tera: float) -> Device:
    # The matrix unit rounds float32 operands to bfloat16 at XLA's default precision.
    peaks = {"bf16": tera * 1e12, "f32": tera * 1e12}
    return Device(gib * 2**30, gb_per_second * 1e9, peaks)


DEVICES = {
    "v4": _tpu(32, 1228, 275),
    "v5e": _tpu(16, 819, 197),
    "v5p": _tpu(95, 2765, 459),
    "v6e": _tpu(32, 1640, 918),
    # float32 operands are rounded to TF32.
    "h100": Device(
        79 * 2**30,
        3350e9,
        {"bf16": 989e12, "f32": 495e12},
        Cuda("NVIDIA H100 80GB HBM3", 9, 132, 128, 228 * 2**10, 50 * 2**20, 1.98),
    ),
    "a100": Device(
        79 * 2**30,
        2039e9,
        {"bf16": 312e12, "f32": 156e12},
        Cuda("NVIDIA A100-SXM4-80GB", 8, 108, 64, 164 * 2**10, 40 * 2**20, 1.41),
    ),
}
"""Devices by the name before the colon of `--topology`."""

if __name__ == "__main__":
    print(DEVICES[sys.argv[1]].target_config(sys.argv[2]))
