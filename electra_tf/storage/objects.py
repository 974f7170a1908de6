"""Read, write and list objects by URL, through fsspec.

One interface serves s3://, gs://, az:// and every other store that has a package for
fsspec. Writing an object replaces it at once: a reader gets the old bytes or the new.
"""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator
from typing import Any

from electra_tf import durable_files
from electra_tf.errors import InputError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
# Values of fsspec's `info` that change with the content, in order of preference.
_VERSIONS = ("ETag", "etag", "generation", "md5Hash", "mtime", "created", "updated")
_PARTIAL = ".partial"
_REMEDY = (
    "Check the URL, the network and the credentials (docs/scaling.md, Object storage), "
    "then run the same command again"
)


def is_url(path: str | os.PathLike | None) -> bool:
    """Return whether a path is a URL of an object store, or of local files."""
    return path is not None and _URL.match(os.fspath(path)) is not None


def split_url(url: str) -> tuple[str, str]:
    """Return the folder of a URL and its last part, without a slash at the end."""
    folder, _, name = url.rstrip("/").rpartition("/")
    if folder.endswith("/") or not name:
        raise InputError(
            "A URL must name something in a bucket", url, "Write s3://BUCKET/NAME"
        )
    return folder, name


@dataclasses.dataclass(frozen=True)
class ObjectInfo:
    """Size and version of an object."""

    size: int
    version: str
    """Changes whenever the object is written."""


class ObjectFolder:
    """Objects whose names begin with a URL; a name is relative to it."""

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
            if name and not name.endswith(("/", _PARTIAL))
        }

    def glob(self, pattern: str) -> list[str]:
        """Return the names that match a glob, sorted."""
        with self._errors("list", self.url_of(pattern)):
            paths = self._fs.glob(f"{self._path}/{pattern}")
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

    def write(self, name: str, content: bytes) -> None:
        """Create or replace an object."""
        with self._errors("write", self.url_of(name)):
            if self._is_local:
                with self._replacing(name) as file:
                    file.write(content)
            else:
                self._fs.pipe_file(self._at(name), content)

    def upload(self, path: str | os.PathLike, name: str) -> None:
        """Create or replace an object with the content of a file."""
        with self._errors("write", self.url_of(name)):
            if self._is_local:
                with self._replacing(name) as file, open(path, "rb") as source:
                    while block := source.read(1 << 22):
                        file.write(block)
            else:
                self._fs.put_file(os.fspath(path), self._at(name))

    def download(self, name: str, path: str | os.PathLike) -> None:
        """Write the content of an object to a file."""
        with self._errors("read", self.url_of(name)):
            self._fs.get_file(self._at(name), os.fspath(path))

    def delete(self, name: str) -> None:
        """Delete an object, if it exists."""
        with (
            self._errors("delete", self.url_of(name)),
            contextlib.suppress(FileNotFoundError),
        ):
            self._fs.rm_file(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    @property
    def _is_local(self) -> bool:
        return "file" in _protocols(self._fs)

    @contextlib.contextmanager
    def _replacing(self, name: str) -> Iterator[Any]:
        """Open a local file that appears when it is complete, as an object does."""
        path = self._at(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with durable_files.replacing(path, "wb") as file:
            yield file

    @contextlib.contextmanager
    def _errors(self, action: str, url: str) -> Iterator[None]:
        """Raise every error of a store as an InputError that names the object.

        Packages of stores raise exceptions of their own libraries, without a common
        base class.
        """
        try:
            yield
        except Exception as error:
            cause = str(error).strip().partition("\n")[0]
            raise InputError(
                f"The object store must let this process {action} {url}",
                f"{type(error).__name__}: {cause:.300}",
                _REMEDY,
            ) from error


def _open(url: str) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, without a cache of listings."""
    import fsspec.core

    protocol = url.partition("://")[0]
    try:
        return fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        extra = _EXTRAS.get(protocol)
        install = f"pip install 'electra_tf[{extra}]'" if extra else str(error)
        raise InputError(
            f"The package for {protocol}:// must be installed", url, install
        ) from error
    except Exception as error:  # as in `_errors`
        raise InputError(
            "A URL must be one that fsspec or one of its packages can open",
            f"{url}: {type(error).__name__}: {error}",
            "Write a local path, s3://BUCKET/NAME or gs://BUCKET/NAME",
        ) from error


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _object_info(info: dict[str, Any]) -> ObjectInfo:
    version = next((info[key] for key in _VERSIONS if info.get(key) is not None), "")
    return ObjectInfo(int(info["size"]), str(version))
