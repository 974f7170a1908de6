"""Read, write and list objects by URL, through fsspec.

One interface serves s3://, gs://, az://, local folders and every other store that has a
package for fsspec. Writing an object replaces it at once: a reader gets the old bytes
or the new.
"""

import contextlib
import dataclasses
import io
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from electra_tf import durable_files
from electra_tf.durable_files import PARTIAL
from electra_tf.errors import InputError, cause_of

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_EXTRAS = {
    **{"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"},
    **{"http": "http", "https": "http"},
}
# Values of fsspec's `info` that change with the content, in order of preference.
_VERSIONS = ("ETag", "etag", "generation", "md5Hash", "mtime", "created", "updated")


def is_url(path: str | os.PathLike | None) -> bool:
    """Return whether a path is a URL of an object store, or of local files."""
    return path is not None and _URL.match(os.fspath(path)) is not None


def split_url(url: str) -> tuple[str, str]:
    """Return the folder of a URL and its last part, without a slash at the end."""
    folder, _, name = url.rstrip("/").rpartition("/")
    if folder.endswith("/") or not name:
        raise InputError(f"{url} must name something in a bucket: s3://BUCKET/NAME")
    return folder, name


@dataclasses.dataclass(frozen=True)
class ObjectInfo:
    """Size and version of an object."""

    size: int
    version: str  # changes whenever the object is written


class ObjectFolder:
    """Objects whose names begin with a URL or a local path; a name is relative to it.

    Every error of a store is an InputError that names the object; local paths raise
    OSError.
    """

    def __init__(self, url: str):
        self.url = url.rstrip("/")
        self._fs, self._path = _open(self.url)

    def __truediv__(self, name: str) -> "ObjectFolder":
        return ObjectFolder(f"{self.url}/{name}")

    def url_of(self, name: str) -> str:
        """Return the URL of an object."""
        return f"{self.url}/{name}"

    def find(self) -> dict[str, ObjectInfo]:
        """Return all objects by name, those in subfolders included."""
        with self._errors("list", self.url):
            try:
                found = self._fs.find(self._path, detail=True)
            except FileNotFoundError:
                return {}
        names = {path[len(self._path) :].lstrip("/"): i for path, i in found.items()}
        return {
            name: _object_info(info)
            for name, info in sorted(names.items())
            # Some stores list a folder as an object of 0 bytes, `name/`.
            if name and not name.endswith(("/", PARTIAL))
        }

    def glob(self, pattern: str) -> list[str]:
        """Return the names that a name or a glob matches, sorted."""
        if self.info(pattern) is not None:  # a name may contain "[" or "*"
            return [pattern]
        with self._errors("list", self.url_of(pattern)):
            paths = self._fs.glob(self._at(pattern))
        return sorted(path[len(self._path) :].lstrip("/") for path in paths)

    def info(self, name: str) -> ObjectInfo | None:
        """Return size and version of an object; None: there is none of this name."""
        with self._errors("read", self.url_of(name)):
            try:
                info = self._fs.info(self._at(name))
            except FileNotFoundError:
                return None
        return _object_info(info) if info["type"] == "file" else None

    def read(self, name: str) -> bytes | None:
        """Return the content of an object; None: there is none of this name."""
        with self._errors("read", self.url_of(name)):
            try:
                return self._fs.cat_file(self._at(name))
            except (FileNotFoundError, IsADirectoryError):
                return None

    def open(self, name: str) -> BinaryIO:
        """Open an object for reading; errors while reading are those of its store."""
        with self._errors("read", self.url_of(name)):
            file = self._fs.open(self._at(name), "rb")
        return io.BufferedReader(file)

    def write(self, name: str, content: bytes) -> None:
        """Create or replace an object."""
        self._put(name, lambda path: self._fs.pipe_file(path, content))

    def upload(self, path: str | os.PathLike, name: str) -> None:
        """Create or replace an object with the content of a file."""
        self._put(name, lambda target: self._fs.put_file(os.fspath(path), target))

    def _put(self, name: str, write: Callable[[str], None]) -> None:
        path = self._at(name)
        with self._errors("write", self.url_of(name)):
            if not self._is_local:
                write(path)
                return
            os.makedirs(os.path.dirname(path), exist_ok=True)
            suffix = f".{uuid.uuid4().hex}{PARTIAL}"
            with durable_files.unfinished(path, suffix) as partial:
                write(partial)

    def download(self, name: str, path: str | os.PathLike) -> None:
        """Write the content of an object to a file."""
        with self._errors("read", self.url_of(name)):
            self._fs.get_file(self._at(name), os.fspath(path))

    def move(self, names: Mapping[str, str]) -> None:
        """Rename objects, from old names to new ones, which are replaced."""
        old, new = (list(map(self._at, side)) for side in (names, names.values()))
        with self._errors("move", self.url):
            if self._is_local:
                for source, target in zip(old, new, strict=True):
                    os.replace(source, target)
                durable_files.sync_folder(self._path)
            elif names:
                self._fs.mv(old, new)

    def delete(self, name: str) -> None:
        """Delete an object, if it exists."""
        missing = contextlib.suppress(FileNotFoundError)
        with self._errors("delete", self.url_of(name)), missing:
            self._fs.rm_file(self._at(name))

    def clear(self) -> None:
        """Delete all objects, and a local folder itself."""
        with self._errors("delete", self.url), contextlib.suppress(FileNotFoundError):
            self._fs.rm(self._path, recursive=True)

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    @property
    def _is_local(self) -> bool:
        return "file" in self._fs.protocol

    @contextlib.contextmanager
    def _errors(self, action: str, url: str) -> Iterator[None]:
        """Raise the errors of stores, whose classes have no common base."""
        try:
            yield
        except Exception as error:
            if isinstance(error, InputError) or not is_url(self.url):
                raise
            raise InputError(
                f"The object store does not let this process {action} {url}: "
                f"{type(error).__name__}: {cause_of(error)}; check the network and the "
                "credentials, then run the same command again"
            ) from error


def _open(url: str) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, without a cache of listings."""
    import fsspec.core

    try:
        return fsspec.core.url_to_fs(url, use_listings_cache=False)
    except Exception as error:  # as in `_errors`
        cause, extra = error, _EXTRAS.get(url.partition("://")[0])
        if isinstance(error, ImportError) and extra:
            cause = f"its packages are missing; pip install 'electra_tf[{extra}]'"
        raise InputError(f"{url} cannot be opened: {cause}") from error


def _object_info(info: dict[str, Any]) -> ObjectInfo:
    version = next((info[key] for key in _VERSIONS if info.get(key) is not None), "")
    return ObjectInfo(int(info["size"]), str(version))
