"""Work in a local copy of a folder of an object store, and upload what has changed."""

import contextlib
import os
import pathlib
from collections.abc import Iterator, Sequence

from electra_tf.storage.cache import Expected, cache_folder, clear, download, url_key
from electra_tf.storage.lease import Lease, is_lease
from electra_tf.storage.objects import ObjectFolder, is_url, split_url
from electra_tf.storage.outputs import local_files, upload

_RUNS, _WORKING, _LOCK = "runs", ".working", ".lock"


@contextlib.contextmanager
def synced(output: str, flag: str, last: Sequence[str] = ()) -> Iterator[str]:
    """Yield a local copy of a folder; upload changes when the block ends or fails."""
    if not is_url(output):
        yield output
        return
    source = ObjectFolder(output)
    folder = cache_folder(_RUNS) / f"{split_url(output)[1]}-{url_key(output)}"
    # A killed process leaves at least its lease. Without any object, the folder was
    # deleted on purpose.
    is_killed = (folder / _WORKING).exists() and bool(source.find())
    with Lease(source, flag) as lease:
        if not is_killed:
            clear(folder)
        found = {n: i for n, i in source.find().items() if not is_lease(n)}
        download(source, {n: Expected(i.size) for n, i in found.items()}, folder)
        old = {} if is_killed else _states(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _WORKING).touch()
        try:
            yield str(folder)
        finally:
            lease.check()
            new = _states(folder)
            changed = [name for name, state in new.items() if old.get(name) != state]
            upload(source, folder, changed, last)
            for name in found.keys() - new.keys():
                source.delete(name)
    clear(folder)


def _states(folder: pathlib.Path) -> dict[str, tuple[int, int]]:
    """Return size and time of the files that are uploaded."""
    states = {}
    for name in local_files(folder):
        if name not in (_WORKING, _LOCK):
            stat = os.stat(folder / name)
            states[name] = stat.st_size, stat.st_mtime_ns
    return states
