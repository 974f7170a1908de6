"""Bad records are replaced and searched; locks on records; cached counts."""

import itertools
import json
import multiprocessing
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.pretraining import InputConfig
from electra_tf.errors import InputError
from electra_tf.text import record_set as record_set_lib
from electra_tf.text.pipeline import (
    current_file,
    evaluation_batches,
    training_batches,
)
from electra_tf.text.record_repair import BAD, replace_bad_records
from electra_tf.text.record_set import open_records, reraise_bad_records
from electra_tf.text.records import FEATURES, MANIFEST
from electra_tf.text.records_lock import records_lock

FRAME = 16  # bytes beside a payload


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "records")


def open_any(folder, **options):
    return open_records(
        str(folder), max_length=32, tokenizer=None, vocabulary_size=1000, **options
    )


def shard(folder, number):
    return sorted(folder.glob("*.tfrecord-*"))[number]


def offsets(path):
    payloads = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    sizes = [len(payload) + FRAME for payload in payloads]
    return [0, *itertools.accumulate(sizes)]


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def rows(record_set):
    batches = evaluation_batches(record_set, 10)
    ids, masks = zip(*((b.input_ids_BL, b.input_mask_BL) for b in batches), strict=True)
    total = record_set.total
    return np.concatenate(ids)[:total], np.concatenate(masks)[:total]


def place(record_set, path, record):
    number = record_set.paths.index(str(path))
    return sum(record_set.counts[:number]) + record


@pytest.mark.parametrize("has_manifest", [True, False])
def test_bad_records_become_empty_and_all_others_stay(copy, tmp_path, has_manifest):
    whole = open_any(copy)
    before, _ = rows(whole)
    paths = [shard(copy, n) for n in range(4)]
    places = [offsets(path) for path in paths]
    flip(paths[0], places[0][4] + 20)  # the payload of record 4
    flip(paths[1], places[1][-3])  # the length of the last record but one
    paths[2].write_bytes(paths[2].read_bytes()[:-1])  # truncated
    bad_ids = tf.train.Example()
    for name in FEATURES:
        bad_ids.features.feature[name].int64_list.value.extend([1] * 31 + [1000])
    payloads = list(tf.data.TFRecordDataset(str(paths[3])).as_numpy_iterator())
    with tf.io.TFRecordWriter(str(paths[3])) as writer:
        for number, payload in enumerate(payloads):
            writer.write(bad_ids.SerializeToString() if number == 2 else payload)
    if not has_manifest:
        (copy / MANIFEST).unlink()
    with pytest.raises(InputError):
        open_any(copy)
    record_set, lines = open_any(copy, on_error="skip"), []
    folder = str(tmp_path / "intact")
    intact = replace_bad_records(record_set, folder, lines.append)
    counts = [len(place) - 1 for place in places]
    lost = {
        paths[0].name: [4],
        paths[1].name: [counts[1] - 2, counts[1] - 1],
        paths[2].name: [counts[2] - 1],
        paths[3].name: [2],
    }
    with open(os.path.join(folder, BAD)) as file:
        listed = [json.loads(line) for line in file]
    if not has_manifest:  # a record that nothing announces is not missed
        lost[paths[1].name].pop()
    found = {}
    for line in listed:
        found.setdefault(os.path.basename(line["file"]), []).append(line["record"])
    assert found == {name: numbers for name, numbers in lost.items() if numbers}
    assert f"{len(listed)} of {intact.total:,} records are bad" in lines[1]
    ids, masks = rows(intact)
    if has_manifest:
        assert intact.counts == whole.counts
        empty = [
            place(whole, copy / name, number)
            for name, numbers in lost.items()
            for number in numbers
        ]
        assert not masks[empty].any()
        assert not ids[empty].any()
        kept = np.setdiff1d(np.arange(whole.total), empty)
        np.testing.assert_array_equal(ids[kept], before[kept])
    # A resumed run uses the copies that exist.
    again = replace_bad_records(record_set, folder, lines.append)
    assert again == intact
    assert sum("searching" in line for line in lines) == 1


def test_too_many_bad_records_are_an_error(copy, tmp_path):
    for number in range(5):
        path = shard(copy, number)
        path.write_bytes(path.read_bytes()[:-2000])
    record_set = open_any(copy, on_error="skip")
    with pytest.raises(InputError, match="1%"):
        replace_bad_records(record_set, str(tmp_path / "intact"), lambda line: None)
    assert not (tmp_path / "intact").exists()


def test_the_search_begins_with_the_current_file(copy, monkeypatch):
    record_set, settings = open_any(copy), InputConfig(batch_size=8, shuffle_window=40)
    places, seen = {}, set()
    for number, path in enumerate(record_set.paths):
        payloads = tf.data.TFRecordDataset(path).batch(1000)
        for payload in next(iter(payloads)).numpy():
            places[payload] = number
    batches = record_set.total // 8
    for step in range(batches):
        seen.add(current_file(record_set, settings, step))
    assert seen == set(range(5))
    searched = []
    check = record_set_lib._check_frames
    monkeypatch.setattr(
        record_set_lib, "_check_frames", lambda p: (searched.append(p), check(p))
    )
    last, lines = shard(copy, 4), []
    flip(last, offsets(last)[3] + 20)

    def read():
        with reraise_bad_records(record_set, lambda: 3, lines.append):
            list(training_batches(record_set, settings).take(batches))

    with pytest.raises(InputError, match=f"{last.name}: record 3"):
        read()
    assert [os.path.basename(p)[-14:-9] for p in searched] == ["00003", "00004"]
    assert "searching 5 files" in lines[0]


def _hold(folder, exclusive, held, release):
    with records_lock(folder, exclusive):
        held.set()
        release.wait(60)


@pytest.mark.parametrize(
    ("other", "own", "is_free"),
    [(False, False, True), (False, True, False), (True, False, False)],
)
def test_trainers_share_records_and_a_builder_has_them_alone(
    tmp_path, other, own, is_free
):
    context = multiprocessing.get_context("fork")
    held, release = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(tmp_path, other, held, release))
    process.start()
    try:
        assert held.wait(60)
        if is_free:
            with records_lock(tmp_path, own):
                pass
        else:
            lock = records_lock(tmp_path, own)
            with pytest.raises(InputError, match="another process"):
                lock.__enter__()
    finally:
        release.set()
        process.join()
    with records_lock(tmp_path, own):
        pass


def test_records_in_use_are_not_built_again(copy, corpus_file, here):
    flags = f"--input={corpus_file}", f"--output={copy}", "--overwrite"
    flags += (f"--vocab={copy / 'vocab.txt'}", "--set=records.max_length=32")
    before = sorted(path.name for path in copy.iterdir())
    with records_lock(copy):
        result = here("build_records", *flags)
    assert result.returncode == 1
    assert "another process reads or builds" in result.stderr
    assert sorted(path.name for path in copy.iterdir()) == before


def test_counts_of_unchanged_files_are_not_read_again(copy, monkeypatch):
    (copy / MANIFEST).unlink()
    first, counted = open_any(copy), []
    count = record_set_lib._count_records
    monkeypatch.setattr(
        record_set_lib,
        "_count_records",
        lambda paths: (counted.append(len(paths)), count(paths))[1],
    )
    assert open_any(copy) == first
    path = shard(copy, 1)
    os.utime(path, ns=(1, 1))
    assert open_any(copy) == first
    assert counted == [0, 1]
