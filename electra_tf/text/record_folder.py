"""Find records and what belongs to them, wherever they are, without TensorFlow."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping
from glob import escape, glob

from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.storage.mirror import fetch, local_glob
from electra_tf.storage.objects import ObjectFolder, ObjectInfo, is_url, split_url
from electra_tf.text import records
from electra_tf.text.records import Manifest
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import open_tokenizer

_TEXT_SUFFIXES = (".txt", ".csv", ".tsv", ".json", ".jsonl", ".gz", ".xz", ".parquet")
_ORIGINAL = "pretrain_tfrecords"  # the original writes records to DATA_DIR/...


def local_records(data: str) -> str:
    """Return a local path of records, which are fetched if they are at a URL.

    TensorFlow has no file system for s3:// and others, so tf.data reads local files.
    """
    parts = data.split(",")
    if not any(map(is_url, parts)):
        return data
    if len(parts) == 1 and not any(c in data for c in "*?["):
        source = ObjectFolder(data)
        if objects := source.find():
            return _fetch_folder(source, objects)
    paths = (local_glob(part) if is_url(part) else [part] for part in parts)
    return ",".join(path for part in paths for path in part)


def _fetch_folder(source: ObjectFolder, objects: dict[str, ObjectInfo]) -> str:
    """Fetch the shards of the manifest, or else all, and the vocabulary."""
    sums = {}
    if records.MANIFEST in objects:
        content = source.read(records.MANIFEST) or b""
        manifest = Manifest.parse(content, source.url_of(records.MANIFEST))
        sums = {shard.file: shard.sha256 for shard in manifest.shards}
        for shard in manifest.shards:  # before hours of copying
            info = objects.get(shard.file)
            if info is None or info.size != shard.bytes:
                found = "no such object" if info is None else f"{info.size} bytes"
                raise InputError(
                    f"{source.url_of(shard.file)} must have the {shard.bytes} bytes "
                    f"that the manifest lists, but there is {found}"
                )
    elif records.is_half_written(objects):
        raise half_written(source.url)

    def is_needed(name: str) -> bool:
        folder, file = os.path.split(name)
        if folder not in ("", _ORIGINAL):
            return False
        is_shard = name in sums if sums else "tfrecord" in file
        return is_shard or name == records.MANIFEST or file.startswith("vocab")

    files = {name: info for name, info in objects.items() if is_needed(name)}
    return os.path.join(fetch(source, files, sums), split_url(source.url)[1])


def record_files(data: str) -> list[str]:
    """Return the record files of a folder, or of globs separated by commas."""
    patterns = data.split(",")
    if os.path.isdir(data):
        folders = data, os.path.join(data, _ORIGINAL)
        patterns = [os.path.join(escape(f), "*tfrecord*") for f in folders]
    paths = [path for pattern in patterns for path in sorted(glob(pattern))]
    return [path for path in dict.fromkeys(paths) if os.path.isfile(path)]


def record_length(data: str) -> int | None:
    """Return the positions of the records of a folder; None without a manifest."""
    path = pathlib.Path(local_records(data), records.MANIFEST)
    if not path.exists():
        return None
    return Manifest.parse(path.read_bytes(), str(path)).max_length


def resolve_config(
    data: str,
    vocab: str | None,
    make_config: Callable[[Mapping | None], PretrainingConfig],
) -> tuple[PretrainingConfig, WordPieceTokenizer]:
    """Load the vocabulary of the records and set the config's vocabulary size."""
    path = vocab or os.path.join(data, records.VOCABULARY)
    if not vocab and not os.path.exists(path):
        missing = f"{data!r} has no {records.VOCABULARY}: set --vocab to that of its "
        if not record_files(data) or data.endswith(_TEXT_SUFFIXES):
            missing = (
                f"--data={data!r} has no records; electra-tf build_records builds "
            )
        raise InputError(f"{missing}records")
    stored = open_tokenizer(path)
    vocabulary = stored.vocabulary
    config = make_config(stored.base)
    stored.check(config.tokenization)
    model = config.model.of_vocabulary(len(vocabulary), path)
    config = dataclasses.replace(config, model=model)
    return config, WordPieceTokenizer(vocabulary, config.tokenization)


def half_written(folder: str) -> InputError:
    """Return the error of records that are still being built."""
    return InputError(
        f"The records {folder} are half-written, without {records.MANIFEST}; run "
        "build_records again with --overwrite"
    )
