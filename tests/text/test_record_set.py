import shutil

import pytest
import tensorflow as tf

from electra_tf.config.pretraining import InputConfig, TokenizationConfig
from electra_tf.errors import InputError
from electra_tf.text.pipeline import evaluation_batches, training_batches
from electra_tf.text.record_set import open_records, reraise_bad_records
from electra_tf.text.records import FEATURES
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import Vocabulary


def open_any(data, max_length=32, vocabulary_size=1000):
    return open_records(
        str(data),
        max_length=max_length,
        tokenizer=None,
        vocabulary_size=vocabulary_size,
    )


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


@pytest.fixture
def foreign(copy):
    """The same records as another program leaves them: no manifest."""
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


def test_own_records_are_opened_by_their_manifest(folder, vocabulary):
    found = open_records(str(folder), max_length=32, tokenizer=Tokenizer(vocabulary))
    assert len(found.paths) == 5
    assert found.total == found.manifest.records == sum(found.counts)
    assert found.vocabulary_size == 1000


def test_the_size_of_the_vocabulary_must_be_known(folder, foreign):
    assert (
        open_records(str(folder), max_length=32, tokenizer=None).vocabulary_size == 1000
    )
    with pytest.raises(InputError, match="tokenizer or a vocabulary_size"):
        open_records(str(foreign), max_length=32, tokenizer=None)


def test_records_of_the_original_and_of_nvidia_are_opened_by_counting(foreign, folder):
    own = open_any(folder)
    # The original always makes 1,000 files, some of them empty, numbered unpadded,
    # in DATA/pretrain_tfrecords.
    data = foreign.parent / "data"
    target = data / "pretrain_tfrecords"
    data.mkdir()
    foreign.rename(target)
    for i, path in enumerate(sorted(target.iterdir())):
        path.rename(target / f"pretrain_data.tfrecord-{i}-of-1000")
    (target / "pretrain_data.tfrecord-5-of-1000").touch()
    found = open_any(data)
    assert found.counts == (*own.counts, 0)
    assert open_any(target).total == open_any(f"{target}/*-of-1000").total == own.total
    a, b = (next(iter(evaluation_batches(f, own.total))) for f in (own, found))
    assert all((x.numpy() == y.numpy()).all() for x, y in zip(a, b, strict=True))
    assert len(list(training_batches(found, InputConfig(batch_size=8)).take(9))) == 9


def test_records_of_another_vocabulary_or_setting_are_refused(folder, vocabulary):
    other = Vocabulary((*vocabulary.tokens[:-1], "another"))
    with pytest.raises(InputError, match="vocabulary_sha256"):
        open_records(str(folder), max_length=32, tokenizer=Tokenizer(other))
    cased = Tokenizer(vocabulary, TokenizationConfig(lower_case=False))
    with pytest.raises(InputError, match=r"lower_case True \(here False\)"):
        open_records(str(folder), max_length=32, tokenizer=cased)


def test_records_of_another_length_are_refused(folder, foreign):
    for data in (folder, foreign):
        with pytest.raises(InputError, match=r"128 positions.*32.*max_length=32"):
            open_any(data, max_length=128)


def test_naming_the_files_does_not_get_round_the_manifest(folder, vocabulary):
    other = Tokenizer(Vocabulary((*vocabulary.tokens[:-1], "another")))
    with pytest.raises(InputError, match="vocabulary_sha256"):
        open_records(f"{folder}/*tfrecord*", max_length=32, tokenizer=other)
    with pytest.raises(InputError, match="max_length=32"):
        open_any(f"{folder}/*tfrecord*", max_length=64)
    assert open_any(f"{folder}/*tfrecord*").total == open_any(folder).total


def test_checksums_are_compared_on_request(copy):
    path = shard(copy, 2)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    open_any(copy)
    with pytest.raises(InputError, match=f"{path.name} has the checksum"):
        open_records(str(copy), max_length=32, tokenizer=None, verify=True)
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    open_records(str(copy), max_length=32, tokenizer=None, verify=True)


def test_a_place_without_records_is_told(tmp_path, folder):
    with pytest.raises(InputError, match="where none are"):
        open_any(tmp_path)
    with pytest.raises(InputError, match="where none are"):
        open_any(tmp_path / "nowhere*")
    (tmp_path / "a.tfrecord").touch()
    with pytest.raises(InputError, match="none"):
        open_any(tmp_path)


def test_a_half_written_folder_is_refused(foreign):
    (foreign / "_building").mkdir()
    with pytest.raises(InputError, match=r"broken off.*--overwrite"):
        open_any(foreign)
    with pytest.raises(InputError, match=r"broken off.*--overwrite"):
        open_any(f"{foreign}/*tfrecord*")


def test_a_missing_or_shortened_file_is_told_at_once(copy):
    path = shard(copy, 2)
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(InputError, match=f"{path.name}.*{len(data)}.*{len(data) - 1}"):
        open_any(copy)
    path.unlink()
    with pytest.raises(InputError, match=f"{path.name}.*no such file"):
        open_any(copy)


def test_a_truncated_foreign_file_is_told_with_record_and_byte(foreign):
    path = shard(foreign, 1)
    sizes = [16 + len(p.numpy()) for p in tf.data.TFRecordDataset(str(path))]
    path.write_bytes(path.read_bytes()[:-1])
    last, offset = len(sizes) - 1, sum(sizes[:-1])
    with pytest.raises(
        InputError, match=f"{path.name}: record {last}, at byte {offset} "
    ):
        open_any(foreign)


def read_all(found, kind):
    with reraise_bad_records(found):
        if kind == "training":
            count = found.total // 8
            list(training_batches(found, InputConfig(batch_size=8)).take(count))
        else:
            list(evaluation_batches(found, 8))


@pytest.mark.parametrize("kind", ["training", "evaluation"])
def test_a_record_that_rots_later_is_told_with_file_and_byte(copy, kind):
    found = open_any(copy)
    read_all(found, kind)
    path = shard(copy, 3)
    sizes = [16 + len(p.numpy()) for p in tf.data.TFRecordDataset(str(path))]
    data = bytearray(path.read_bytes())
    data[sum(sizes[:4]) + 20] ^= 1
    path.write_bytes(data)
    words = f"{path.name}: record 4, at byte {sum(sizes[:4])} of {len(data)}"
    with pytest.raises(InputError, match=words):
        read_all(found, kind)


ROW = {name: [1] * 32 for name in FEATURES}
BAD_ROWS = {
    "the id 1000; the vocabulary has 1000": {**ROW, "input_ids": [1] * 31 + [1000]},
    "the id -1;": {**ROW, "input_ids": [-1] + [1] * 31},
    "no segment_ids among": {n: ROW[n] for n in FEATURES[:2]},
    "different lengths.*'input_mask': 31": {**ROW, "input_mask": [1] * 31},
    "32 positions.*record 1: 31.*max_length=31": {n: [1] * 31 for n in FEATURES},
}


@pytest.mark.parametrize("kind", ["training", "evaluation"])
@pytest.mark.parametrize("words", BAD_ROWS)
def test_a_bad_record_is_told_with_file_and_number(tmp_path, words, kind):
    write(tmp_path / "a.tfrecord", *[ROW] * 8)
    write(tmp_path / "b.tfrecord", ROW, BAD_ROWS[words], *[ROW] * 6)
    found = open_any(tmp_path)
    with pytest.raises(InputError, match=words) as error:
        read_all(found, kind)
    assert "b.tfrecord: record 1" in str(error.value)


def test_a_file_of_something_else_is_told(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        writer.write(b"no example")
    with pytest.raises(InputError, match=r"record 0: no tf\.train\.Example"):
        open_any(tmp_path)


def test_an_error_that_is_not_the_datas_keeps_its_own_words(folder):
    with (
        pytest.raises(tf.errors.InvalidArgumentError, match="other"),
        reraise_bad_records(open_any(folder)),
    ):
        raise tf.errors.InvalidArgumentError(None, None, "other")
