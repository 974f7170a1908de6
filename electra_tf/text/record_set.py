"""Finds record files, checks that they are whole, and says which record is bad.

Reading itself is tf.data's and stops at the first bad record with an error that names
neither file nor record; `explain` then looks for it.
"""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.text import records
from electra_tf.text.records import FEATURES, Manifest
from electra_tf.text.tokenizer import Tokenizer

_FRAME_BYTES = 16  # of a TFRecord beside its payload: length, two checksums


@dataclasses.dataclass(frozen=True)
class RecordSet:
    """Files of records, with how many each holds."""

    paths: tuple[str, ...]
    counts: tuple[int, ...]
    max_length: int
    vocabulary_size: int
    """Ids must be below it."""
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
) -> RecordSet:
    """Finds the records and checks that they are what the model expects.

    Args:
        data: A folder made by `build_records`, a folder of the original's or NVIDIA's
            builder, or globs of TFRecord files, separated by commas.
        max_length: Positions a record must have.
        tokenizer: Whose vocabulary and settings the records must have been made with;
            None skips that check.
        vocabulary_size: Ids must be below it; without a tokenizer, the manifest's size
            unless given.
        verify: For a folder with a manifest, compare the files with its checksums,
            which reads them whole; their sizes are always compared.

    Returns:
        The files and their counts. Folders without a manifest are read through once
        to count (and so to check) their records.

    Raises:
        InputError: No records, a half-written folder, a missing or truncated file,
            another vocabulary, another setting, another length.

    Example:
        import electra_tf

        records = electra_tf.open_records("records", max_length=32, tokenizer=None)
        print(f"{records.total:,} records")
    """
    if tokenizer is not None:
        vocabulary_size = len(tokenizer.vocabulary)
    manifest = _manifest_of(data)
    if manifest is not None:
        _check_manifest(manifest, data, max_length, tokenizer)
        size = vocabulary_size or manifest.tokenizer["vocabulary_size"]
        return _built_here(data, manifest, max_length, size, verify)
    if not vocabulary_size:
        raise InputError(
            "Records without a manifest are read with a tokenizer or a vocabulary_size",
            f"{data} and neither",
            "Pass the tokenizer they were made for",
        )
    paths = tuple(_find(data))
    for folder in dict.fromkeys(map(os.path.dirname, paths)):
        manifest = _manifest_of(folder)
        if manifest is not None:
            _check_manifest(manifest, folder, max_length, tokenizer)
        else:
            _refuse_half_written(folder)
    return _built_elsewhere(data, paths, max_length, vocabulary_size)


def _manifest_of(folder: str) -> Manifest | None:
    path = os.path.join(folder, records.MANIFEST)
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path, "rb") as file:
        return Manifest.parse(file.read(), path)


def _check_manifest(
    manifest: Manifest, data: str, max_length: int, tokenizer: Tokenizer | None
) -> None:
    if tokenizer is not None:
        tokenizer.check_identity(manifest.tokenizer, data)
    if manifest.max_length != max_length:
        raise _wrong_length(data, max_length, manifest.max_length)


def _built_here(
    data: str, manifest: Manifest, max_length: int, vocabulary_size: int, verify: bool
) -> RecordSet:
    paths = tuple(os.path.join(data, shard.file) for shard in manifest.shards)
    for path, shard in zip(paths, manifest.shards, strict=True):
        _check_size(path, shard.bytes)
        if verify:
            _check_sum(path, shard.sha256)
    counts = tuple(shard.records for shard in manifest.shards)
    return RecordSet(paths, counts, max_length, vocabulary_size, manifest)


def _built_elsewhere(
    data: str, paths: tuple[str, ...], max_length: int, vocabulary_size: int
) -> RecordSet:
    found = RecordSet(paths, _count(paths), max_length, vocabulary_size)
    if not found.total:
        raise InputError("The record files hold records", f"{data}: none", "Build them")
    _check_first(found)
    return found


def _refuse_half_written(folder: str) -> None:
    if tf.io.gfile.exists(os.path.join(folder, records.BUILDING)):
        raise InputError(
            "A folder of records is complete, with a manifest.json",
            f"{folder}, whose build was broken off",
            "Run build_records again with --overwrite",
        )


def _find(data: str) -> list[str]:
    _refuse_half_written(data)
    if tf.io.gfile.isdir(data):
        # The second is the layout of the original's DATA_DIR.
        places = [data, os.path.join(data, "pretrain_tfrecords")]
        patterns = [os.path.join(place, "*tfrecord*") for place in places]
    else:
        patterns = data.split(",")
    paths = [p for pattern in patterns for p in sorted(tf.io.gfile.glob(pattern))]
    paths = [path for path in dict.fromkeys(paths) if not tf.io.gfile.isdir(path)]
    if not paths:
        raise InputError(
            "The data is a folder of TFRecord files or globs of such files",
            f"{data!r}, where none are",
            "Build records with electra_tf.build_records, or check the path",
        )
    return paths


def _check_size(path: str, size: int) -> None:
    found = tf.io.gfile.stat(path).length if tf.io.gfile.exists(path) else None
    if found != size:
        arrived = "no such file" if found is None else f"{found} bytes"
        raise InputError(
            f"{path} has the {size} bytes that the manifest lists",
            arrived,
            "Copy the folder again, or build the records again with --overwrite",
        )


def _check_sum(path: str, sha256: str) -> None:
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    if digest.hexdigest() != sha256:
        raise InputError(
            f"{path} has the checksum that the manifest lists",
            f"{digest.hexdigest()}, not {sha256}",
            "Copy the folder again, or build the records again with --overwrite",
        )


def _count(paths: tuple[str, ...]) -> tuple[int, ...]:
    """Reads all files once, checksums included, and counts their records."""

    def numbered(number: tf.Tensor, path: tf.Tensor) -> tf.data.Dataset:
        return tf.data.TFRecordDataset(path).map(lambda _: number)

    # One dataset for all files: the original makes 1,000, and each takes its time.
    files = tf.data.Dataset.from_tensor_slices(list(paths)).enumerate()
    counts = np.zeros(len(paths), np.int64)
    try:
        for numbers in files.flat_map(numbered).batch(65536).as_numpy_iterator():
            counts += np.bincount(numbers, minlength=len(paths))
    except tf.errors.DataLossError:
        for path in paths:
            _check_whole(path)
        raise
    return tuple(counts.tolist())


def _check_whole(path: str) -> None:
    """Raises an InputError that tells where the first bad record of a file stands."""
    record, offset = 0, 0
    try:
        for payload in tf.data.TFRecordDataset(path).as_numpy_iterator():
            record += 1
            offset += len(payload) + _FRAME_BYTES
    except tf.errors.DataLossError as error:
        size = tf.io.gfile.stat(path).length
        raise InputError(
            "Each record file is whole",
            f"{path}: record {record}, at byte {offset} of {size}, is corrupt or cut "
            "off",
            "Copy the file again, or build the records again with --overwrite",
        ) from error


def _check_first(found: RecordSet) -> None:
    path = next(p for p, n in zip(found.paths, found.counts, strict=True) if n)
    payload = next(tf.data.TFRecordDataset(path).as_numpy_iterator())
    _check_payload(payload, f"{path}: record 0", found)


def _check_payload(payload: bytes, place: str, found: RecordSet) -> None:
    """Raises an InputError that tells what is wrong with one record, if anything."""
    try:
        example = tf.train.Example.FromString(payload)
    except Exception as error:  # protobuf's class differs between its versions
        raise _bad_record(place, f"no tf.train.Example ({error})") from error
    features = example.features.feature
    missing = [name for name in FEATURES if name not in features]
    if missing:
        raise _bad_record(
            place, f"no {', '.join(missing)} among {sorted(features) or 'no features'}"
        )
    lengths = {name: len(features[name].int64_list.value) for name in FEATURES}
    if len(set(lengths.values())) > 1:
        raise _bad_record(place, f"lists of different lengths, {lengths}")
    if lengths["input_ids"] != found.max_length:
        raise _wrong_length(place, found.max_length, lengths["input_ids"])
    ids = features["input_ids"].int64_list.value
    outside = [i for i in ids if not 0 <= i < found.vocabulary_size]
    if outside:
        raise _bad_record(
            place, f"the id {outside[0]}; the vocabulary has {found.vocabulary_size}"
        )


def _bad_record(place: str, what: str) -> InputError:
    return InputError(
        f"A record holds the int64 lists {', '.join(FEATURES)}, with ids of the "
        "vocabulary",
        f"{place}: {what}",
        "Use the vocabulary the records were made with, or build them again",
    )


def _wrong_length(place: str, required: int, arrived: int) -> InputError:
    return InputError(
        f"Records have the {required} positions of the config",
        f"{place}: {arrived}",
        f"Set records.max_length={arrived}, or build records of {required}",
    )


@contextlib.contextmanager
def reraise_bad_records(found: RecordSet) -> Iterator[None]:
    """A context that turns a failed read into an error with file and record.

    Args:
        found: The records that are read inside.

    Raises:
        InputError: In place of TensorFlow's error, where a record is to blame.
    """
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
        find_bad_record(found)
        raise


def find_bad_record(found: RecordSet) -> None:
    """Raises an InputError for the first bad record; returns if all are good."""
    for path in found.paths:
        _check_whole(path)
        payloads = tf.data.TFRecordDataset(path).as_numpy_iterator()
        for number, payload in enumerate(payloads):
            _check_payload(payload, f"{path}: record {number}", found)
