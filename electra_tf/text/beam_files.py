"""Read, write and publish files through the file systems of Apache Beam.

A worker writes each file under a temporary name and renames it. The content of a file
depends on its name alone, so a bundle that is run twice, or at the same time on two
workers, leaves one file.
"""

import contextlib
import hashlib
import io
import pathlib
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.text import builder, records
from electra_tf.text.records_lock import records_lock
from electra_tf.text.sources import LocalFiles

try:
    import apache_beam as beam
    from apache_beam.io.filesystem import BeamIOError, CompressionTypes
    from apache_beam.io.filesystems import FileSystems
except ImportError as import_error:
    raise InputError(
        "apache-beam must be installed for --runner=beam",
        f"Python without it ({import_error})",
        "Install it: pip install 'electra_tf[beam]', or pass --runner=local",
    ) from import_error

WORK = "work"
"""Folder of temporary files in the folder that a pipeline writes."""
_AS_STORED = CompressionTypes.UNCOMPRESSED


def is_remote(path: str) -> bool:
    """Return whether a path is a URL, such as `gs://bucket/folder`."""
    return "://" in path


class BeamFiles(LocalFiles):
    """Files of this machine, and those of URLs that Beam can read."""

    def find(self, pattern: str) -> list[str]:
        """Return the paths that a path or a glob matches, sorted."""
        if not is_remote(pattern):
            return super().find(pattern)
        if FileSystems.exists(pattern):
            return [pattern]
        return sorted(_find(pattern))

    def is_file(self, path: str) -> bool:
        """Return whether a path is a file."""
        return is_remote(path) or super().is_file(path)

    def identity(self, path: str) -> str:
        """Return a name that is the same for all links to a file."""
        return path if is_remote(path) else super().identity(path)

    def size(self, path: str) -> int:
        """Return the bytes of a file."""
        if not is_remote(path):
            return super().size(path)
        return FileSystems.match([path])[0].metadata_list[0].size_in_bytes

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading, as it is stored."""
        if not is_remote(path):
            return super().open(path)
        file = FileSystems.open(path, compression_type=_AS_STORED)
        return file if hasattr(file, "peek") else io.BufferedReader(file)


def _find(pattern: str) -> list[str]:
    """Return the paths that a glob matches; none if its folder does not exist."""
    try:
        return [file.path for file in FileSystems.match([pattern])[0].metadata_list]
    except BeamIOError:
        if FileSystems.exists(pattern.rpartition("/")[0]):
            raise
        return []


def join(folder: str, *names: str) -> str:
    """Return the path of a file in a folder."""
    return FileSystems.join(folder, *names)


def read(folder: str, name: str) -> bytes:
    """Return the content of a file."""
    path = FileSystems.join(folder, name)
    with FileSystems.open(path, compression_type=_AS_STORED) as file:
        return file.read()


class WriteFile(beam.DoFn):
    """Write a file from its parts, in the order of their keys.

    Elements are (name, parts); a part is (key, bytes, number of lines or records).
    Outputs are (name, sum of the numbers, size, SHA-256).
    """

    def __init__(self, folder: str):
        self._folder = folder

    def process(
        self, element: tuple[str, Iterable[tuple[tuple, bytes, int]]]
    ) -> Iterator[tuple[str, int, int, str]]:
        """Write one file."""
        name, parts = element
        count, size, digest = 0, 0, hashlib.sha256()
        with writing(self._folder, name) as file:
            for _, data, number in sorted(parts, key=lambda part: part[0]):
                file.write(data)
                digest.update(data)
                count, size = count + number, size + len(data)
        yield name, count, size, digest.hexdigest()


@contextlib.contextmanager
def writing(folder: str, name: str) -> Iterator[BinaryIO]:
    """Open a new file, which gets its name if the block succeeds."""
    temporary = FileSystems.join(folder, WORK, f"{name}-{uuid.uuid4().hex}")
    target = FileSystems.join(folder, name)
    with contextlib.suppress(BeamIOError, OSError):  # another worker created it
        FileSystems.mkdirs(FileSystems.join(folder, WORK))
    with FileSystems.create(temporary, compression_type=_AS_STORED) as file:
        yield file
    try:
        FileSystems.rename([temporary], [target])
    except BeamIOError:
        # Some file systems replace no file. An existing one has the same content.
        if not FileSystems.exists(target):
            raise


@contextlib.contextmanager
def output_folder(
    output: str, overwrite: bool
) -> Iterator[tuple[str, Callable[..., None]]]:
    """Create the temporary folder of a build; remove it if the build fails.

    Yields:
        The temporary folder, and a function that takes the arguments of
        `builder.write_metadata` after the folder and publishes the records.
    """
    if is_remote(output):
        yield from _remote_folder(output, overwrite)
        return
    path = pathlib.Path(output)
    builder.check_output(path, overwrite)
    with contextlib.suppress(OSError):  # `building_folder` raises it in words
        path.mkdir(parents=True, exist_ok=True)
    with records_lock(path, exclusive=True), builder.building_folder(path) as folder:

        def publish(*metadata: Any) -> None:
            _delete(str(folder), WORK)
            builder.write_metadata(folder, *metadata)
            durable_files.sync(folder)
            builder.publish(folder, path)

        yield str(folder), publish


def _remote_folder(
    output: str, overwrite: bool
) -> Iterator[tuple[str, Callable[..., None]]]:
    building = FileSystems.join(output, records.BUILDING)
    if _find(FileSystems.join(output, "*")) or _find(FileSystems.join(building, "*")):
        builder.check_contents(
            output,
            FileSystems.exists(FileSystems.join(output, records.MANIFEST)),
            bool(_find(FileSystems.join(building, "*"))),
            overwrite,
        )
    _delete(output, records.BUILDING)
    with contextlib.suppress(BeamIOError):  # object storage has no folders
        FileSystems.mkdirs(building)
    try:
        yield building, lambda *metadata: _publish(building, output, metadata)
    except BaseException:
        with contextlib.suppress(BeamIOError):
            _delete(output, records.BUILDING)
        raise


def _publish(building: str, output: str, metadata: tuple) -> None:
    """Replace old records by the new files, the manifest last."""
    _delete(building, WORK)
    with tempfile.TemporaryDirectory() as folder:
        builder.write_metadata(pathlib.Path(folder), *metadata)
        for path in pathlib.Path(folder).iterdir():
            with writing(building, path.name) as file:
                file.write(path.read_bytes())
    _delete(building, WORK)
    old = _find(FileSystems.join(output, f"{records.SHARD_PREFIX}-*-of-*"))
    names = records.PROBLEMS, records.DUPLICATES
    for name in (records.MANIFEST, *(path.rpartition("/")[2] for path in old), *names):
        _delete(output, name)
    new = [path.rpartition("/")[2] for path in _find(FileSystems.join(building, "*"))]
    for name in sorted(new, key=lambda name: name == records.MANIFEST):
        FileSystems.rename(
            [FileSystems.join(building, name)], [FileSystems.join(output, name)]
        )
    _delete(output, records.BUILDING)


def _delete(folder: str, name: str) -> None:
    delete(FileSystems.join(folder, name))


def delete(path: str) -> None:
    """Delete a file or a folder, if it exists."""
    if FileSystems.exists(path) or _find(FileSystems.join(path, "*")):
        FileSystems.delete([path])
