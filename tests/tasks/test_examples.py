import itertools

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.tasks.examples import (
    LENGTHS,
    EncodedExamples,
    epoch_batch_indices,
    eval_dataset,
    padded_length,
    prediction_batch_indices,
    training_batch_indices,
    training_dataset,
)

IDS = [[2, 7, 3], [2, 8, 9, 3], [2, 3]]
SEGMENTS = [[0, 0, 0], [0, 0, 1, 1], [0, 0]]


def lengths_of(count, max_length=100):
    return np.random.default_rng(5).integers(2, max_length, count)


def examples_of(lengths, targets=None, max_length=128):
    ids = [[7] * length for length in lengths]
    return EncodedExamples(
        ids, [[0] * length for length in lengths], max_length, targets
    )


def test_a_batch_by_hand():
    examples = EncodedExamples(IDS, SEGMENTS, 128, [1, 0, 2])
    assert len(examples) == 3
    assert examples.lengths.tolist() == [3, 4, 2]
    inputs, targets_B, weights_B = examples.batch([1, 2], 3)
    expected = {
        "token_ids": [[2, 8, 9, 3], [2, 3], []],
        "segment_ids": [[0, 0, 1, 1], [0, 0], []],
        "padding_mask": [[1, 1, 1, 1], [1, 1], []],
    }
    assert set(inputs) == set(expected)
    for name, rows in expected.items():
        assert inputs[name].dtype == np.int32
        assert inputs[name].tolist() == [row + [0] * (8 - len(row)) for row in rows]
    assert targets_B.tolist() == [0, 2, 0]
    assert targets_B.dtype == np.int32
    assert weights_B.tolist() == [1, 1, 0]
    assert weights_B.dtype == np.float32


def test_targets_by_name_for_tokens_and_scores():
    def batch(targets, rows, size):
        return EncodedExamples(IDS, SEGMENTS, 128, targets).batch(rows, size)[1]

    found = batch(
        {"odds": [0.5, 1, 0], "tags": [[7] * len(ids) for ids in IDS]}, [1], 2
    )
    assert (found["odds"].dtype, found["odds"].tolist()) == (np.float32, [1, 0])
    assert found["tags"].tolist() == [[7] * 4 + [-1] * 4, [-1] * 8]
    assert batch(None, [0, 1, 2], 3).tolist() == [0, 0, 0]
    for scores in ([0, 0.5, 1], np.array([0, 0.5, 1]), np.float32([0, 0.5, 1])):
        found = batch(scores, [0, 1], 2)
        assert (found.dtype, found.tolist()) == (np.float32, [0, 0.5])
    # Also a batch of which all scores are whole numbers.
    examples = EncodedExamples(IDS, SEGMENTS, 128, [0, 0.5, 1])
    batches = [
        scores_B.numpy().tolist() for _, scores_B, _ in eval_dataset(examples, 1)
    ]
    assert batches == [[0.5], [0.0], [1.0]]
    with pytest.raises(ValueError, match=r"2 numbers for 3 .*a dictionary of lists"):
        batch([[0.5, 0.1]] * 3, [0], 1)


def test_padded_length():
    assert [padded_length(n) for n in (1, 16, 17, 33, 128, 129, 512)] == [
        8, 16, 20, 40, 128, 160, 512
    ]  # fmt: skip
    assert [padded_length(n) for n in (513, 640, 641)] == [640, 640, 768]
    found = {padded_length(n) for n in range(1, 513)}
    assert found == set(LENGTHS)


@pytest.mark.parametrize(
    ("longest", "max_length", "expected"),
    [(113, 128, 128), (113, 120, 120), (33, 39, 39), (30, 40, 32), (150, 128, 150)],
)
def test_a_batch_is_at_most_max_length_unless_an_example_is_longer(
    longest, max_length, expected
):
    inputs, _, _ = examples_of([5, longest], max_length=max_length).batch([0, 1], 2)
    assert inputs["token_ids"].shape == (2, expected)
    assert inputs["token_ids"][1].sum() == 7 * longest


@pytest.mark.parametrize("count", [1, 7, 8, 9, 399, 400, 401, 1003])
def test_each_example_is_in_one_batch_of_an_epoch(count):
    lengths = lengths_of(count)
    for epoch in range(3):
        batches = training_batch_indices(lengths, 8, 3, epoch)
        assert sorted(np.concatenate(batches)) == list(range(count))
        assert (
            len(batches) == -(-count // 8) == len(prediction_batch_indices(lengths, 8))
        )
        sizes = sorted(map(len, batches))
        assert sizes[1:] == [8] * (len(batches) - 1)
        assert sizes[0] == count - 8 * (len(batches) - 1)


def test_batches_are_a_function_of_seed_and_epoch():
    def batches(seed, epoch):
        return [
            rows.tolist() for rows in training_batch_indices(lengths, 8, seed, epoch)
        ]

    lengths = lengths_of(1000)
    assert batches(1, 0) == batches(1, 0)
    for other in (batches(1, 1), batches(2, 0)):
        same = set(map(frozenset, batches(1, 0))) & set(map(frozenset, other))
        assert len(same) < 3


def test_batches_have_similar_lengths_in_random_order():
    lengths = lengths_of(4000)
    batches = training_batch_indices(lengths, 8, 0, 0)

    def padding(batches):
        return (
            sum(len(rows) * lengths[rows].max() for rows in batches) / lengths.sum() - 1
        )

    at_random = np.random.default_rng(0).permutation(4000).reshape(-1, 8)
    assert padding(batches) < 0.03 < 0.5 < padding(at_random)
    means = np.array([lengths[rows].mean() for rows in batches])
    assert abs(np.corrcoef(means[1:], means[:-1])[0, 1]) < 0.2


def test_the_smaller_batch_is_random():
    # A mean over that batch gives each of its examples more weight.
    lengths = np.arange(2, 43)
    lengths_alone = {
        int(lengths[min(training_batch_indices(lengths, 8, 0, epoch), key=len)[0]])
        for epoch in range(100)
    }
    assert len(lengths_alone) == 6
    assert min(lengths_alone) < 10
    assert max(lengths_alone) == 42


def test_prediction_batches_begin_with_the_longest():
    batches = prediction_batch_indices(np.array([3, 9, 5, 9, 4]), 2)
    assert [rows.tolist() for rows in batches] == [[1, 3], [2, 4], [0]]
    assert prediction_batch_indices(np.array([], np.int64), 2) == []


def test_each_pass_is_the_next_epoch():
    examples = examples_of([3, 20, 5, 40, 4], [0, 1, 2, 3, 4])
    epochs_of_batches = [
        training_batch_indices(examples.lengths, 2, 0, epoch) for epoch in range(3)
    ]
    found = training_dataset(examples, 2, iter(epochs_of_batches))
    assert found.cardinality() == 3
    for batches in epochs_of_batches:
        for (inputs, targets_B, weights_B), rows in zip(found, batches, strict=True):
            assert targets_B.numpy()[: len(rows)].tolist() == rows.tolist()
            assert weights_B.numpy().tolist() == [1.0] * len(rows) + [0.0] * (
                2 - len(rows)
            )
            longest = padded_length(examples.lengths[rows].max())
            assert inputs["token_ids"].shape == (2, longest)
            ids = inputs["token_ids"].numpy()
            np.testing.assert_array_equal(
                (ids > 0).sum(1)[: len(rows)], examples.lengths[rows]
            )


def test_eval_dataset_repeats_the_same_batches():
    found = eval_dataset(examples_of(lengths_of(9), list(range(9))), 4)
    passes = [[b[1].numpy().tolist() for b in found] for _ in range(2)]
    assert passes[0] == passes[1]
    assert len(passes[0]) == found.cardinality() == 3
    assert sorted(itertools.chain(*passes[0])) == [0, 0, 0, 0, *range(1, 9)]
    shapes = tf.nest.map_structure(
        lambda spec: spec.shape.as_list(), found.element_spec
    )
    assert shapes[0]["token_ids"] == [4, None]
    assert shapes[1:] == ([4], [4])
    assert found.options().autotune.enabled is False  # it delays the end of each pass


def test_epoch_batch_indices_depend_on_seed_and_updates():
    lengths = np.arange(10, 30)
    updates = iter([0, 4, 10])  # of 5 in an epoch
    epochs = epoch_batch_indices(lengths, 4, lambda: (7, next(updates)))
    for epoch in (0, 0, 2):
        expected = training_batch_indices(lengths, 4, 7, epoch)
        for batch, indices in zip(next(epochs), expected, strict=True):
            np.testing.assert_array_equal(batch, indices)
    in_order = epoch_batch_indices(lengths[:5], 4, lambda: (7, 0), shuffle=False)
    for _ in range(2):
        assert [rows.tolist() for rows in next(in_order)] == [[0, 1, 2, 3], [4]]
