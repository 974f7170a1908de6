"""Convert errors of a full disk to an `InputError`."""

import contextlib
import errno
import re
from collections.abc import Iterator

from electra_tf.errors import InputError, cause_of

_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# TensorFlow's errors have no errno, only the text of the operating system.
_MESSAGES = ("No space left on device", "Disk quota exceeded", "File too large")
_PREFIX = re.compile(r"^\{\{.*?\}\} ")  # name of the TensorFlow operation


@contextlib.contextmanager
def reraise_full_disk(folder: str, remedy: str) -> Iterator[None]:
    """Raise an `InputError` if a block fails to write because the disk is full."""
    try:
        yield
    except Exception as error:  # h5py and TensorFlow have classes of their own
        message = str(error)
        is_full = getattr(error, "errno", None) in _ERRNOS
        if not is_full and not any(text in message for text in _MESSAGES):
            raise
        cause = _PREFIX.sub("", cause_of(error))
        raise InputError(
            f"The disk of {folder!r} is full: {cause}; {remedy}"
        ) from error
