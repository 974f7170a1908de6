"""Open records, wherever they are, check them, and locate or replace bad ones.

tf.data reads the records. Its error for a bad record names neither file nor record, so
`reraise_bad_records` searches for it.
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
from electra_tf.text.record_folder import half_written, local_records, record_files
from electra_tf.text.records import FEATURES, Manifest, Shard, frame, read_frames
from electra_tf.text.tokenizer import WordPieceTokenizer

BAD = "bad_records.jsonl"
_INDEX, _COUNTS = "index.json", "record_counts.json"
_BLOCK = 1 << 16  # bytes
_MAX_SHARE, _ALWAYS = 0.01, 10  # bad records of a data set, at most
_COPY_AGAIN = "copy the folder again, or build the records again with --overwrite"


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
            f"{data} has no manifest, so tokenizer or vocabulary_size must be set"
        )
    return _count(data, max_length, tokenizer, size, is_strict)


def _count(
    data: str,
    max_length: int,
    tokenizer: WordPieceTokenizer | None,
    size: int,
    is_strict: bool,
) -> RecordSet:
    """Find and count records without a manifest, and check the first one."""
    paths = tuple(record_files(data))
    for folder in dict.fromkeys(map(os.path.dirname, paths)):
        _read_manifest(folder, max_length, tokenizer)  # globs of records with one
    counts = _counts(paths) if is_strict else tuple(map(_count_records, paths))
    record_set = RecordSet(paths, counts, max_length, size)
    if not record_set.total:
        found = f"0 records in {len(paths)} files" if paths else "no file"
        raise InputError(
            f"{data!r} must be a folder of TFRecord files or globs of such files, but "
            f"matches {found}; electra-tf build_records builds records"
        )
    if is_strict:
        path = next(p for p, n in zip(paths, counts, strict=True) if n)
        if defect := _payload_defect(next(read_frames(path)).payload, record_set):
            raise _record_error(path, 0, 0, defect)
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
        raise InputError(
            f"{folder} must have records of the config's {max_length} positions, not "
            f"{manifest.max_length}; build records with --max_length={max_length}, or "
            f"pass --set=records.max_length={manifest.max_length}"
        )
    return manifest


def _check_shard(path: str, shard: Shard, verify: bool) -> None:
    """Compare a file with its size and, with `verify`, its checksum."""
    size = os.path.getsize(path) if os.path.exists(path) else None
    if size != shard.bytes:
        found = "no such file" if size is None else f"{size} bytes"
        raise InputError(
            f"{path} must have the {shard.bytes} bytes that the manifest lists, but "
            f"there is {found}; {_COPY_AGAIN}"
        )
    if verify and (sha256 := durable_files.sha256(path)) != shard.sha256:
        raise InputError(
            f"{path} must have the SHA-256 that the manifest lists, {shard.sha256}, "
            f"not {sha256}; {_COPY_AGAIN}"
        )


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


def _counts(paths: Sequence[str]) -> tuple[int, ...]:
    """Return the numbers of records; only files that have changed are read again."""
    known: dict[str, list[int]] = {}
    # There may be no cache yet, or no home that can be written.
    with contextlib.suppress(OSError, ValueError):
        known = json.loads((cache_folder() / _COUNTS).read_bytes())
    before, counts = dict(known), []
    for path in map(os.path.abspath, paths):
        state = [os.path.getsize(path), os.stat(path).st_mtime_ns]
        if known.get(path, [])[:2] != state:
            known[path] = [*state, _count_records(path, is_strict=True)]
        counts.append(known[path][2])
    if known != before:
        with contextlib.suppress(OSError):
            durable_files.write(cache_folder() / _COUNTS, json.dumps(known))
    return tuple(counts)


def _count_records(path: str, is_strict: bool = False) -> int:
    """Return the number of records, up to the first that hides what follows it."""
    count = 0
    for record, found in enumerate(read_frames(path)):
        if is_strict and found.defect:
            raise _record_error(path, record, found.offset, found.defect)
        count += found.is_complete
    return count


def _record_error(path: str, record: int, offset: int, defect: str) -> InputError:
    return InputError(
        f"{path}: record {record}, at byte {offset} of {os.path.getsize(path)}, is "
        f"bad: {defect}"
    )


def _payload_defect(payload: bytes, record_set: RecordSet) -> str:
    """Return how a record differs from those of the config; empty: it is valid."""
    try:
        example = tf.train.Example.FromString(payload)
    except Exception as error:  # protobuf's class differs between its versions
        return f"no tf.train.Example ({error})"
    features = example.features.feature
    if missing := [name for name in FEATURES if name not in features]:
        found = sorted(features) or "none"
        return f"no {', '.join(missing)}; its features are {found}"
    lengths = {name: len(features[name].int64_list.value) for name in FEATURES}
    if set(lengths.values()) != {record_set.max_length}:
        return (
            f"{lengths} positions, not the config's {record_set.max_length}; pass "
            "--set=records.max_length=N if all records have N"
        )
    size = record_set.vocabulary_size
    ids = features["input_ids"].int64_list.value
    outside = [i for i in ids if not 0 <= i < size]
    if outside:
        return (
            f"the id {outside[0]}, of a vocabulary of {size} entries; pass the --vocab "
            "that the records were built with"
        )
    return ""


@contextlib.contextmanager
def reraise_bad_records(record_set: RecordSet) -> Iterator[None]:
    """Return a context that raises errors of tf.data with file and record."""
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
        count = len(record_set.paths)
        print(f"reading failed; searching {count:,} files", file=sys.stderr)
        for path in record_set.paths:
            for record, found in enumerate(read_frames(path)):
                defect = found.defect or _payload_defect(found.payload, record_set)
                if defect:
                    raise _record_error(path, record, found.offset, defect) from None
        raise


def replace_bad_records(
    record_set: RecordSet, folder: str, log: Callable[[str], None]
) -> RecordSet:
    """Copy files with bad records, each bad record replaced by an empty one.

    An empty record has no token, so it has no weight in any loss. Numbers and order of
    all other records stay the same, and with them the batches of a resumed run. The
    copies of a folder that exists are used.
    """
    index = pathlib.Path(folder, _INDEX)
    if not index.exists():
        log(f"searching {len(record_set.paths):,} files for bad records")
        partial = pathlib.Path(f"{folder}.unfinished")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _write_copies(record_set, partial)
        durable_files.publish(partial, folder)
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


def _write_copies(record_set: RecordSet, folder: pathlib.Path) -> None:
    """Write copies of the files with bad records, their list and their index."""
    copies, total = {}, 0
    empty = frame(records.empty_record(record_set.max_length))
    with open(folder / BAD, "w", encoding="utf-8") as report:
        for number, path in enumerate(record_set.paths):
            bad = _bad_records(record_set, number)
            total += len(bad)
            if total > max(_ALWAYS, _MAX_SHARE * record_set.total):
                raise InputError(
                    f"At most {_MAX_SHARE:.0%} of the records may be bad with "
                    f"input.on_error=skip, not {total:,} of {record_set.total:,} up to "
                    f"{path}: {next(iter(bad.values()))[1]}"
                )
            if not bad:
                continue
            for record, (offset, defect) in bad.items():
                line = {"file": path, "record": record, "byte": offset, "why": defect}
                report.write(json.dumps(line, ensure_ascii=False) + "\n")
            copy = folder / f"{number:05d}-{os.path.basename(path)}"
            copies[path] = copy.name, len(bad)
            with open(copy, "wb") as file:
                frames = read_frames(path)
                for record in range(record_set.counts[number]):
                    found = next(frames, None)
                    file.write(empty if record in bad else frame(found.payload))
    (folder / _INDEX).write_text(json.dumps(copies), encoding="utf-8")


def _bad_records(record_set: RecordSet, number: int) -> dict[int, tuple[int, str]]:
    """Return offset and defect of each bad record of a file."""
    path, count = record_set.paths[number], record_set.counts[number]
    manifest = record_set.manifest
    if manifest is not None:
        with contextlib.suppress(InputError):
            _check_shard(path, manifest.shards[number], verify=True)
            return {}
    bad, record, offset = {}, -1, 0
    for record, (offset, payload, defect, _) in enumerate(read_frames(path)):
        defect = defect or _payload_defect(payload, record_set)
        # Without a manifest, a broken last record is not counted, but must not be read.
        if defect and (record < count or manifest is None):
            bad[record] = offset, defect
    lost = "missing: the file ends, or a corrupt length hides it"
    return bad | dict.fromkeys(range(record + 1, count), (offset, lost))
