"""Fetch records and vocabularies from object stores."""

import os
import posixpath

from electra_tf.errors import InputError
from electra_tf.storage.mirror import fetch, local_glob
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
    elif records.is_half_written(objects):
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
