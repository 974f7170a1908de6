import ctypes
import gc
import pathlib
import platform

import pytest

from electra_tf.training.memory import malloc_trim

SIZE, COUNT = 64 * 2**10, 1_000


def resident():
    """Bytes of memory this process holds."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can")
def test_freed_pages_go_back_to_the_system():
    library = ctypes.CDLL(None)
    library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    gc.collect()
    malloc_trim()
    before = resident()
    places = [library.malloc(SIZE) for _ in range(COUNT)]
    for place in places:
        ctypes.memset(place, 1, SIZE)
    for place in places[:-1]:  # the last one keeps the heap from shrinking by itself
        library.free(place)
    held = resident()
    assert held > before + SIZE * COUNT / 2
    malloc_trim()
    assert resident() < held - SIZE * COUNT / 2
    library.free(places[-1])
