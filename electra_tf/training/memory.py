"""What the C library keeps of freed memory, back to the system."""

import ctypes


def malloc_trim() -> None:
    """Returns freed pages that the C library holds on to; not every one can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
