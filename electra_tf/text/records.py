"""Write folders of records: their format, their manifest, and how they are replaced.

The features have the names and types of the original (`input_ids`, `input_mask`,
`segment_ids`, int64 lists of `max_length`). Nothing here imports TensorFlow, so that
the processes that build records start fast.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import re
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from electra_tf import durable_files
from electra_tf.durable_files import PARTIAL
from electra_tf.errors import InputError, report_damage
from electra_tf.storage.mirror import push, temporary_folder
from electra_tf.storage.objects import ObjectFolder, is_url
from electra_tf.text.examples import Example
from electra_tf.text.tokenizer import Wordpieces
from electra_tf.text.tokenizer_files import VOCABULARY
from electra_tf.text.vocab import CLS, PAD, SEP, Vocabulary
from electra_tf.untrusted_files import masked_crc

FEATURES = ("input_ids", "input_mask", "segment_ids")
SHARD_PREFIX = "pretrain_data.tfrecord"
MANIFEST = "manifest.json"
BUILDING = "_building"
CONFIG = "config.yaml"
PROBLEMS = "problems.txt"
DUPLICATES = "duplicates.jsonl"
_FILES = re.compile(
    rf"{BUILDING}/|{SHARD_PREFIX}|({'|'.join(map(re.escape, (MANIFEST, CONFIG)))}|"
    rf"{re.escape(VOCABULARY)}(\.settings\.json)?|{PROBLEMS}|{DUPLICATES})$"
)
_FORMAT = 1


class RecordEncoder:
    """Serialise examples as `tf.train.Example` messages of a fixed length."""

    def __init__(self, vocabulary: Vocabulary, max_length: int):
        self._max_length = max_length
        special = (chr(vocabulary.ids[token]) for token in (CLS, SEP, PAD))
        self._cls, self._sep, self._pad = special

    def encode(self, examples: list[Example]) -> list[bytes]:
        """Return one payload per example: [CLS] A [SEP] (B [SEP]) and [PAD]."""
        rows, mask_entries = [], []
        for first, second in examples:
            row = self._cls + first + self._sep
            length_a = len(row)
            if second:
                row += second + self._sep
            mask_entries.append(
                _mask_and_segments(self._max_length, length_a, len(row))
            )
            rows.append(row.ljust(self._max_length, self._pad))
        ids = _packed_rows("".join(rows), self._max_length)
        return [
            _field(1, _entry(FEATURES[0], packed) + entries)
            for packed, entries in zip(ids, mask_entries, strict=True)
        ]


@functools.lru_cache(maxsize=20_000)
def _mask_and_segments(length: int, end_a: int, end: int) -> bytes:
    padding = bytes(length - end)  # 0 and 1 are single bytes in a packed list
    mask = b"\1" * end + padding
    segments = bytes(end_a) + b"\1" * (end - end_a) + padding
    return _entry(FEATURES[1], mask) + _entry(FEATURES[2], segments)


def _packed_rows(wordpieces: Wordpieces, length: int) -> list[bytes]:
    """Return rows of `length` ids as varints: seven bits per byte, lowest first, the
    high bit set on all bytes but the last of a number."""
    codes = wordpieces.encode("utf-32-le", "surrogatepass")
    ids_BL = np.frombuffer(codes, np.uint32).reshape(-1, length)
    septets = np.stack([ids_BL, ids_BL >> 7, ids_BL >> 14], axis=-1) & 0x7F
    two, three = ids_BL > 0x7F, ids_BL > 0x3FFF
    used = np.stack([np.ones_like(two), two, three], axis=-1)
    more = np.stack([two, three, np.zeros_like(two)], axis=-1)
    data = (septets | more * np.uint32(0x80)).astype(np.uint8)[used].tobytes()
    ends = np.cumsum(used.sum(axis=(1, 2))).tolist()
    return [data[a:b] for a, b in itertools.pairwise([0, *ends])]


def _entry(name: str, packed: bytes) -> bytes:
    # Example.features(1).feature(1) is a map: key(1), value(2). The value is a Feature
    # whose int64_list(3) holds value(1), packed.
    feature = _field(3, _field(1, packed))
    return _field(1, _field(1, name.encode()) + _field(2, feature))


def _field(number: int, content: bytes) -> bytes:
    """Return a length-delimited field of the protocol buffer wire format."""
    head, size = [number << 3 | 2], len(content)
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size]) + content


def frame(payload: bytes) -> bytes:
    """Return the payload framed for a TFRecord file, with its checksums."""
    length = struct.pack("<Q", len(payload))
    return length + masked_crc(length) + payload + masked_crc(payload)


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records."""

    file: str
    records: int
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """Contents and settings of a folder of records, stored as `manifest.json`."""

    format: int = _FORMAT
    documents: int
    sentences: int
    tokens: int
    discarded_tokens: int
    """Wordpieces that the packing of the original discards."""
    unknown_share: float
    records: int
    padding_share: float
    seed: int
    settings: dict[str, Any]
    """The resolved config; a valid `--config`."""
    tokenizer: dict[str, Any]
    unicode: str
    """Version of the character data; characters newer than it are dropped."""
    problems: dict[str, int]
    """Numbers of data errors by kind; each error is a line of problems.txt."""
    shards: list[Shard]
    # Manifests of earlier versions lack the field below.
    duplicates: dict[str, int] = dataclasses.field(default_factory=dict)
    """Numbers of dropped documents by kind; each is a line of duplicates.jsonl."""

    @property
    def max_length(self) -> int:
        """Positions of a record."""
        return self.settings["records"]["max_length"]

    @property
    def text(self) -> str:
        """Content of `manifest.json`."""
        values = dataclasses.asdict(self)
        return json.dumps(values, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def parse(cls, text: str | bytes, source: str) -> "Manifest":
        """Parse the content of a `manifest.json`."""
        with report_damage(source):
            tree = json.loads(text)
            if tree["format"] != _FORMAT:
                raise ValueError(f"format {tree['format']} instead of {_FORMAT}")
            shards = [Shard(**shard) for shard in tree.pop("shards")]
            known = cls.__dataclass_fields__.keys() & tree.keys()  # others have ended
            manifest = cls(**{name: tree[name] for name in known}, shards=shards)
            int(manifest.max_length), int(manifest.tokenizer["vocabulary_size"])
            return manifest


def shard_names(count: int) -> list[str]:
    """Return the file names of shards that the reader of the original expects."""
    return [f"{SHARD_PREFIX}-{i:05d}-of-{count:05d}" for i in range(count)]


@contextlib.contextmanager
def records_lock(folder: str | os.PathLike, exclusive: bool = False) -> Iterator[None]:
    """Lock a folder of records: trainers read it together, a builder is alone.

    File systems that cannot lock a folder are used without.
    """
    with contextlib.ExitStack() as stack:
        try:
            if os.path.isdir(folder):
                lock = durable_files.locked(folder, shared=not exclusive, wait=False)
                stack.enter_context(lock)
        except BlockingIOError as error:
            other = "reads or builds" if exclusive else "builds"
            raise InputError(
                f"The records {os.fspath(folder)!r} are in use: another process "
                f"{other} them; wait for it, or use another folder"
            ) from error
        except OSError:  # for example NFS
            pass
        yield


@contextlib.contextmanager
def records_output(
    output: str, overwrite: bool, is_shared: bool = False
) -> Iterator[str]:
    """Yield a folder whose files replace the records of `output` after the block.

    It is beside the output, which appears when it is complete, or a local folder if
    the output is a URL.

    Args:
        output: The folder of records, a path or a URL.
        overwrite: Replace existing records.
        is_shared: Other machines write to the folder, too: at a URL it is `_building`.
    """
    names = ObjectFolder(output).find()
    problem = "contains half-written records"
    if MANIFEST in names:
        problem = "contains complete records"
    if others := [name for name in names if not _FILES.match(name)]:
        problem = f"contains {others[0]!r}, which is no file of records"
    elif os.path.isfile(output) or os.path.ismount(output):
        problem = "is a file or a mount point, which cannot be replaced"
    elif not names or overwrite:
        problem = ""
    if problem:
        raise InputError(
            f"--output must be a new or empty folder, but {output} {problem}; pass "
            "another folder, or --overwrite for one of records alone"
        )
    try:
        with contextlib.ExitStack() as stack:
            if is_url(output):
                upload = _uploaded(ObjectFolder(output), is_shared)
                yield stack.enter_context(upload)
                return
            with records_lock(os.path.realpath(output) + PARTIAL, exclusive=True):
                pass  # else another process builds there
            stack.enter_context(records_lock(output, exclusive=True))
            folder = stack.enter_context(durable_files.new_folder(output, overwrite))
            stack.enter_context(records_lock(folder, exclusive=True))
            yield folder
    except OSError as error:
        raise InputError(
            f"--output={output} must be writable and have as much free space as the "
            f"text: {error}; the new files are removed"
        ) from error


@contextlib.contextmanager
def _uploaded(target: ObjectFolder, is_shared: bool) -> Iterator[str]:
    """Yield a folder whose files replace the objects of a URL after the block.

    The config is written first and the manifest last, so that an interruption leaves
    records that are recognised as half-written.
    """
    building = target / BUILDING
    building.clear()  # of a killed process
    with contextlib.ExitStack() as stack:
        stack.callback(building.clear)
        folder = building.url if is_shared else stack.enter_context(temporary_folder())
        yield folder
        names = ObjectFolder(folder).find()
        target.write(CONFIG, ObjectFolder(folder).read(CONFIG))
        target.delete(MANIFEST)
        for name in target.find():
            if name not in names and not name.startswith(BUILDING):
                target.delete(name)
        if is_shared:
            for group in (names.keys() - {MANIFEST}, {MANIFEST}):
                target.move({f"{BUILDING}/{name}": name for name in group})
        else:
            push(target, folder, list(names), last=[MANIFEST])
