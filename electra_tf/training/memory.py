"""Return freed memory to the operating system."""

import ctypes


def malloc_trim() -> None:
    """Return freed pages of glibc; other C libraries: do nothing."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
