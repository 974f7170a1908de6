"""Return freed memory to the operating system."""

import ctypes


def malloc_trim() -> None:
    """Return freed pages to the system; do nothing if the C library is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
