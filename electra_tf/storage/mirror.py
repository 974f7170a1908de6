"""Copy between object stores and local files, which the layers above read and write."""

import contextlib
import hashlib
import json
import os
import pathlib
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from electra_tf import durable_files
from electra_tf.durable_files import PARTIAL, Path
from electra_tf.errors import InputError
from electra_tf.storage.objects import ObjectFolder, ObjectInfo, is_url, split_url

_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
_FETCHED, _OUTPUTS, _LOCK = "fetched", "outputs", ".lock"


class Expected(NamedTuple):
    """Required size and checksum of a pulled file."""

    size: int
    sha256: str | None = None  # None: not known


def cache_folder(*names: str) -> pathlib.Path:
    """Create and return a folder of the cache."""
    home = os.path.expanduser("~")
    if home == "~":  # without HOME, of a user without an entry in the table of users
        home = tempfile.gettempdir()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    path = pathlib.Path(base, "electra_tf", *names)
    path.mkdir(parents=True, exist_ok=True)
    return path


def temporary_folder() -> tempfile.TemporaryDirectory:
    """Return a temporary folder in the file system of the cache."""
    return tempfile.TemporaryDirectory(dir=cache_folder(_OUTPUTS))


def pull(source: ObjectFolder, files: Mapping[str, Expected], folder: Path) -> None:
    """Download objects to a folder; files that it has already are kept."""
    folder = pathlib.Path(folder)
    for name, expected in files.items():
        path, url = folder / name, source.url_of(name)
        if folder.resolve() not in path.resolve().parents:
            raise InputError(f"The name of {url} must be a path inside its folder")
        if path.exists():  # of an interrupted download: it was checked
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with durable_files.unfinished(path) as partial:
            source.download(name, partial)
            size, sha256 = os.path.getsize(partial), expected.sha256
            if size != expected.size:
                damage = f"{size:,} bytes in place of {expected.size:,}"
            elif sha256 and sha256 != durable_files.sha256(partial):
                damage = "another checksum than that of its manifest"
            else:
                continue
            raise InputError(f"{url} is damaged, or being replaced: {damage}")


def push(
    target: ObjectFolder, folder: Path, names: Sequence[str], last: Sequence[str] = ()
) -> None:
    """Upload files of a folder, those of the base names `last` after all others."""
    ranks = {name: rank for rank, name in enumerate(last)}
    for name in sorted(names, key=lambda n: ranks.get(os.path.basename(n), -1)):
        target.upload(os.path.join(folder, name), name)


def files_in(folder: Path) -> list[str]:
    """Return the paths of all files in a folder and its subfolders, sorted."""
    paths = (path for path in pathlib.Path(folder).rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def fetch(
    source: ObjectFolder,
    objects: Mapping[str, ObjectInfo],
    sums: Mapping[str, str] | None = None,
    folder: str | None = None,
) -> str:
    """Return a local folder with some objects, once for all processes of a user.

    Its path contains a hash of the URL and of the versions of the objects, so objects
    that are replaced are fetched to another path. The objects, with their SHA-256 in
    `sums`, are in its subfolder `folder`, by default the last part of the URL.
    """
    versions = {name: [i.size, i.version] for name, i in objects.items()}
    key = json.dumps([source.url, versions], sort_keys=True).encode()
    final = cache_folder(_FETCHED) / hashlib.sha256(key).hexdigest()[:20]
    with durable_files.locked(f"{final}{_LOCK}"):
        if not final.exists():
            partial, sums = pathlib.Path(f"{final}{PARTIAL}"), sums or {}
            expected = {n: Expected(i.size, sums.get(n)) for n, i in objects.items()}
            pull(source, expected, partial / (folder or split_url(source.url)[1]))
            durable_files.publish(partial, final)
    return str(final)


def local_path(path: str | None) -> str | None:
    """Return the local path of a file or folder, which is fetched if it is at a URL."""
    if path is None or not is_url(path):
        return path
    parent, name = split_url(path)
    if objects := ObjectFolder(path).find():
        return os.path.join(fetch(ObjectFolder(path), objects), name)
    if (info := ObjectFolder(parent).info(name)) is not None:
        files = {name: info}
        return os.path.join(fetch(ObjectFolder(parent), files, folder="."), name)
    raise InputError(f"{path} must name an object, or a folder of objects")


def local_glob(pattern: str) -> list[str]:
    """Fetch all objects that a glob matches; return the paths of the local files."""
    parent, name = split_url(pattern)
    source = ObjectFolder(parent)
    infos = {match: source.info(match) for match in source.glob(name)}
    files = {match: info for match, info in infos.items() if info is not None}
    if not files:
        raise InputError(f"{pattern} matches no object; of a folder write 'FOLDER/*'")
    folder = fetch(source, files, folder=".")
    return [os.path.join(folder, file) for file in files]


def check_new(output: str | None, flag: str, remedy: str = "pass another") -> None:
    """Raise an error if a URL of an output has objects."""
    if not is_url(output):
        return
    parent, name = split_url(output)
    is_object = ObjectFolder(parent).info(name) is not None
    if is_object or ObjectFolder(output).find():
        raise InputError(f"{flag} {output} exists; {remedy}")


def check_new_folder(path: str, argument: str, remedy: str = "pass another") -> None:
    """Raise an error unless a folder can be created, or an empty one be written."""
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise InputError(f"{argument} {path!r} exists; {remedy}")
    folder = path
    while not os.path.exists(folder):
        folder = os.path.dirname(folder) or os.curdir
    # The superuser may write to each folder; a rename would replace a locked one.
    is_locked = not os.stat(folder).st_mode & _WRITABLE
    if is_locked or not os.access(folder, os.W_OK) or not os.path.isdir(folder):
        raise InputError(
            f"{argument} must be a folder that can be written, not {path!r}: "
            f"{folder!r} cannot"
        )


@contextlib.contextmanager
def staged(output: str | None, last: Sequence[str] = ()) -> Iterator[str | None]:
    """Yield a local path whose content is uploaded if the block succeeds."""
    if not is_url(output):
        yield output
        return
    parent, name = split_url(output)
    with temporary_folder() as folder:
        yield os.path.join(folder, name)
        names = sorted(files_in(folder), key=lambda n: n.split("/")[0] == name)
        push(ObjectFolder(parent), folder, names, last)  # files beside it first


@contextlib.contextmanager
def synced(output: str, last: Sequence[str] = ()) -> Iterator[str]:
    """Yield a local copy of a folder; upload changes when the block ends or fails."""
    if not is_url(output):
        yield output
        return
    source = ObjectFolder(output)
    with temporary_folder() as folder:
        objects = source.find()
        pull(source, {n: Expected(i.size) for n, i in objects.items()}, folder)
        old = _file_states(folder)
        try:
            yield folder
        finally:
            new = _file_states(folder)
            new.pop(_LOCK, None)
            changed = [name for name, state in new.items() if old.get(name) != state]
            push(source, folder, changed, last)
            for name in objects.keys() - new.keys():
                source.delete(name)


def _file_states(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of all files in a folder."""
    states = {name: os.stat(os.path.join(folder, name)) for name in files_in(folder)}
    return {name: (state.st_size, state.st_mtime_ns) for name, state in states.items()}
