"""Whole-word masking: comparison with plain Python, and probabilities."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from tiny import CLS, MASK, SEP, TOKENS, batch, chi_square

from electra_tf.batch import Batch
from electra_tf.config.pretraining import MaskingConfig
from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.pretraining.masking import (
    Masker,
    maskable,
    sample_whole_words,
    word_starts,
)

LENGTH = 24
SPECIAL = (CLS, SEP, MASK)
# Wordpieces that start a word, and a continuation piece.
A, B, C, D, GOES_ON = 5, 7, 8, 10, 6


def text_of(rows, length=LENGTH):
    ids_BL = np.zeros((len(rows), length), np.int32)
    for line, row in zip(ids_BL, rows, strict=True):
        line[: len(row)] = row
    mask_BL = [[int(i < len(row)) for i in range(length)] for row in rows]
    return Batch(*map(tf.constant, (ids_BL, mask_BL, np.zeros_like(ids_BL))))


def words_of(ids, real):
    """Return the positions of each word."""
    words, open_word = [], False
    for position in range(real):
        if ids[position] in SPECIAL:
            open_word = False
        elif open_word and TOKENS.is_continuation_V[ids[position]]:
            words[-1].append(position)
        else:
            words.append([position])
            open_word = True
    return words


def select_words(words, keys, count):
    """Select words by the key of their first piece, highest first."""
    taken = []
    for word in sorted(words, key=lambda word: -keys[word[0]]):
        if len(taken) + len(word) <= count:
            taken += word
    return sorted(taken)


def test_word_starts():
    rows = [
        [CLS, A, GOES_ON, GOES_ON, B, SEP, GOES_ON, GOES_ON, C, SEP],
        [CLS, GOES_ON, A, SEP, B, SEP],
        [GOES_ON, GOES_ON, A],
    ]
    expected = [[[1, 2, 3], [4], [6, 7], [8]], [[1], [2], [4]], [[0, 1], [2]]]
    text = text_of(rows)
    can_be_BL = maskable(text, TOKENS)
    starts_BL = word_starts(text, can_be_BL, TOKENS).numpy() & can_be_BL.numpy()
    for row, words, starts in zip(rows, expected, starts_BL, strict=True):
        assert words_of(row, len(row)) == words
        assert np.flatnonzero(starts).tolist() == [word[0] for word in words]


@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_selection_equals_plain_python(rate):
    lengths = [0, 1, 3, 4, *range(5, LENGTH + 1), *[LENGTH] * 30]
    text = batch(lengths, LENGTH, seed=3)
    masker = Masker(MaskingConfig(scheme="whole_word", rate=rate), TOKENS, LENGTH)
    keys_BL = np.random.default_rng(0).permuted(
        np.tile(np.arange(LENGTH), (len(lengths), 1)), axis=1
    )
    can_be_BL = maskable(text, TOKENS)
    positions_BM, weights_BM = sample_whole_words(
        tf.constant(keys_BL.astype(np.int32)),
        word_starts(text, can_be_BL, TOKENS),
        can_be_BL,
        tf.gather(masker.num_masked_by_length, lengths),
        masker.max_predictions_per_seq,
    )
    sizes = set()
    for row, real in enumerate(lengths):
        words = words_of(text.input_ids_BL.numpy()[row], real)
        sizes |= {len(word) for word in words}
        expected = select_words(words, keys_BL[row], masker.num_masked_by_length[real])
        used = weights_BM.numpy()[row] == 1
        assert sorted(positions_BM.numpy()[row][used].tolist()) == expected
        assert not positions_BM.numpy()[row][~used].any()
    assert {1, 2, 3} <= sizes


def test_words_are_masked_completely_or_not_at_all():
    lengths = list(range(4, LENGTH + 1)) * 5
    text = batch(lengths, LENGTH)
    masker = Masker(MaskingConfig(scheme="whole_word", rate=0.3), TOKENS, LENGTH)
    seen = set()
    for step in range(3):
        masked_ids_BL = masker(text, make_rng(0, TRAINING, step)).masked_ids_BL.numpy()
        for row, real in enumerate(lengths):
            for word in words_of(text.input_ids_BL.numpy()[row], real):
                hidden = masked_ids_BL[row][word] == MASK
                assert hidden.all() or not hidden.any()
                seen.add((len(word), bool(hidden.all())))
    assert seen >= set(itertools.product((1, 2, 3), (True, False)))


def test_words_of_one_size_are_equally_likely():
    # ceil(0.3 x 11) = 4 of eight positions: two of four words with two pieces each.
    row = [CLS, A, GOES_ON, B, GOES_ON, SEP, C, GOES_ON, D, GOES_ON, SEP]
    text, times = text_of([row] * 3000), 3
    masker = Masker(MaskingConfig(scheme="whole_word", rate=0.3), TOKENS, LENGTH)
    counts = dict.fromkeys(itertools.combinations((1, 3, 6, 8), 2), 0)
    for step in range(times):
        masked = masker(text, make_rng(0, TRAINING, step))
        for positions in masked.positions_BM.numpy()[:, :4]:
            first, _, second, _ = sorted(positions.tolist())
            counts[first, second] += 1
    assert chi_square(list(counts.values()), np.full(6, 3000 * times / 6)) < 5


def test_words_that_do_not_fit_are_skipped():
    # One position may be masked, so only words with one piece fit.
    text = text_of([[CLS, A, GOES_ON, B, C, GOES_ON, SEP]] * 200)
    masker = Masker(MaskingConfig(scheme="whole_word", rate=0.1), TOKENS, LENGTH)
    masked = masker(text, make_rng(0, TRAINING, 0))
    assert masker.num_masked_by_length[7] == 1
    assert (masked.positions_BM.numpy()[:, 0] == 3).all()
    assert masked.weights_BM.numpy().sum() == 200
    # If no word fits, nothing is masked.
    long_words = text_of([[CLS, A, GOES_ON, B, GOES_ON, SEP]])
    assert not masker(long_words, make_rng(0, TRAINING, 0)).weights_BM.numpy().any()
