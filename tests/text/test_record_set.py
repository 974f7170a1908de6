"""Records are opened, checked, counted and locked; bad ones are found."""

import contextlib
import itertools
import shutil
import uuid

import pytest
import tensorflow as tf

from electra_tf.config.data import InputConfig, TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.storage.objects import ObjectFolder
from electra_tf.text.pipeline import evaluation_batches, training_batches
from electra_tf.text.record_set import open_records, reraise_bad_records
from electra_tf.text.records import FEATURES, records_lock
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import Vocabulary


def open_any(data, max_length=32, **options):
    options = {"tokenizer": None, "vocabulary_size": 1000, **options}
    return open_records(str(data), max_length=max_length, **options)


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


def offsets(path):
    payloads = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    return [0, *itertools.accumulate(len(payload) + 16 for payload in payloads)]


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def write(path, *examples):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for features in examples:
            message = tf.train.Example()
            for name, values in features.items():
                message.features.feature[name].int64_list.value.extend(values)
            writer.write(message.SerializeToString())


def test_records_with_a_manifest(folder, vocabulary):
    tokenizer = WordPieceTokenizer(vocabulary)
    record_set = open_any(folder, tokenizer=tokenizer, vocabulary_size=0)
    assert len(record_set.paths) == 5
    assert record_set.total == record_set.manifest.records == sum(record_set.counts)
    assert record_set.vocabulary_size == 1000
    assert open_any(folder, vocabulary_size=0).vocabulary_size == 1000
    assert open_any(f"{folder}/*tfrecord*").counts == record_set.counts
    parts = f"{shard(folder, 0)},file://{shard(folder, 1)}"
    assert open_any(parts).counts == record_set.counts[:2]


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
    batches = training_batches(record_set, InputConfig(batch_size=8))
    assert len(list(batches.take(9))) == 9


def test_records_of_other_settings_are_rejected(folder, vocabulary):
    cased = WordPieceTokenizer(vocabulary, TokenizationConfig(lower_case=False))
    other = WordPieceTokenizer(Vocabulary((*vocabulary.tokens[:-1], "another")))
    for words, options in {
        r"lower_case True \(here False\)": {"tokenizer": cased},
        "vocabulary_sha256": {"tokenizer": other},
        r"128 positions.*32.*max_length=32": {"max_length": 128},
    }.items():
        for data in (folder, f"{folder}/*tfrecord*"):
            with pytest.raises(InputError, match=words):
                open_any(data, **options)


def truncate(folder):
    path = shard(folder, 1)
    path.write_bytes(path.read_bytes()[:-1])


def only(folder, name):
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / name).touch()


ROW = {name: [1] * 32 for name in FEATURES}
SHORT = {name: [1] * 31 for name in FEATURES}
# Damage of records that have no manifest, and words of the message.
DAMAGE = {
    "truncated": (truncate, r"00001-of-00005: record \d+, at byte \d+ of \d+"),
    "length": (lambda f: write(shard(f), SHORT), "31.*config's 32"),
    "half-written": (
        lambda f: (f / "config.yaml").touch(),
        "half-written.*--overwrite",
    ),
    "no file": (lambda f: only(f, "other"), "no file"),
    "no record": (lambda f: only(f, "a.tfrecord"), "0 records"),
    "no example": (
        lambda f: tf.io.TFRecordWriter(str(shard(f))).write(b"no example"),
        r"record 0,.*no tf\.train\.Example",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_without_a_manifest_is_named(without_manifest, name):
    change, words = DAMAGE[name]
    change(without_manifest)
    for data in (without_manifest, f"{without_manifest}/*tfrecord*"):
        with pytest.raises(InputError, match=words):
            open_any(data)
    with pytest.raises(InputError, match=r"tokenizer or vocabulary_size|half-written"):
        open_any(without_manifest, vocabulary_size=0)


def test_damage_with_a_manifest_is_named(copy):
    path = shard(copy, 2)
    data = path.read_bytes()
    flip(path, len(data) // 2)
    open_any(copy)
    with pytest.raises(InputError, match=f"{path.name}.*SHA-256"):
        open_any(copy, verify=True)
    path.write_bytes(data)
    open_any(copy, verify=True)
    path.write_bytes(data[:-1])
    with pytest.raises(InputError, match=f"{path.name}.*{len(data)}.*{len(data) - 1}"):
        open_any(copy)
    path.unlink()
    with pytest.raises(InputError, match=f"{path.name}.*no such file"):
        open_any(copy)


def read_all(record_set, kind="training"):
    with reraise_bad_records(record_set):
        if kind == "training":
            count = record_set.total // 8
            list(training_batches(record_set, InputConfig(batch_size=8)).take(count))
        else:
            list(evaluation_batches(record_set, 8))


BAD_ROWS = {
    "the id 1000, of a vocabulary of 1000 entries": {
        **ROW,
        "input_ids": [1] * 31 + [1000],
    },
    "the id -1, of": {**ROW, "input_ids": [-1] + [1] * 31},
    "no segment_ids; ": {n: ROW[n] for n in FEATURES[:2]},
    "'input_mask': 31.*config's 32": {**ROW, "input_mask": [1] * 31},
    "'input_ids': 31.*config's 32": SHORT,
}


def test_the_error_of_a_corrupt_record_names_file_and_byte(copy, folder):
    record_set = open_any(copy)
    path = shard(copy, 3)
    offset = offsets(path)[4]
    flip(path, offset + 20)
    for kind in ("training", "evaluation"):
        words = f"{path.name}: record 4, at byte {offset} of"
        with pytest.raises(InputError, match=words):
            read_all(record_set, kind)
    with (
        pytest.raises(tf.errors.InvalidArgumentError, match="other"),
        reraise_bad_records(open_any(folder)),
    ):
        raise tf.errors.InvalidArgumentError(None, None, "other")


@pytest.mark.parametrize("words", BAD_ROWS)
def test_the_error_of_a_bad_row_names_file_and_record(tmp_path, words):
    write(tmp_path / "a.tfrecord", *[ROW] * 8)
    write(tmp_path / "b.tfrecord", ROW, BAD_ROWS[words], *[ROW] * 6)
    record_set = open_any(tmp_path)
    with pytest.raises(InputError, match=words) as error:
        read_all(record_set, "evaluation")
    assert "b.tfrecord: record 1, at byte" in str(error.value)


@pytest.mark.parametrize(
    ("other", "own", "is_free"),
    [(False, False, True), (False, True, False), (True, False, False)],
)
def test_trainers_share_records_and_a_builder_has_them_alone(
    tmp_path, other, own, is_free
):
    result = contextlib.nullcontext()
    if not is_free:
        result = pytest.raises(InputError, match="another process")
    with records_lock(tmp_path, other), result, records_lock(tmp_path, own):
        pass
    with records_lock(tmp_path, own):
        pass


def test_records_in_use_are_not_built_again(copy, folder, corpus_file, here):
    flags = f"--input={corpus_file}", f"--output={copy}", "--overwrite"
    flags += (f"--vocab={folder / 'vocab.txt'}", "--set=records.max_length=32")
    before = sorted(path.name for path in copy.iterdir())
    with records_lock(copy):
        result = here("build_records", *flags)
    assert result.returncode == 1
    assert "another process reads or builds" in result.stderr
    assert sorted(path.name for path in copy.iterdir()) == before


def test_damaged_records_at_a_url_are_named(folder):
    store = ObjectFolder(f"memory://{uuid.uuid4().hex}/records")
    for path in folder.iterdir():
        store.write(path.name, path.read_bytes())
    name = min(name for name in store.find() if "tfrecord" in name)
    data = store.read(name)

    def fails(words):
        with pytest.raises(InputError, match=f"{name} {words}"):
            open_any(store.url)

    store.write(name, data[:-1])
    fails(r"must have the \d+ bytes")
    store.write(name, data[:-1] + bytes([data[-1] ^ 1]))
    fails("is damaged.*checksum")
    store.delete(name)
    fails(".*no such file")
