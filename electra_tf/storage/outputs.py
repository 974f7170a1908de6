"""Write outputs to local files, then upload them, the one that completes them last."""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Container, Iterator, Sequence

from electra_tf.errors import InputError
from electra_tf.storage.cache import cache_folder
from electra_tf.storage.objects import ObjectFolder, is_url, split_url

_OUTPUTS = "outputs"


@contextlib.contextmanager
def staged(
    output: str | None, last: Sequence[str] = (), keep: Container[str] = ()
) -> Iterator[str | None]:
    """Yield a local path whose content is uploaded if the block succeeds."""
    if not is_url(output):
        yield output
        return
    parent, name = split_url(output)
    with temporary_folder() as folder:
        yield os.path.join(folder, name)
        files = local_files(folder)
        beside = [path for path in files if path.split("/")[0] != name]
        inside = [path for path in files if path.split("/")[0] == name]
        inside = [p for p in inside if p.removeprefix(f"{name}/") not in keep]
        upload(ObjectFolder(parent), folder, [*beside, *inside], last)


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:
    """Yield a folder of the cache's file system that is deleted after the block."""
    with tempfile.TemporaryDirectory(dir=cache_folder(_OUTPUTS)) as folder:
        yield folder


def upload(
    target: ObjectFolder,
    folder: str | os.PathLike,
    names: Sequence[str],
    last: Sequence[str] = (),
) -> None:
    """Upload files of a folder."""
    ranks = {name: rank for rank, name in enumerate(last)}
    for name in sorted(names, key=lambda n: ranks.get(os.path.basename(n), -1)):
        target.upload(os.path.join(folder, name), name)


def local_files(folder: str | os.PathLike) -> list[str]:
    """Return the paths of all files in a folder and its subfolders, sorted."""
    paths = (path for path in pathlib.Path(folder).rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def check_new(output: str | None, flag: str, remedy: str) -> None:
    """Raise an error if a URL of an output has objects."""
    if not is_url(output):
        return
    parent, name = split_url(output)
    is_object = ObjectFolder(parent).info(name) is not None
    if is_object or ObjectFolder(output).find():
        raise InputError(f"{flag} must not exist", output, remedy)
