"""Find record files, validate them, and locate bad records.

tf.data reads the records. Its error for a bad record names neither file nor record, so
`find_bad_record` searches for it.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.text import records
from electra_tf.text.json_file import parse_json
from electra_tf.text.records import FEATURES, Manifest, Shard
from electra_tf.text.remote_records import local_records
from electra_tf.text.tokenizer import Tokenizer

_BLOCK = 1 << 16  # bytes
_MAX_MANIFEST = 1 << 24  # bytes
_MAX_RECORD = 1 << 26  # bytes
_HEADER_BYTES = 12  # length and its checksum
_FRAME_BYTES = 16  # of a TFRecord beside its payload: length, two checksums


@dataclasses.dataclass(frozen=True)
class RecordSet:
    """Record files and the number of records in each."""

    paths: tuple[str, ...]
    counts: tuple[int, ...]
    max_length: int
    vocabulary_size: int
    """Upper bound of the ids, exclusive."""
    manifest: Manifest | None = None
    """None for records built by other programs."""

    @property
    def total(self) -> int:
        """Number of records."""
        return sum(self.counts)


def open_records(
    data: str,
    *,
    max_length: int,
    tokenizer: Tokenizer | None,
    vocabulary_size: int = 0,
    verify: bool = False,
    on_error: Literal["stop", "skip"] = "stop",
) -> RecordSet:
    """Find records and check that they match the model.

    Args:
        data: A folder of records built by `build_records`, by the original or by
            NVIDIA's implementation, or globs of TFRecord files, separated by commas;
            also URLs of an object store.
        max_length: Required positions of a record.
        tokenizer: Tokenizer whose vocabulary and settings the records must have been
            built with; None skips this check.
        vocabulary_size: Upper bound of the ids, exclusive; ignored with a tokenizer.
            0 means the size in the manifest.
        verify: Compare the files of a manifest with its checksums, which reads them
            completely. Their sizes are always compared.
        on_error: `skip` accepts files that are truncated or corrupt, for
            `replace_bad_records`.

    Returns:
        The files and their counts. Files without a manifest are read once, to count
        and check their records.

    Raises:
        InputError: There are no records, the folder is half-written, a file is missing
            or truncated, or the vocabulary, a setting or the length differs.

    Example:
        import electra_tf

        records = electra_tf.open_records("records", max_length=32, tokenizer=None)
        print(f"{records.total:,} records")
    """
    data = local_records(data)
    if tokenizer is not None:
        vocabulary_size = len(tokenizer.vocabulary)
    manifest = _read_manifest(data)
    if manifest is not None:
        _check_manifest(manifest, data, max_length, tokenizer)
        size = vocabulary_size or manifest.tokenizer["vocabulary_size"]
        is_strict = on_error == "stop"
        return _open_with_manifest(data, manifest, max_length, size, verify, is_strict)
    if not vocabulary_size:
        raise InputError(
            "For records without a manifest, tokenizer or vocabulary_size must be set",
            f"{data} with neither",
            "Pass the tokenizer that the records were built with",
        )
    paths = tuple(_find_paths(data))
    for folder in dict.fromkeys(map(os.path.dirname, paths)):
        manifest = _read_manifest(folder)
        if manifest is not None:
            _check_manifest(manifest, folder, max_length, tokenizer)
        else:
            _check_complete(folder)
    return _open_without_manifest(data, paths, max_length, vocabulary_size, on_error)


def record_length(data: str) -> int | None:
    """Return the positions of the records of a folder."""
    data = local_records(data)
    manifest = _read_manifest(data) if os.path.isdir(data) else None
    return manifest.max_length if manifest else None


def _read_manifest(folder: str) -> Manifest | None:
    path = os.path.join(folder, records.MANIFEST)
    if not tf.io.gfile.exists(path):
        return None
    size = tf.io.gfile.stat(path).length
    if size > _MAX_MANIFEST or tf.io.gfile.isdir(path):
        raise InputError(
            f"{path} must be a file of at most {_MAX_MANIFEST:,} bytes",
            f"{size:,} bytes",
            "Build the records again with this version of electra_tf",
        )
    with tf.io.gfile.GFile(path, "rb") as file:
        return Manifest.parse(file.read(), path)


def _check_manifest(
    manifest: Manifest, data: str, max_length: int, tokenizer: Tokenizer | None
) -> None:
    if tokenizer is not None:
        tokenizer.check_identity(manifest.tokenizer, data)
    if manifest.max_length != max_length:
        raise _length_error(data, max_length, manifest.max_length)


def _open_with_manifest(
    data: str,
    manifest: Manifest,
    max_length: int,
    vocabulary_size: int,
    verify: bool,
    is_strict: bool,
) -> RecordSet:
    paths = tuple(os.path.join(data, shard.file) for shard in manifest.shards)
    for path, shard in zip(paths, manifest.shards, strict=True):
        if is_strict or not tf.io.gfile.exists(path):
            _check_size(path, shard.bytes)
        if verify:
            _check_sha256(path, shard.sha256)
    if is_strict:  # the manifest may be as false as the files
        _cached("record_lengths", paths, lambda new: tuple(map(_check_lengths, new)))
    counts = tuple(shard.records for shard in manifest.shards)
    return RecordSet(paths, counts, max_length, vocabulary_size, manifest)


def _open_without_manifest(
    data: str,
    paths: tuple[str, ...],
    max_length: int,
    vocabulary_size: int,
    on_error: str,
) -> RecordSet:
    if on_error == "skip":
        from electra_tf.text.record_repair import count_frames  # it imports this module

        counts = tuple(map(count_frames, paths))
    else:
        counts = _cached("record_counts", paths, _count_records)
    record_set = RecordSet(paths, counts, max_length, vocabulary_size)
    if not record_set.total:
        raise InputError(
            "The record files must contain at least one record",
            f"{data} with 0 records",
            "Build records with electra_tf.build_records",
        )
    if on_error == "stop":
        _check_first(record_set)
    return record_set


def _check_complete(folder: str) -> None:
    if tf.io.gfile.exists(os.path.join(folder, records.BUILDING)):
        raise InputError(
            "A folder of records must be complete, with a manifest.json",
            f"{folder}, which is half-written",
            "Run build_records again with --overwrite",
        )


def _find_paths(data: str) -> list[str]:
    _check_complete(data)
    if tf.io.gfile.isdir(data):
        # The original writes records to DATA_DIR/pretrain_tfrecords.
        folders = [data, os.path.join(data, "pretrain_tfrecords")]
        patterns = [os.path.join(folder, "*tfrecord*") for folder in folders]
    else:
        patterns = data.split(",")
    paths = [p for pattern in patterns for p in sorted(tf.io.gfile.glob(pattern))]
    paths = [path for path in dict.fromkeys(paths) if not tf.io.gfile.isdir(path)]
    if not paths:
        raise InputError(
            "The data must be a folder of TFRecord files or globs of such files",
            f"{data!r}, which matches no file",
            "Build records with electra_tf.build_records, or check the path",
        )
    return paths


def _check_size(path: str, required: int) -> None:
    size = tf.io.gfile.stat(path).length if tf.io.gfile.exists(path) else None
    if size != required:
        raise InputError(
            f"{path} must have the {required} bytes that the manifest lists",
            "no such file" if size is None else f"{size} bytes",
            "Copy the folder again, or build the records again with --overwrite",
        )


def _check_sha256(path: str, sha256: str) -> None:
    found = _sha256(path)
    if found != sha256:
        raise InputError(
            f"{path} must have the SHA-256 that the manifest lists, {sha256}",
            found,
            "Copy the folder again, or build the records again with --overwrite",
        )


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def is_unchanged(path: str, shard: Shard) -> bool:
    """Return whether a file has the size and the SHA-256 of its manifest."""
    is_whole = tf.io.gfile.stat(path).length == shard.bytes
    return is_whole and _sha256(path) == shard.sha256


def identity_of_files(paths: Sequence[str]) -> str:
    """Return a hash of the sizes and of the first and last blocks of files."""
    digest = hashlib.sha256()
    for path in paths:
        size = tf.io.gfile.stat(path).length
        digest.update(f"{size}\n".encode())
        with tf.io.gfile.GFile(path, "rb") as file:
            digest.update(file.read(_BLOCK))
            file.seek(max(0, size - _BLOCK))
            digest.update(file.read(_BLOCK))
    return digest.hexdigest()


def _cached(
    name: str, paths: tuple[str, ...], count: Callable[[tuple[str, ...]], Sequence[int]]
) -> tuple[int, ...]:
    """Return a number for each file, computed again where its size or time changed."""
    cache = pathlib.Path(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
        "electra_tf",
        f"{name}.json",
    )
    known: dict[str, list] = {}
    with contextlib.suppress(OSError, ValueError):
        cached = parse_json(cache.read_bytes())
        known = cached if isinstance(cached, dict) else {}
    keys, states = map(os.path.abspath, paths), map(tf.io.gfile.stat, paths)
    state = {k: [s.length, s.mtime_nsec] for k, s in zip(keys, states, strict=True)}
    new = [k for k, values in state.items() if not _is_count(known.get(k), values)]
    for key, number in zip(new, count(tuple(new)), strict=True):
        known[key] = [*state[key], number]
    if new:
        with contextlib.suppress(OSError):  # a home that cannot be written
            cache.parent.mkdir(parents=True, exist_ok=True)
            durable_files.write(cache, json.dumps(known))
    return tuple(known[key][2] for key in state)


def _is_count(cached: Any, state: list[int]) -> bool:
    """Return whether an entry of the cache has the size and time of a file."""
    if not isinstance(cached, list) or len(cached) != 3:
        return False
    return cached[:2] == state and type(cached[2]) is int and cached[2] >= 0


def _count_records(paths: tuple[str, ...]) -> tuple[int, ...]:
    """Count the records of all files, which also compares their checksums."""

    def file_numbers(number: tf.Tensor, path: tf.Tensor) -> tf.data.Dataset:
        return tf.data.TFRecordDataset(path).map(lambda _: number)

    # One dataset reads all files: the original writes 1,000, and each dataset has a
    # start-up cost.
    if not paths:
        return ()
    for path in paths:
        _check_lengths(path)
    files = tf.data.Dataset.from_tensor_slices(list(paths)).enumerate()
    counts = np.zeros(len(paths), np.int64)
    try:
        for numbers in files.flat_map(file_numbers).batch(65536).as_numpy_iterator():
            counts += np.bincount(numbers, minlength=len(paths))
    except tf.errors.DataLossError:
        for path in paths:
            _check_frames(path)
        raise
    return tuple(counts.tolist())


def _check_frames(path: str) -> None:
    """Raise an InputError with number and offset of the first corrupt record."""
    _check_lengths(path)
    record, offset = 0, 0
    try:
        for payload in tf.data.TFRecordDataset(path).as_numpy_iterator():
            record += 1
            offset += len(payload) + _FRAME_BYTES
    except tf.errors.DataLossError as error:
        size = tf.io.gfile.stat(path).length
        raise InputError(
            "Each record file must be complete and intact",
            f"{path}: record {record}, at byte {offset} of {size}, is corrupt or "
            "truncated",
            "Copy the file again, or build the records again with --overwrite",
        ) from error


def _check_lengths(path: str) -> int:
    """Return the number of records, or raise an InputError for one that is too long.

    TensorFlow's reader allocates the length that a record states before it reads the
    record, and the process ends where there is less memory.
    """
    record, offset = 0, 0
    with open(path, "rb") as file:
        while len(header := file.read(_HEADER_BYTES)) == _HEADER_BYTES:
            (length,) = struct.unpack_from("<Q", header)
            if length > _MAX_RECORD:
                if records.masked_crc(header[:8]) != header[8:]:
                    return record  # TensorFlow checks it before it allocates
                raise InputError(
                    f"A record must have at most {_MAX_RECORD:,} bytes",
                    f"{path}: record {record}, at byte {offset}, of {length:,} bytes",
                    "Copy the file again, or build the records again with --overwrite",
                )
            offset = file.seek(length + _FRAME_BYTES - _HEADER_BYTES, os.SEEK_CUR)
            record += 1
    return record


def _check_first(record_set: RecordSet) -> None:
    counts = zip(record_set.paths, record_set.counts, strict=True)
    path = next(path for path, count in counts if count)
    payload = next(tf.data.TFRecordDataset(path).as_numpy_iterator())
    check_payload(payload, f"{path}: record 0", record_set)


def check_payload(payload: bytes, place: str, record_set: RecordSet) -> None:
    """Raise an InputError if a record is invalid."""
    try:
        example = tf.train.Example.FromString(payload)
    except Exception as error:  # protobuf's class differs between its versions
        raise _record_error(place, f"no tf.train.Example ({error})") from error
    features = example.features.feature
    missing = [name for name in FEATURES if name not in features]
    if missing:
        raise _record_error(
            place,
            f"no {', '.join(missing)}; its features are {sorted(features) or 'none'}",
        )
    lengths = {name: len(features[name].int64_list.value) for name in FEATURES}
    if len(set(lengths.values())) > 1:
        raise _record_error(place, f"lists of different lengths, {lengths}")
    if lengths["input_ids"] != record_set.max_length:
        raise _length_error(place, record_set.max_length, lengths["input_ids"])
    ids = features["input_ids"].int64_list.value
    size = record_set.vocabulary_size
    outside = [i for i in ids if not 0 <= i < size]
    if outside:
        raise _record_error(
            place, f"the id {outside[0]}; the vocabulary has {size} entries"
        )


def _record_error(place: str, defect: str) -> InputError:
    return InputError(
        f"A record must contain the int64 lists {', '.join(FEATURES)}, with ids of the "
        "vocabulary",
        f"{place}: {defect}",
        "Use the vocabulary that the records were built with, or build them again",
    )


def _length_error(place: str, required: int, received: int) -> InputError:
    return InputError(
        f"Records must have the {required} positions of the config",
        f"{place}: {received} positions",
        f"Build records with --max_length={required}, or pre-train with --set="
        f"records.max_length={received}",
    )


@contextlib.contextmanager
def reraise_bad_records(
    record_set: RecordSet,
    first_file: Callable[[], int] = lambda: 0,
    log: Callable[[str], None] = lambda line: None,
) -> Iterator[None]:
    """Return a context that raises errors of tf.data with file and record."""
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
        first = first_file()
        log(
            f"reading failed; searching {len(record_set.paths):,} files for a bad "
            f"record, from {record_set.paths[first]} on"
        )
        find_bad_record(record_set, first)
        raise


def find_bad_record(record_set: RecordSet, first_file: int = 0) -> None:
    """Raise an InputError for a bad record, if there is one."""
    paths = record_set.paths
    for path in (*paths[first_file:], *paths[:first_file]):
        _check_frames(path)
        payloads = tf.data.TFRecordDataset(path).as_numpy_iterator()
        for number, payload in enumerate(payloads):
            check_payload(payload, f"{path}: record {number}", record_set)
