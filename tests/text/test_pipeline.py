import itertools

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.data import InputConfig
from electra_tf.errors import InputError
from electra_tf.text.pipeline import count_tokens, evaluation_batches, training_batches
from electra_tf.text.record_set import RecordSet, open_records


@pytest.fixture(scope="module")
def record_set(folder):
    return open_records(
        str(folder), max_length=32, tokenizer=None, vocabulary_size=1000
    )


@pytest.fixture(scope="module")
def rows(record_set):
    """Return every record, in the order of the files."""
    return np.concatenate([b.input_ids_BL for b in evaluation_batches(record_set, 10)])[
        : record_set.total
    ]


def settings(**changes):
    return InputConfig(**{"batch_size": 8, "seed": 3, "shuffle_window": 100, **changes})


def ids(dataset, count):
    return [b.input_ids_BL.numpy() for b in itertools.islice(dataset, count)]


def sorted_rows(rows_BL):
    return sorted(map(bytes, np.ascontiguousarray(rows_BL)))


def test_tokens_are_counted_without_padding(record_set, rows):
    counts = count_tokens(record_set)
    assert counts.shape == (1000,)
    np.testing.assert_array_equal(
        counts[1:], np.bincount(rows.ravel(), minlength=1000)[1:]
    )
    assert counts[0] == 0


def test_batches_are_int32_of_a_static_shape(record_set):
    for dataset in (
        training_batches(record_set, settings()),
        evaluation_batches(record_set, 8),
    ):
        assert set(dataset.element_spec) == {tf.TensorSpec([8, 32], tf.int32)}
        # Its thread sleeps for up to a minute, and an iterator waits for it at its end.
        assert dataset.options().autotune.enabled is False


def test_an_epoch_contains_every_record_once_except_the_remainder(record_set, rows):
    batches, rest = divmod(record_set.total, 8)
    assert rest
    dataset = training_batches(record_set, settings())
    read = ids(dataset, 2 * batches)
    first, second = read[:batches], read[batches:]
    for epoch in (first, second):
        unused = sorted_rows(rows)
        for row in sorted_rows(np.concatenate(epoch)):
            unused.remove(row)
        assert len(unused) == rest
    assert not np.array_equal(first, second)


def test_the_order_depends_on_the_seed_alone(record_set):
    def stream(**changes):
        return np.stack(ids(training_batches(record_set, settings(**changes)), 20))

    first = stream()
    tf.random.set_seed(99)
    assert np.array_equal(first, stream())
    assert not np.array_equal(first, stream(seed=4))


def test_the_stream_resumes_with_the_next_record(record_set):
    batches, config = record_set.total // 8, settings(shuffle_window=100)
    whole = ids(training_batches(record_set, config), 2 * batches + 10)
    # Across the border of a window, at the end of an epoch and beyond.
    for first in (12, batches - 1, batches, 2 * batches + 5):
        dataset = training_batches(record_set, config, first_batch=first)
        for a, b in zip(whole[first:], ids(dataset, 5), strict=False):
            assert np.array_equal(a, b)


def test_shuffling_is_uniform(record_set, tmp_path):
    path = str(tmp_path / "four.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for payload in tf.data.TFRecordDataset(record_set.paths[0]).take(4):
            writer.write(payload.numpy())
    four = RecordSet((path,), (4,), 32, 1000)
    (rows,) = ids(evaluation_batches(four, 4), 1)
    number = {bytes(row): i for i, row in enumerate(rows)}
    epochs = 600
    batches = ids(training_batches(four, settings(batch_size=4)), epochs)
    orders = [tuple(number[bytes(row)] for row in batch) for batch in batches]
    counts = np.array([orders.count(p) for p in itertools.permutations(range(4))])
    chi_square = ((counts - epochs / 24) ** 2 / (epochs / 24)).sum()
    assert chi_square < 23 + 5 * (2 * 23) ** 0.5


def test_hosts_together_return_the_batches_of_one_host(record_set):
    hosts = 2
    whole = ids(training_batches(record_set, settings()), 12)
    parts = [
        ids(training_batches(record_set, settings(), host=h, hosts=hosts), 12)
        for h in range(hosts)
    ]
    for number, batch in enumerate(whole):
        assert np.array_equal(batch, np.concatenate([p[number] for p in parts]))


@pytest.mark.parametrize("hosts", [1, 4])
def test_the_last_evaluation_batch_is_padded_with_zero_rows(record_set, rows, hosts):
    size = 4 * hosts + (
        record_set.total % 2
    )  # with a remainder, and a host without records
    size = size - size % hosts
    parts = [
        list(evaluation_batches(record_set, size, host=h, hosts=hosts))
        for h in range(hosts)
    ]
    assert len({len(part) for part in parts}) == 1
    batches = [
        [np.concatenate(field) for field in zip(*group, strict=True)]
        for group in zip(*parts, strict=True)
    ]
    tokens, mask, segments = (
        np.concatenate(field) for field in zip(*batches, strict=True)
    )
    assert np.array_equal(tokens[: record_set.total], rows)
    assert len(tokens) % size == 0
    assert not mask[record_set.total :].any()
    assert not tokens[record_set.total :].any()
    assert not segments[record_set.total :].any()
    assert mask[: record_set.total].any(axis=1).all()
    assert np.array_equal(mask[: record_set.total], rows > 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch_size": 10**6}, r"\d records.*input.batch_size"),
        ({"hosts": 3}, "multiple of 3"),
    ],
)
def test_impossible_batches_are_errors(record_set, changes, words):
    options = dict(changes)
    config = settings(batch_size=options.pop("batch_size", 8))
    with pytest.raises(InputError, match=words):
        training_batches(record_set, config, **options)
    if "hosts" in changes:
        with pytest.raises(InputError, match=words):
            evaluation_batches(record_set, 8, **changes)
