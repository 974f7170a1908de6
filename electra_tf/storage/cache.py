"""Fetch objects into a local cache, once, for all processes of a user.

A fetched folder never changes. Its path contains a hash of the URL and of the versions
of its objects, so objects that are replaced are fetched to another path.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.storage.objects import ObjectFolder, ObjectInfo, is_url, split_url

_FETCHED, _PARTIAL, _LOCK = "fetched", ".partial", ".lock"


class Expected(NamedTuple):
    """Required size and checksum of a fetched file."""

    size: int
    sha256: str | None = None
    """None: not known."""


def cache_folder(*names: str) -> pathlib.Path:
    """Create and return a folder of the cache."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = pathlib.Path(base, "electra_tf", *names)
    path.mkdir(parents=True, exist_ok=True)
    return path


def url_key(url: str, *identity: object) -> str:
    """Return a short hash of a URL and of what identifies its content."""
    text = json.dumps([url.rstrip("/"), *identity], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def fetch(
    source: ObjectFolder,
    objects: Mapping[str, ObjectInfo],
    sums: Mapping[str, str] | None = None,
    folder: str | None = None,
) -> str:
    """Return a local folder with some objects, which are downloaded if necessary."""
    versions = {name: [i.size, i.version] for name, i in objects.items()}
    folder = folder or split_url(source.url)[1]
    final = cache_folder(_FETCHED) / url_key(source.url, versions)
    with _locked(f"{final}{_LOCK}"):
        if not final.exists():
            partial = pathlib.Path(f"{final}{_PARTIAL}")
            sums = sums or {}
            expected = {n: Expected(i.size, sums.get(n)) for n, i in objects.items()}
            download(source, expected, partial / folder)
            durable_files.publish(partial, final)
    return str(final)


def local_path(path: str | None) -> str | None:
    """Return the local path of a file or folder, which is fetched if it is at a URL."""
    if path is None or not is_url(path):
        return path
    parent, name = split_url(path)
    source, folder = ObjectFolder(path), ObjectFolder(parent)
    if objects := source.find():
        return os.path.join(fetch(source, objects), name)
    if (info := folder.info(name)) is not None:
        return os.path.join(fetch(folder, {name: info}, folder="."), name)
    raise InputError(
        "A URL must name an object, or a folder of objects",
        f"{path}, where nothing is",
        "Check the URL",
    )


def local_files(pattern: str) -> list[str]:
    """Fetch all objects that a glob matches.

    Returns:
        Paths of the fetched files, which have the names of the objects.
    """
    parent, name = split_url(pattern)
    source = ObjectFolder(parent)
    found = {match: source.info(match) for match in source.glob(name)}
    files = {match: info for match, info in found.items() if info is not None}
    if not files:
        raise InputError(
            "A URL must match objects, at least one",
            f"{pattern}, which matches none",
            "Check the URL; for a folder write 'FOLDER/*.txt' in quotes",
        )
    folder = fetch(source, files, folder=".")
    return [os.path.join(folder, file) for file in files]


def download(
    source: ObjectFolder, files: Mapping[str, Expected], folder: pathlib.Path
) -> None:
    """Download objects to a folder; files that it has already are kept."""
    for name, expected in files.items():
        path = folder / name
        if folder.resolve() not in path.resolve().parents:
            raise InputError(
                "The name of an object must be a path inside its folder",
                source.url_of(name),
                "Rename the object",
            )
        if path.exists():  # of an interrupted download: it was checked
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + _PARTIAL)
        try:
            source.download(name, partial)
            _check(source.url_of(name), partial, expected)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def _check(url: str, path: pathlib.Path, expected: Expected) -> None:
    size = path.stat().st_size
    if size != expected.size:
        received = f"{size:,} bytes"
    elif expected.sha256 and _sha256(path) != expected.sha256:
        received = "another checksum"
    else:
        return
    raise InputError(
        f"{url} must have {expected.size:,} bytes and the checksum of its manifest",
        received,
        "Upload it again, or wait until the process that replaces it is done",
    )


def _sha256(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Let one process of this machine download at a time; the others wait for it."""
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def clear(folder: pathlib.Path) -> None:
    """Delete a folder or a file, if it exists."""
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    else:
        folder.unlink(missing_ok=True)
