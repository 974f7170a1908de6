"""Lock folders of records: trainers read them together, a builder alone.

The lock is on the folder itself, so that no file is written to it. File systems that
cannot lock a folder are used without.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from electra_tf.errors import InputError


@contextlib.contextmanager
def records_lock(folder: str | os.PathLike, exclusive: bool = False) -> Iterator[None]:
    """Lock a folder of records for a block."""
    if not os.path.isdir(folder):
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError as error:
            other = "reads or builds" if exclusive else "builds"
            raise InputError(
                "Records must not be built while another process uses them",
                f"{os.fspath(folder)!r}, which another process {other}",
                "Wait for it or stop it, or use another folder",
            ) from error
        except OSError:  # for example NFS
            pass
        yield
    finally:
        os.close(descriptor)
