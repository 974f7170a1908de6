"""Open records, wherever they are, check them, and locate or replace bad ones.

tf.data reads the records. Its error for a bad record names neither file nor record, so
`find_bad_record` searches for it.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import tensorflow as tf

from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.storage.mirror import cache_folder
from electra_tf.text import records
from electra_tf.text.record_folder import (
    COPY_AGAIN,
    half_written,
    local_records,
    raise_size,
    record_files,
)
from electra_tf.text.records import FEATURES, Manifest, Shard, frame, read_frames
from electra_tf.text.tokenizer import WordPieceTokenizer

INDEX, BAD = "index.json", "bad_records.jsonl"
_COUNTS = "record_counts.json"
_BLOCK = 1 << 16  # bytes
_MAX_SHARE, _ALWAYS = 0.01, 10  # bad records of a data set, at most


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
    tokenizer: WordPieceTokenizer | None,
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
    data, is_strict = local_records(data), on_error == "stop"
    size = len(tokenizer.vocabulary) if tokenizer else vocabulary_size
    manifest = _read_manifest(data, max_length, tokenizer)
    if manifest is not None:
        paths = tuple(os.path.join(data, shard.file) for shard in manifest.shards)
        for path, shard in zip(paths, manifest.shards, strict=True):
            if is_strict or verify or not os.path.exists(path):
                _check_shard(path, shard, verify)
        counts = tuple(shard.records for shard in manifest.shards)
        size = size or manifest.tokenizer["vocabulary_size"]
        return RecordSet(paths, counts, max_length, size, manifest)
    if not size:
        raise InputError(
            "For records without a manifest, tokenizer or vocabulary_size must be set",
            f"{data} with neither",
            "Pass the tokenizer that the records were built with",
        )
    paths = _find_paths(data)
    for folder in dict.fromkeys(map(os.path.dirname, paths)):
        _read_manifest(folder, max_length, tokenizer)  # globs of records with one
    record_set = RecordSet(paths, _count(paths, is_strict), max_length, size)
    _check_first(record_set, data, is_strict)
    return record_set


def _read_manifest(
    folder: str, max_length: int, tokenizer: WordPieceTokenizer | None
) -> Manifest | None:
    """Return the manifest of a folder, if it has one, after a check of its settings."""
    path = pathlib.Path(folder, records.MANIFEST)
    if not path.exists():
        if path.with_name(records.BUILDING).exists():
            raise half_written(folder)
        return None
    manifest = Manifest.parse(path.read_bytes(), str(path))
    if tokenizer is not None:
        tokenizer.check_identity(manifest.tokenizer, folder)
    if manifest.max_length != max_length:
        raise _length_error(folder, max_length, manifest.max_length)
    return manifest


def _check_shard(path: str, shard: Shard, verify: bool) -> None:
    """Compare a file with its size and, with `verify`, its checksum."""
    raise_size(path, shard, os.path.getsize(path) if os.path.exists(path) else None)
    if verify and (sha256 := durable_files.sha256(path)) != shard.sha256:
        raise InputError(
            f"{path} must have the SHA-256 that the manifest lists, {shard.sha256}",
            sha256,
            COPY_AGAIN,
        )


def _find_paths(data: str) -> tuple[str, ...]:
    paths = record_files(data)
    if not paths:
        raise InputError(
            "The data must be a folder of TFRecord files or globs of such files",
            f"{data!r}, which matches no file",
            "Build records with electra-tf build_records, or check the path",
        )
    return tuple(paths)


def identity_of_files(paths: Sequence[str]) -> str:
    """Return a hash of the sizes and of the first and last blocks of files."""
    digest = hashlib.sha256()
    for path in paths:
        size = os.path.getsize(path)
        digest.update(f"{size}\n".encode())
        with open(path, "rb") as file:
            digest.update(file.read(_BLOCK))
            file.seek(max(0, size - _BLOCK))
            digest.update(file.read(_BLOCK))
    return digest.hexdigest()


def _count(paths: Sequence[str], is_strict: bool) -> tuple[int, ...]:
    """Return the numbers of records, counted again where a file has changed."""
    if not is_strict:
        return tuple(_count_records(path, is_strict=False) for path in paths)
    known: dict[str, list[int]] = {}
    # There may be no cache yet, or no home that can be written.
    with contextlib.suppress(OSError, ValueError):
        known = json.loads((cache_folder() / _COUNTS).read_bytes())
    before, counts = dict(known), []
    for path in map(os.path.abspath, paths):
        state = [os.path.getsize(path), os.stat(path).st_mtime_ns]
        if known.get(path, [])[:2] != state:
            known[path] = [*state, _count_records(path)]
        counts.append(known[path][2])
    if known != before:
        with contextlib.suppress(OSError):
            durable_files.write(cache_folder() / _COUNTS, json.dumps(known))
    return tuple(counts)


def _count_records(path: str, is_strict: bool = True) -> int:
    """Return the number of records, up to the first that hides what follows it."""
    count = 0
    for record, found in enumerate(read_frames(path)):
        if is_strict and found.payload is None:
            raise _frame_error(path, record, found)
        count += found.is_complete
    return count


def _frame_error(path: str, record: int, found: records.Frame) -> InputError:
    return InputError(
        "Each record file must be complete and intact",
        f"{path}: record {record}, at byte {found.offset} of {os.path.getsize(path)}, "
        f"is corrupt or truncated: {found.defect}",
        "Copy the file again, or build the records again with --overwrite",
    )


def _check_first(record_set: RecordSet, data: str, is_strict: bool) -> None:
    """Raise an error if there is no record, or the first one is invalid."""
    if not record_set.total:
        raise InputError(
            "The record files must contain at least one record",
            f"{data} with 0 records",
            "Build records with electra-tf build_records",
        )
    if is_strict:
        counts = zip(record_set.paths, record_set.counts, strict=True)
        path = next(path for path, count in counts if count)
        payload = next(read_frames(path)).payload
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
def reraise_bad_records(record_set: RecordSet) -> Iterator[None]:
    """Return a context that raises errors of tf.data with file and record."""
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
        count = len(record_set.paths)
        print(f"reading failed; searching {count:,} files", file=sys.stderr)
        find_bad_record(record_set)
        raise


def find_bad_record(record_set: RecordSet) -> None:
    """Raise an InputError for a bad record, if there is one."""
    for path in record_set.paths:
        for record, found in enumerate(read_frames(path)):
            if found.payload is None:
                raise _frame_error(path, record, found)
            check_payload(found.payload, f"{path}: record {record}", record_set)


def replace_bad_records(
    record_set: RecordSet, folder: str, log: Callable[[str], None]
) -> RecordSet:
    """Copy files with bad records, each bad record replaced by an empty one.

    An empty record has no token, so it has no weight in any loss. Numbers and order of
    all other records stay the same, and with them the batches of a resumed run. The
    copies of a folder that exists are used.
    """
    index = pathlib.Path(folder, INDEX)
    if not index.exists():
        _repair(record_set, folder, log)
    copies = json.loads(index.read_text(encoding="utf-8"))
    bad = sum(number for _, number in copies.values())
    log(f"{bad:,} of {record_set.total:,} records are bad; empty records replace them")
    if bad:
        log(f"the bad records are listed in {os.path.join(folder, BAD)}")
    paths = tuple(
        os.path.join(folder, copies[path][0]) if path in copies else path
        for path in record_set.paths
    )
    return dataclasses.replace(record_set, paths=paths)


def _repair(record_set: RecordSet, folder: str, log: Callable[[str], None]) -> None:
    partial = pathlib.Path(f"{folder}.unfinished")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    log(f"searching {len(record_set.paths):,} files for bad records")
    copies, total = {}, 0
    with open(partial / BAD, "w", encoding="utf-8") as file:
        for number, path in enumerate(record_set.paths):
            defects = _defects(record_set, number)
            if not defects:
                continue
            for record, (offset, defect) in defects.items():
                line = {"file": path, "record": record, "byte": offset, "why": defect}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            total += len(defects)
            _check_share(total, record_set, path)
            copy = partial / f"{number:05d}-{os.path.basename(path)}"
            copies[path] = copy.name, len(defects)
            _write_copy(record_set, number, defects, copy)
    (partial / INDEX).write_text(json.dumps(copies), encoding="utf-8")
    durable_files.publish(partial, folder)


def _check_share(bad: int, record_set: RecordSet, path: str) -> None:
    if bad > max(_ALWAYS, _MAX_SHARE * record_set.total):
        raise InputError(
            f"At most {_MAX_SHARE:.0%} of the records may be bad with "
            "input.on_error=skip",
            f"{bad:,} of {record_set.total:,} up to {path}",
            "Copy or build the records again, or check records.max_length and the "
            "vocabulary",
        )


def _defects(record_set: RecordSet, number: int) -> dict[int, tuple[int, str]]:
    """Return offset and defect of each bad record of a file."""
    path, count = record_set.paths[number], record_set.counts[number]
    manifest = record_set.manifest
    if manifest is not None:
        with contextlib.suppress(InputError):
            _check_shard(path, manifest.shards[number], verify=True)
            return {}
    defects, record, offset = {}, -1, 0
    for record, (offset, payload, defect) in enumerate(read_frames(path)):
        if payload is not None:
            defect = _payload_defect(payload, path, record_set)
        # Without a manifest, a broken last record is not counted, but must not be read.
        if defect and (record < count or manifest is None):
            defects[record] = offset, defect
    for missing in range(record + 1, count):
        defects[missing] = (
            offset,
            "missing: the file ends, or a corrupt length hides it",
        )
    return defects


def _payload_defect(payload: bytes, path: str, record_set: RecordSet) -> str:
    try:
        check_payload(payload, path, record_set)
    except InputError as error:
        return error.received.removeprefix(f"{path}: ")
    return ""


def _write_copy(
    record_set: RecordSet, number: int, defects: dict, target: pathlib.Path
) -> None:
    frames = read_frames(record_set.paths[number])
    empty = records.empty_record(record_set.max_length)
    with open(target, "wb") as file:
        for record in range(record_set.counts[number]):
            found = next(frames, None)
            file.write(frame(empty if record in defects else found.payload))
