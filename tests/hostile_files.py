"""Check that hostile files are refused."""

import tracemalloc

import pytest
from conftest import GOLDEN as ALL_GOLDEN

from electra_tf.errors import InputError

GOLDEN = ALL_GOLDEN / "interop"
MEMORY = 64 * 2**20  # bytes that a refusal may take at most


def refused(read, path, *names):
    """Check that a file is refused by name, in little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            read(str(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    for name in (str(path), *names):
        assert name in message
    assert peak < MEMORY, f"{peak:,} bytes"
