"""Errors of a full disk become an InputError; other errors do not."""

import errno

import pytest
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.training.disk_errors import reraise_full_disk

FULL = (
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EFBIG, "File too large"),
    tf.errors.ResourceExhaustedError(None, None, "x/y; No space left on device"),
)
OTHERS = (
    OSError(errno.EACCES, "Permission denied"),
    tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"),
)


@pytest.mark.parametrize("error", FULL)
def test_a_full_disk_is_an_input_error(error):
    with (
        pytest.raises(InputError, match=r"'out' is full: .*[Nto]o .*; free it"),
        reraise_full_disk("out", "free it"),
    ):
        raise error


def test_an_error_without_text_is_named():
    error = OSError()
    error.errno = errno.ENOSPC
    with pytest.raises(InputError, match="OSError"), reraise_full_disk("out", "free"):
        raise error


@pytest.mark.parametrize("error", OTHERS)
def test_other_errors_are_unchanged(error):
    with pytest.raises(type(error)), reraise_full_disk("out", "free it"):
        raise error
