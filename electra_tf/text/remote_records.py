"""Fetch records from an object store, and publish them there, the manifest last."""

import contextlib
import os
import posixpath
from collections.abc import Iterator

from electra_tf.errors import InputError
from electra_tf.storage.lease import Lease, is_lease
from electra_tf.storage.mirror import (
    fetch,
    files_in,
    local_glob,
    push,
    temporary_folder,
)
from electra_tf.storage.objects import ObjectFolder, ObjectInfo, is_url, split_url
from electra_tf.text import records
from electra_tf.text.records import Manifest
from electra_tf.text.tokenizer import settings_path
from electra_tf.text.tokenizer_files import FILES, SETTINGS, VOCABULARY

_REMEDY = "Upload the folder again, or build the records again with --overwrite"
# Of the records of the original, which has no manifest.
_ORIGINAL = "pretrain_tfrecords"


def local_records(data: str) -> str:
    """Return a local path of records, which are fetched if they are at a URL.

    TensorFlow has no file system for s3:// and others, so tf.data reads local files.
    """
    parts = data.split(",")
    if not any(map(is_url, parts)):
        return data
    if len(parts) == 1 and not any(c in data for c in "*?["):
        source = ObjectFolder(data)
        objects = source.find()
        if objects:
            return _fetch_folder(source, objects)
    found = (local_glob(part) if is_url(part) else [part] for part in parts)
    return ",".join(path for paths in found for path in paths)


def local_vocabulary(path: str | None) -> str | None:
    """Return the local path of a vocabulary, which is fetched if it is at a URL."""
    if path is None or not is_url(path):
        return path
    parent, name = split_url(path)
    source = ObjectFolder(parent)
    names = {name, settings_path(name).name}
    if name == VOCABULARY or name.endswith(".json"):
        names.update(SETTINGS)
    if source.info(name) is None:
        source, name = ObjectFolder(path), ""
        names = {*FILES, settings_path(VOCABULARY).name}
    infos = {n: source.info(n) for n in names}
    files = {n: info for n, info in infos.items() if info is not None}
    if not files:
        raise InputError(
            "A vocabulary must be an object, a folder of objects, or a local path",
            f"{path}, which does not exist",
            "Check the URL",
        )
    return os.path.join(fetch(source, files, folder="."), name)


def _fetch_folder(source: ObjectFolder, objects: dict[str, ObjectInfo]) -> str:
    sums = {}
    if records.MANIFEST in objects:
        content = source.read(records.MANIFEST) or b""
        url = source.url_of(records.MANIFEST)
        for shard in Manifest.parse(content, url).shards:
            info = objects.get(shard.file)
            if info is None or info.size != shard.bytes:
                raise InputError(
                    f"{source.url_of(shard.file)} must have the {shard.bytes} bytes "
                    "that the manifest lists",
                    f"{info.size} bytes" if info else "no such object",
                    _REMEDY,
                )
            sums[shard.file] = shard.sha256
    elif records.BUILDING in objects:
        raise InputError(
            f"Records must be complete, with a {records.MANIFEST}",
            f"{source.url}, which is half-written",
            _REMEDY,
        )
    files = {n: i for n, i in objects.items() if n in sums or _is_needed(n, bool(sums))}
    name = split_url(source.url)[1]
    return os.path.join(fetch(source, files, sums), name)


def _is_needed(name: str, has_manifest: bool) -> bool:
    folder, file = posixpath.split(name)
    is_shard = "tfrecord" in file
    if has_manifest:
        return not folder and not is_shard and name != records.BUILDING
    return folder in ("", _ORIGINAL) and (is_shard or file.startswith("vocab"))


@contextlib.contextmanager
def staged_records(output: str, overwrite: bool) -> Iterator[str]:
    """Yield a local folder whose records are published if the block succeeds."""
    if not is_url(output):
        yield output
        return
    with temporary_folder() as folder, Lease(ObjectFolder(output), "--output") as lease:
        _check_output(output, overwrite)
        path = os.path.join(folder, split_url(output)[1])
        yield path
        _publish(path, output, lease)


def _check_output(url: str, overwrite: bool) -> None:
    names = [name for name in ObjectFolder(url).find() if not is_lease(name)]
    if names and not {records.MANIFEST, records.BUILDING} & set(names):
        raise InputError(
            "--output must be a new folder, or a folder of records",
            f"{url}, which contains other objects",
            "Pass another URL",
        )
    if names and not overwrite:
        raise InputError(
            "Without --overwrite, --output must not contain records",
            f"{url}, which contains records",
            "Pass --overwrite to replace them, or pass another URL",
        )


def _publish(folder: str, url: str, lease: Lease) -> None:
    """Upload a folder of records; they replace those at the URL.

    From the first upload to the last, the URL has an object `_building` and no
    manifest, so that a reader recognises it as half-written.
    """
    target, names = ObjectFolder(url), files_in(folder)
    lease.check()
    target.write(records.BUILDING, b"")
    target.delete(records.MANIFEST)
    for name in set(target.find()) - set(names):
        if name.startswith(records.SHARD_PREFIX) or name == records.PROBLEMS:
            target.delete(name)
    push(target, folder, [name for name in names if name != records.MANIFEST])
    lease.check()
    push(target, folder, [records.MANIFEST])
    target.delete(records.BUILDING)
