import ctypes
import gc
import pathlib
import platform

import pytest

from electra_tf.training.memory import malloc_trim

SIZE, COUNT = 64 * 2**10, 1_000


def resident_bytes():
    """Return the resident memory of this process in bytes."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_malloc_trim_returns_freed_pages():
    library = ctypes.CDLL(None)
    library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    gc.collect()
    malloc_trim()
    before = resident_bytes()
    addresses = [library.malloc(SIZE) for _ in range(COUNT)]
    for address in addresses:
        ctypes.memset(address, 1, SIZE)
    for address in addresses[
        :-1
    ]:  # the last block keeps the heap from shrinking by itself
        library.free(address)
    allocated = resident_bytes()
    assert allocated > before + SIZE * COUNT / 2
    malloc_trim()
    assert resident_bytes() < allocated - SIZE * COUNT / 2
    library.free(addresses[-1])
