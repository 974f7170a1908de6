"""Find and open folders of records, check that they fit the model, locate bad ones."""

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from glob import escape, glob

from electra_tf import durable_files
from electra_tf.config.pretraining import PretrainingConfig
from electra_tf.errors import InputError
from electra_tf.storage.mirror import fetch, local_glob
from electra_tf.storage.objects import ObjectFolder, ObjectInfo, is_url, split_url
from electra_tf.text.records import CONFIG, FEATURES, MANIFEST, Manifest, Shard
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.tokenizer_files import VOCABULARY, open_tokenizer

_FRAME_BYTES = 16  # of a record beside its payload: its length and two checksums
_BLOCK = 1 << 16  # bytes
_COPY_AGAIN = "copy the folder again, or build the records again with --overwrite"
_TEXT_SUFFIXES = (".txt", ".csv", ".tsv", ".json", ".jsonl", ".gz", ".xz", ".parquet")
_ORIGINAL = "pretrain_tfrecords"  # the original writes records to DATA_DIR/...


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
    size = len(tokenizer.vocabulary) if tokenizer else vocabulary_size
    manifest = _read_manifest(data, max_length, tokenizer)
    if manifest is not None:
        paths = tuple(os.path.join(data, shard.file) for shard in manifest.shards)
        for path, shard in zip(paths, manifest.shards, strict=True):
            _check_shard(path, shard, verify)
        counts = tuple(shard.records for shard in manifest.shards)
        size = size or manifest.tokenizer["vocabulary_size"]
        return RecordSet(paths, counts, max_length, size, manifest)
    if not size:
        raise InputError(
            f"{data} has no manifest, so tokenizer or vocabulary_size must be set"
        )
    return _count(data, max_length, tokenizer, size)


def _count(
    data: str,
    max_length: int,
    tokenizer: WordPieceTokenizer | None,
    size: int,
) -> RecordSet:
    """Find and count records without a manifest, and check the first of each file."""
    paths = tuple(record_files(data))
    for folder in dict.fromkeys(map(os.path.dirname, paths)):
        _read_manifest(folder, max_length, tokenizer)  # globs of records with one
    record_set = RecordSet(paths, (0,) * len(paths), max_length, size)
    counts = tuple(_check_records(path, record_set, checked=1) for path in paths)
    if not any(counts):
        found = f"0 records in {len(paths)} files" if paths else "no file"
        raise InputError(
            f"{data!r} must be a folder of TFRecord files or globs of such files, but "
            f"matches {found}; electra-tf build_records builds records"
        )
    return dataclasses.replace(record_set, counts=counts)


def _read_manifest(
    folder: str, max_length: int, tokenizer: WordPieceTokenizer | None
) -> Manifest | None:
    """Return the manifest of a folder, if it has one, after a check of its settings."""
    path = pathlib.Path(folder, MANIFEST)
    if not path.exists():
        if path.with_name(CONFIG).exists():
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
    _check_size(path, shard, os.path.getsize(path) if os.path.exists(path) else None)
    if verify and (sha256 := durable_files.sha256(path)) != shard.sha256:
        raise InputError(
            f"{path} must have the SHA-256 that the manifest lists, {shard.sha256}, "
            f"not {sha256}; {_COPY_AGAIN}"
        )


def _check_size(path: str, shard: Shard, size: int | None) -> None:
    if size != shard.bytes:
        found = "no such file" if size is None else f"{size} bytes"
        raise InputError(
            f"{path} must have the {shard.bytes} bytes that the manifest lists, but "
            f"there is {found}; {_COPY_AGAIN}"
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


def _check_records(path: str, record_set: RecordSet, checked: int = sys.maxsize) -> int:
    """Return the number of records of a file; raise an InputError at a bad one.

    The content of the first `checked` records is compared with that of the record set.
    """
    import tensorflow as tf

    count = offset = 0
    try:
        for payload in tf.data.TFRecordDataset(path).as_numpy_iterator():
            if count < checked and (defect := _payload_defect(payload, record_set)):
                raise _record_error(path, count, offset, defect)
            count, offset = count + 1, offset + len(payload) + _FRAME_BYTES
    except tf.errors.DataLossError as error:
        defect = "it is corrupt, or the file ends within it"
        raise _record_error(path, count, offset, defect) from error
    return count


def _record_error(path: str, record: int, offset: int, defect: str) -> InputError:
    return InputError(
        f"{path}: record {record}, at byte {offset} of {os.path.getsize(path)}, is "
        f"bad: {defect}"
    )


def _payload_defect(payload: bytes, record_set: RecordSet) -> str:
    """Return how a record differs from those of the config; empty: it is valid."""
    import tensorflow as tf

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
    import tensorflow as tf

    try:
        yield
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
        count = len(record_set.paths)
        print(f"reading failed; searching {count:,} files", file=sys.stderr)
        for path in record_set.paths:
            _check_records(path, record_set)
        raise


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
    if MANIFEST in objects:
        content = source.read(MANIFEST) or b""
        manifest = Manifest.parse(content, source.url_of(MANIFEST))
        sums = {shard.file: shard.sha256 for shard in manifest.shards}
        for shard in manifest.shards:  # before hours of copying
            info = objects.get(shard.file)
            _check_size(source.url_of(shard.file), shard, info and info.size)
    elif CONFIG in objects:
        raise half_written(source.url)

    def is_needed(name: str) -> bool:
        folder, file = os.path.split(name)
        if folder not in ("", _ORIGINAL):
            return False
        is_shard = name in sums if sums else "tfrecord" in file
        return is_shard or name == MANIFEST or file.startswith("vocab")

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
    path = pathlib.Path(local_records(data), MANIFEST)
    if not path.exists():
        return None
    return Manifest.parse(path.read_bytes(), str(path)).max_length


def resolve_config(
    data: str,
    vocab: str | None,
    make_config: Callable[[Mapping | None], PretrainingConfig],
) -> tuple[PretrainingConfig, WordPieceTokenizer]:
    """Load `vocab`, or that of the records; set the config's vocabulary size."""
    path = vocab or os.path.join(data, VOCABULARY)
    if not vocab and not os.path.exists(path):
        missing = f"{data!r} has no {VOCABULARY}: set --vocab to that of its "
        if not record_files(data) or data.endswith(_TEXT_SUFFIXES):
            missing = (
                f"--data={data!r} has no records; electra-tf build_records builds "
            )
        raise InputError(f"{missing}records")
    stored = open_tokenizer(path)
    config = make_config(stored.base)
    stored.check(config.tokenization)
    model = config.model.of_vocabulary(len(stored.vocabulary), path)
    config = dataclasses.replace(config, model=model)
    return config, stored.tokenizer(config.tokenization)


def half_written(folder: str) -> InputError:
    """Return the error of records that are still being built."""
    return InputError(
        f"The records {folder} are half-written, without {MANIFEST}; run "
        "build_records again with --overwrite"
    )
