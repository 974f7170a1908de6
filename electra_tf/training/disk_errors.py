"""Turn the errors of a full disk into one paragraph."""

import contextlib
import errno
import re
from collections.abc import Iterator

import tensorflow as tf

from electra_tf.errors import InputError

_CODES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# TensorFlow has no codes of its own for these, but the system's words.
_WORDS = ("No space left on device", "Disk quota exceeded", "File too large")

_PREFIX = re.compile(r"^\{\{.*?\}\} ")  # the name of TensorFlow's operation


@contextlib.contextmanager
def reraise_full_disk(folder: str, remedy: str) -> Iterator[None]:
    """Raise an `InputError` where a block cannot write because the disk is full.

    Args:
        folder: Where the block writes.
        remedy: The advice of the message.

    Raises:
        InputError: The disk is full, a quota is used up, or a file is too large.
    """
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        words = str(error)
        full = getattr(error, "errno", None) in _CODES
        if not full and not any(word in words for word in _WORDS):
            raise
        raise InputError(
            f"The disk of {folder!r} must have room for the files",
            _PREFIX.sub("", words.strip().splitlines()[0])[:300],
            remedy,
        ) from error
