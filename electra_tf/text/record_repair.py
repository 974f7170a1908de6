"""Replace bad records by empty ones, in copies of their files.

An empty record has no token, so it has no weight in any loss. Numbers and order of all
other records stay the same, and with them the batches of a resumed run.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

import tensorflow as tf

from electra_tf import durable_files
from electra_tf.errors import InputError
from electra_tf.text.record_set import RecordSet, check_payload, is_unchanged
from electra_tf.text.records import FEATURES, frame, masked_crc

INDEX, BAD = "index.json", "bad_records.jsonl"
_HEADER = 12  # bytes of a frame before the payload: length and its checksum
_MAX_RECORD = 1 << 26  # bytes
_MAX_SHARE, _ALWAYS = 0.01, 10  # bad records of a data set, at most


class _Frame(NamedTuple):
    """One record of a file."""

    offset: int
    payload: bytes | None
    """None for a corrupt record."""
    defect: str = ""


def replace_bad_records(
    record_set: RecordSet, folder: str, log: Callable[[str], None]
) -> RecordSet:
    """Copy files with bad records, each bad record replaced by an empty one.

    Returns:
        The records, with the same counts.
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


def count_frames(path: str) -> int:
    """Return the number of records up to the first that hides what follows it."""
    return sum(
        found.payload is not None or found.defect == _PAYLOAD for found in _frames(path)
    )


def _repair(record_set: RecordSet, folder: str, log: Callable[[str], None]) -> None:
    partial = f"{folder}.unfinished"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    log(f"searching {len(record_set.paths):,} files for bad records")
    copies, total = {}, 0
    with open(os.path.join(partial, BAD), "w", encoding="utf-8") as file:
        for number, path in enumerate(record_set.paths):
            defects = _defects(record_set, number)
            if not defects:
                continue
            for record, (offset, defect) in defects.items():
                line = {"file": path, "record": record, "byte": offset, "why": defect}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            total += len(defects)
            _check_share(total, record_set, path)
            name = f"{number:05d}-{os.path.basename(path)}"
            copies[path] = name, len(defects)
            _write_copy(record_set, number, defects, os.path.join(partial, name))
    pathlib.Path(partial, INDEX).write_text(json.dumps(copies), encoding="utf-8")
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
    if record_set.manifest is not None and is_unchanged(
        path, record_set.manifest.shards[number]
    ):
        return {}
    defects, offset, found = {}, 0, 0
    for record, (offset, payload, defect) in enumerate(_frames(path)):
        found = record + 1
        if payload is not None:
            defect = _payload_defect(payload, path, record_set)
        # Without a manifest, a broken last record is not counted, but must not be read.
        if defect and (record < count or record_set.manifest is None):
            defects[record] = offset, defect
    for record in range(found, count):
        defects[record] = offset, "missing: the file ends, or a corrupt length hides it"
    return defects


def _payload_defect(payload: bytes, path: str, record_set: RecordSet) -> str:
    try:
        check_payload(payload, path, record_set)
    except InputError as error:
        return error.received.removeprefix(f"{path}: ")
    return ""


def _write_copy(record_set: RecordSet, number: int, defects: dict, target: str) -> None:
    path, count = record_set.paths[number], record_set.counts[number]
    empty = _empty(record_set.max_length)
    with open(target, "wb") as file:
        frames = _frames(path)
        for record in range(count):
            found = next(frames, None)
            bad = record in defects
            file.write(frame(empty if bad else found.payload))


def _empty(length: int) -> bytes:
    zeros = tf.train.Feature(int64_list=tf.train.Int64List(value=[0] * length))
    features = tf.train.Features(feature=dict.fromkeys(FEATURES, zeros))
    return tf.train.Example(features=features).SerializeToString()


def _frames(path: str) -> Iterator[_Frame]:
    """Yield the records of a file; after a broken length nothing can be found."""
    with open(path, "rb") as file:
        offset = 0
        while header := file.read(_HEADER):
            found = _read_frame(file, header, offset)
            yield found
            if found.payload is None and found.defect != _PAYLOAD:
                return
            offset = file.tell()


_PAYLOAD = "another checksum of its content"


def _read_frame(file: BinaryIO, header: bytes, offset: int) -> _Frame:
    if len(header) < _HEADER or masked_crc(header[:8]) != header[8:]:
        return _Frame(offset, None, "a corrupt length; what follows is lost")
    (length,) = struct.unpack("<Q", header[:8])
    left = os.fstat(file.fileno()).st_size - file.tell()
    if length + 4 > min(left, _MAX_RECORD):
        return _Frame(offset, None, "the file ends within it, or it is too long")
    payload, checksum = file.read(length), file.read(4)
    if masked_crc(payload) != checksum:
        return _Frame(offset, None, _PAYLOAD)
    return _Frame(offset, payload)
