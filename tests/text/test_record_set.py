import json
import re
import shutil
import struct

import pytest
import tensorflow as tf

from electra_tf.config.pretraining import InputConfig, TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text.pipeline import evaluation_batches, training_batches
from electra_tf.text.record_set import (
    find_bad_record,
    open_records,
    reraise_bad_records,
)
from electra_tf.text.records import FEATURES, masked_crc
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary


def open_any(data, max_length=32, vocabulary_size=1000, **options):
    return open_records(
        str(data),
        max_length=max_length,
        tokenizer=None,
        vocabulary_size=vocabulary_size,
        **options,
    )


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


@pytest.fixture
def without_manifest(copy):
    """Return a folder with the same records and no manifest, as of another program."""
    for path in copy.iterdir():
        if "tfrecord" not in path.name:
            path.unlink()
    return copy


def shard(folder, number=0):
    return sorted(folder.glob("*tfrecord*"))[number]


def write(path, *examples):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for features in examples:
            message = tf.train.Example()
            for name, values in features.items():
                message.features.feature[name].int64_list.value.extend(values)
            writer.write(message.SerializeToString())


def test_records_with_a_manifest(folder, vocabulary):
    record_set = open_records(
        str(folder), max_length=32, tokenizer=Tokenizer(vocabulary)
    )
    assert len(record_set.paths) == 5
    assert record_set.total == record_set.manifest.records == sum(record_set.counts)
    assert record_set.vocabulary_size == 1000


def test_records_without_a_manifest_require_a_vocabulary_size(folder, without_manifest):
    record_set = open_records(str(folder), max_length=32, tokenizer=None)
    assert record_set.vocabulary_size == 1000
    with pytest.raises(InputError, match="tokenizer or vocabulary_size"):
        open_records(str(without_manifest), max_length=32, tokenizer=None)


def test_records_without_a_manifest_are_counted(without_manifest, folder):
    expected = open_any(folder)
    # The original writes 1,000 files with unpadded numbers to DATA/pretrain_tfrecords,
    # some of them empty.
    data = without_manifest.parent / "data"
    target = data / "pretrain_tfrecords"
    data.mkdir()
    without_manifest.rename(target)
    for i, path in enumerate(sorted(target.iterdir())):
        path.rename(target / f"pretrain_data.tfrecord-{i}-of-1000")
    (target / "pretrain_data.tfrecord-5-of-1000").touch()
    record_set = open_any(data)
    assert record_set.counts == (*expected.counts, 0)
    for pattern in (target, f"{target}/*-of-1000"):
        assert open_any(pattern).total == expected.total
    a, b = (
        next(iter(evaluation_batches(records, expected.total)))
        for records in (expected, record_set)
    )
    assert all((x.numpy() == y.numpy()).all() for x, y in zip(a, b, strict=True))
    assert (
        len(list(training_batches(record_set, InputConfig(batch_size=8)).take(9))) == 9
    )


def test_another_vocabulary_or_setting_is_rejected(folder, vocabulary):
    other = Vocabulary((*vocabulary.tokens[:-1], "another"))
    with pytest.raises(InputError, match="vocabulary_sha256"):
        open_records(str(folder), max_length=32, tokenizer=Tokenizer(other))
    cased = Tokenizer(vocabulary, TokenizationConfig(lower_case=False))
    with pytest.raises(InputError, match=r"lower_case True \(here False\)"):
        open_records(str(folder), max_length=32, tokenizer=cased)


def test_another_length_is_rejected(folder, without_manifest):
    for data in (folder, without_manifest):
        with pytest.raises(InputError, match=r"128 positions.*32.*max_length=32"):
            open_any(data, max_length=128)


def test_the_manifest_is_checked_for_globs_too(folder, vocabulary):
    other = Tokenizer(Vocabulary((*vocabulary.tokens[:-1], "another")))
    with pytest.raises(InputError, match="vocabulary_sha256"):
        open_records(f"{folder}/*tfrecord*", max_length=32, tokenizer=other)
    with pytest.raises(InputError, match="max_length=32"):
        open_any(f"{folder}/*tfrecord*", max_length=64)
    assert open_any(f"{folder}/*tfrecord*").total == open_any(folder).total


def test_verify_compares_checksums(copy):
    path = shard(copy, 2)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    open_any(copy)
    with pytest.raises(InputError, match=f"{path.name}.*SHA-256"):
        open_records(str(copy), max_length=32, tokenizer=None, verify=True)
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    open_records(str(copy), max_length=32, tokenizer=None, verify=True)


def test_data_without_records_is_rejected(tmp_path, folder):
    with pytest.raises(InputError, match="no file"):
        open_any(tmp_path)
    with pytest.raises(InputError, match="no file"):
        open_any(tmp_path / "nowhere*")
    (tmp_path / "a.tfrecord").touch()
    with pytest.raises(InputError, match="0 records"):
        open_any(tmp_path)


def test_a_half_written_folder_is_rejected(without_manifest):
    (without_manifest / "_building").mkdir()
    with pytest.raises(InputError, match=r"half-written.*--overwrite"):
        open_any(without_manifest)
    with pytest.raises(InputError, match=r"half-written.*--overwrite"):
        open_any(f"{without_manifest}/*tfrecord*")


def test_a_missing_or_truncated_file_of_a_manifest_is_rejected(copy):
    path = shard(copy, 2)
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(InputError, match=f"{path.name}.*{len(data)}.*{len(data) - 1}"):
        open_any(copy)
    path.unlink()
    with pytest.raises(InputError, match=f"{path.name}.*no such file"):
        open_any(copy)


def test_the_error_of_a_truncated_file_names_record_and_byte(without_manifest):
    path = shard(without_manifest, 1)
    sizes = [16 + len(p.numpy()) for p in tf.data.TFRecordDataset(str(path))]
    path.write_bytes(path.read_bytes()[:-1])
    last, offset = len(sizes) - 1, sum(sizes[:-1])
    with pytest.raises(
        InputError, match=f"{path.name}: record {last}, at byte {offset} "
    ):
        open_any(without_manifest)


def read_all(record_set, kind):
    with reraise_bad_records(record_set):
        if kind == "training":
            count = record_set.total // 8
            list(training_batches(record_set, InputConfig(batch_size=8)).take(count))
        else:
            list(evaluation_batches(record_set, 8))


@pytest.mark.parametrize("kind", ["training", "evaluation"])
def test_the_error_of_a_corrupt_record_names_file_and_byte(copy, kind):
    record_set = open_any(copy)
    read_all(record_set, kind)
    path = shard(copy, 3)
    sizes = [16 + len(p.numpy()) for p in tf.data.TFRecordDataset(str(path))]
    data = bytearray(path.read_bytes())
    data[sum(sizes[:4]) + 20] ^= 1
    path.write_bytes(data)
    words = f"{path.name}: record 4, at byte {sum(sizes[:4])} of {len(data)}"
    with pytest.raises(InputError, match=words):
        read_all(record_set, kind)


ROW = {name: [1] * 32 for name in FEATURES}
BAD_ROWS = {
    "the id 1000; the vocabulary has 1000": {**ROW, "input_ids": [1] * 31 + [1000]},
    "the id -1;": {**ROW, "input_ids": [-1] + [1] * 31},
    "no segment_ids; ": {n: ROW[n] for n in FEATURES[:2]},
    "different lengths.*'input_mask': 31": {**ROW, "input_mask": [1] * 31},
    "32 positions.*record 1: 31.*max_length=31": {n: [1] * 31 for n in FEATURES},
}


@pytest.mark.parametrize("kind", ["training", "evaluation"])
@pytest.mark.parametrize("words", BAD_ROWS)
def test_the_error_of_an_invalid_record_names_file_and_number(tmp_path, words, kind):
    write(tmp_path / "a.tfrecord", *[ROW] * 8)
    write(tmp_path / "b.tfrecord", ROW, BAD_ROWS[words], *[ROW] * 6)
    record_set = open_any(tmp_path)
    with pytest.raises(InputError, match=words) as error:
        read_all(record_set, kind)
    assert "b.tfrecord: record 1" in str(error.value)


def test_a_payload_that_is_no_example_is_rejected(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        writer.write(b"no example")
    with pytest.raises(InputError, match=r"record 0: no tf\.train\.Example"):
        open_any(tmp_path)


def test_errors_of_other_causes_are_not_changed(folder):
    with (
        pytest.raises(tf.errors.InvalidArgumentError, match="other"),
        reraise_bad_records(open_any(folder)),
    ):
        raise tf.errors.InvalidArgumentError(None, None, "other")


@pytest.mark.parametrize("length", [2**27, 2**40, 2**64 - 6])
def test_a_record_that_states_a_huge_length_is_reported(length, without_manifest):
    """TensorFlow's reader would end the process."""
    stated = struct.pack("<Q", length)
    with shard(without_manifest, 1).open("ab") as file:
        file.write(stated + masked_crc(stated) + b"abc")
    with pytest.raises(InputError, match=f"{length:,} bytes"):
        open_any(without_manifest)
    record_set = open_any(without_manifest, on_error="skip")
    with pytest.raises(InputError, match=f"{length:,} bytes"):
        find_bad_record(record_set)


def test_a_record_of_a_manifest_that_states_a_huge_length_is_reported(folder, tmp_path):
    """The manifest may be as false as the file."""
    folder = shutil.copytree(folder, tmp_path / "copy")
    stated = struct.pack("<Q", 2**40)
    path = shard(folder, 1)
    with path.open("ab") as file:
        file.write(stated + masked_crc(stated) + b"abc")
    manifest = json.loads((folder / "manifest.json").read_text())
    (entry,) = [e for e in manifest["shards"] if e["file"] == path.name]
    entry |= {"bytes": path.stat().st_size, "records": entry["records"] + 1}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=f"{2**40:,} bytes"):
        open_any(folder)


@pytest.mark.parametrize("content", [b"[1]", b'{"a": 1}', b"[" * 10_000, b"\xff"])
def test_a_damaged_cache_of_counts_is_not_used(
    content, without_manifest, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    total = open_any(without_manifest).total
    (cache,) = (tmp_path / "cache").rglob("*.json")
    for damaged in (content, re.sub(rb"\d+\]", b"-1]", cache.read_bytes())):
        cache.write_bytes(damaged)
        assert open_any(without_manifest).total == total


def test_lengths_are_searched_once_for_a_file(folder, tmp_path, monkeypatch):
    """The search takes a second for a million records."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    open_any(folder)
    (cache,) = (tmp_path / "cache").rglob("record_lengths.json")
    assert set(json.loads(cache.read_text())) == set(
        map(str, folder.glob("*tfrecord*"))
    )
    before = cache.stat().st_mtime_ns
    open_any(folder)
    assert cache.stat().st_mtime_ns == before


def test_globs_and_urls_may_be_mixed(folder, tmp_path):
    parts = [str(shard(folder, 0)), f"file://{shard(folder, 1)}"]
    record_set = open_any(",".join(parts))
    whole = open_any(folder)
    assert record_set.counts == whole.counts[:2]
