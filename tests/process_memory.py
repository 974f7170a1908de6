"""Measure the memory that a part of a program takes."""

import contextlib
import pathlib

_RESET = pathlib.Path("/proc/self/clear_refs")


class PeakMemory:
    """Measure how far this process grows, from the creation on."""

    def __init__(self):
        with contextlib.suppress(OSError):  # the kernel may not allow it
            _RESET.write_text("5")
        self._before = _field("VmRSS")

    @property
    def taken(self) -> int:
        """Bytes of the highest peak since then, above the memory at that time."""
        return _field("VmHWM") - self._before


def mapped() -> int:
    return _field("VmSize")


def _field(name: str) -> int:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(name)
