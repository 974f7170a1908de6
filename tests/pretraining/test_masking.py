"""Properties of all masking schemes, and whole words compared with plain Python."""

import fractions
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.batch import Batch
from electra_tf.config.pretraining import MaskingConfig
from electra_tf.kernels.rng import TRAINING, make_rng
from electra_tf.pretraining.masking import (
    Masker,
    maskable,
    sample_whole_words,
    word_starts,
)
from tests.tiny import (
    CLS,
    LENGTH,
    MASK,
    SEP,
    TOKENS,
    VOCABULARY,
    batch,
    chi_square,
    in_every_mode,
    masked_positions,
    rng,
)

SCHEMES = ("paper", "whole_word", "original")
SPECIAL = (CLS, SEP, MASK)


def make_masker(length=LENGTH, **settings):
    return Masker(MaskingConfig(**settings), TOKENS, length)


def to_numpy(structure):
    return tf.nest.map_structure(np.asarray, structure)


def text_of(rows, length=LENGTH):
    """Return a batch of rows of ids, in one segment."""
    ids_BL = np.zeros((len(rows), length), np.int32)
    for line, row in zip(ids_BL, rows, strict=True):
        line[: len(row)] = row
    mask_BL = np.int32(np.arange(length) < [[len(row)] for row in rows])
    return Batch(*map(tf.constant, (ids_BL, mask_BL, 0 * mask_BL)))


def at(values_BL, positions_BM):
    return np.take_along_axis(np.asarray(values_BL), np.asarray(positions_BM), 1)


@pytest.mark.parametrize("rate", [0.15, 0.25, 0.2, 0.1, 0.3, 0.07, 0.5, 1.0])
def test_the_paper_scheme_rounds_up(rate):
    masker = make_masker(512, rate=rate)
    hundredths = round(rate * 100)
    expected = [max(1, -(-hundredths * n // 100)) for n in range(513)]
    assert masker.num_masked_by_length.tolist() == expected
    assert masker.max_predictions_per_seq == expected[-1]
    words = make_masker(512, rate=rate, scheme="whole_word")
    assert words.num_masked_by_length.tolist() == expected


def test_the_original_scheme_rounds_half_to_even():
    for rate, length, slots in ((0.15, 128, 19), (0.15, 512, 79), (0.25, 512, 130)):
        masker = make_masker(length, rate=rate, scheme="original")
        assert masker.max_predictions_per_seq == slots
        product = np.float32(rate) * np.arange(length + 1, dtype=np.float32)
        below = np.floor(product)
        halves = product - below == 0.5
        rounded = np.where(halves, below + below % 2, np.floor(product + 0.5))
        expected = np.maximum(1, np.minimum(slots, rounded))
        assert masker.num_masked_by_length.tolist() == expected.tolist()
        if rate == 0.15:  # the specification's own examples
            assert masker.num_masked_by_length[[10, 30]].tolist() == [2, 4]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("rate", [0.15, 0.6])
def test_only_maskable_positions_are_masked_with_the_right_count(scheme, rate):
    text = batch(range(33), length=32)
    masker = make_masker(32, scheme=scheme, rate=rate)
    can_be_BL = maskable(text, TOKENS).numpy()
    np.testing.assert_array_equal(
        can_be_BL,
        (text.input_mask_BL.numpy() == 1) & ~np.isin(text.input_ids_BL, SPECIAL),
    )
    for step in range(5):
        masked = to_numpy(masker(text, rng(step)))
        positions_BM, used_BM = masked.positions_BM, masked.weights_BM == 1
        assert set(np.unique(masked.weights_BM)) <= {0.0, 1.0}
        assert positions_BM.shape == (33, masker.max_predictions_per_seq)
        assert at(can_be_BL, positions_BM)[used_BM].all()
        assert not positions_BM[~used_BM].any()
        assert not masked.labels_BM[~used_BM].any()
        np.testing.assert_array_equal(
            masked.labels_BM[used_BM], at(text.input_ids_BL, positions_BM)[used_BM]
        )
        expected_B = np.minimum(
            masker.num_masked_by_length[np.arange(33)], can_be_BL.sum(1)
        )
        if scheme == "whole_word":
            assert (used_BM.sum(1) <= expected_B).all()
        else:
            np.testing.assert_array_equal(used_BM.sum(1), expected_B)
        if scheme != "original":
            for row, used in zip(positions_BM, used_BM, strict=True):
                assert len(set(row[used])) == used.sum()
        for before, after in zip(text, masked[:3], strict=True):
            np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_modes_mask_the_same(scheme):
    text = batch([0, 3, 4, 9, 15, 16])
    replacement = "mask" if scheme == "original" else "bert"
    masker = make_masker(scheme=scheme, rate=0.4, replacement=replacement)
    modes = in_every_mode(lambda step: masker(text, rng(step)), tf.constant(7))
    for masked in modes:
        for one, other in zip(masked, modes[0], strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
    assert modes[0].weights_BM.sum() > 10


def test_the_paper_scheme_masks_all_positions_equally_often():
    # Two of eight: all 28 pairs are equally likely, so positions are independent.
    row = [CLS, 5, 6, 7, 8, SEP, 10, 11, 12, 13, SEP]
    text, times = text_of([row] * 2000), 5
    pairs = np.zeros((LENGTH, LENGTH))
    for step in range(times):
        masked = make_masker()(text, rng(step))
        assert masked.weights_BM.numpy()[:, :2].all()
        assert not masked.weights_BM.numpy()[:, 2:].any()
        np.add.at(pairs, tuple(masked.positions_BM.numpy()[:, :2].T), 1)
    there = [i for i, token in enumerate(row) if token not in SPECIAL]
    # The order of the positions is random as well.
    counts = pairs[np.ix_(there, there)][~np.eye(8, dtype=bool)]
    assert counts.sum() == 2000 * times
    assert chi_square(counts, np.full(56, 2000 * times / 56)) < 5


def test_the_original_scheme_samples_independently():
    row = [CLS, *range(5, 45), SEP]
    text = text_of([[*row, *[9] * (127 - len(row)), SEP]] * 4000, 128)
    masked = to_numpy(make_masker(128, scheme="original")(text, rng()))
    assert masked.weights_BM.all()
    counts = np.bincount(masked.positions_BM.ravel(), minlength=128)
    maskable = ~np.isin(text.input_ids_BL[0], SPECIAL)
    assert not counts[~maskable].any()
    draws, positions = 4000 * 19, maskable.sum()
    assert chi_square(counts[maskable], np.full(positions, draws / positions)) < 5
    repeated = masked.positions_BM[:, :1] == masked.positions_BM[:, 1:]
    deviation = (positions - 1) ** 0.5 / positions / (4000 * 18) ** 0.5
    assert abs(repeated.mean() - 1 / positions) < 5 * deviation
    expected = positions * (1 - (1 - 1 / positions) ** 19)
    assert round(expected, 2) == 17.69  # of 19; equals the original's mean
    distinct = [len(set(row)) for row in masked.positions_BM]
    assert abs(np.mean(distinct) - expected) < 5 * np.std(distinct) / 4000**0.5
    # Neighbouring samples are independent.
    masked_ids_BM = masked.masked_ids_BL[np.arange(4000)[:, None], masked.positions_BM]
    alone = [(row == value).sum() == 1 for row in masked.positions_BM for value in row]
    is_mask = (masked_ids_BM == MASK).ravel()[alone]
    assert abs(is_mask.mean() - 0.85) < 5 * (0.85 * 0.15 / len(is_mask)) ** 0.5


@pytest.mark.parametrize("scheme", ["paper", "whole_word"])
def test_bert_replacement_writes_mask_random_or_original_tokens(scheme):
    row = [CLS, 5, 7, 8, 10, 11, 13, 14, 16, SEP]
    text = text_of([row] * 4000)
    masker = make_masker(scheme=scheme, replacement="bert", rate=0.5)
    masked = to_numpy(masker(text, rng()))
    used = masked.weights_BM == 1
    assert used.sum() == 4000 * math.ceil(fractions.Fraction(1, 2) * len(row))
    replacements = at(masked.masked_ids_BL, masked.positions_BM)[used]
    labels = masked.labels_BM[used]
    total, random = len(labels), len(labels) * 0.1 / VOCABULARY
    num_unchanged = (replacements == labels).sum()
    changed = replacements[replacements != labels]
    tokens = np.bincount(changed, minlength=VOCABULARY)
    # Random tokens include [MASK] and the label.
    label_share = np.bincount(labels, minlength=VOCABULARY) / total
    expected = random * (1 - label_share)
    expected[MASK] += 0.8 * total
    counts = np.append(tokens, num_unchanged)
    assert chi_square(counts, np.append(expected, 0.1 * total + random)) < 5
    unused = ~masked_positions(masked)
    np.testing.assert_array_equal(
        masked.masked_ids_BL[unused], text.input_ids_BL.numpy()[unused]
    )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_masks_depend_only_on_seed_step_and_row(scheme):
    text = batch([16, 12, 16, 9])
    masker = make_masker(scheme=scheme, rate=0.4)
    first = to_numpy(masker(text, rng()))
    again = to_numpy(masker(text, rng()))
    np.testing.assert_array_equal(first.positions_BM, again.positions_BM)
    other = to_numpy(masker(text, rng(1)))
    assert (first.positions_BM != other.positions_BM).any()
    half = Batch(*(field[2:] for field in text))
    part = to_numpy(masker(half, make_rng(0, TRAINING, 0, 2)))
    np.testing.assert_array_equal(part.positions_BM, first.positions_BM[2:])
    np.testing.assert_array_equal(part.masked_ids_BL, first.masked_ids_BL[2:])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_padding_tokens_do_not_matter(scheme):
    text = batch([16, 12, 5, 0])
    masker = make_masker(scheme=scheme, rate=0.4)
    padding_BL = 1 - text.input_mask_BL
    other = text._replace(input_ids_BL=text.input_ids_BL + padding_BL * 17)
    one, two = (to_numpy(masker(batch, rng())) for batch in (text, other))
    np.testing.assert_array_equal(one.positions_BM, two.positions_BM)
    np.testing.assert_array_equal(one.labels_BM, two.labels_BM)
    real = text.input_mask_BL.numpy() == 1
    np.testing.assert_array_equal(one.masked_ids_BL[real], two.masked_ids_BL[real])


# --- Whole words ---------------------------------------------------------------------

WORDS_LENGTH = 24
# Wordpieces that start a word, and a continuation piece.
A, B, C, D, GOES_ON = 5, 7, 8, 10, 6


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


@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_selection_equals_plain_python(rate):
    lengths = [0, 1, 3, 4, *range(5, WORDS_LENGTH + 1), *[WORDS_LENGTH] * 30]
    text = batch(lengths, WORDS_LENGTH, seed=3)
    masker = make_masker(WORDS_LENGTH, scheme="whole_word", rate=rate)
    keys_BL = np.random.default_rng(0).permuted(
        np.tile(np.arange(WORDS_LENGTH), (len(lengths), 1)), axis=1
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


def test_words_of_one_size_are_equally_likely():
    # ceil(0.3 x 11) = 4 of eight positions: two of four words with two pieces each.
    row = [CLS, A, GOES_ON, B, GOES_ON, SEP, C, GOES_ON, D, GOES_ON, SEP]
    text, times = text_of([row] * 3000, WORDS_LENGTH), 3
    masker = make_masker(WORDS_LENGTH, scheme="whole_word", rate=0.3)
    counts = dict.fromkeys(itertools.combinations((1, 3, 6, 8), 2), 0)
    for step in range(times):
        masked = masker(text, rng(step))
        for positions in masked.positions_BM.numpy()[:, :4]:
            first, _, second, _ = sorted(positions.tolist())
            counts[first, second] += 1
    assert chi_square(list(counts.values()), np.full(6, 3000 * times / 6)) < 5


def test_words_that_do_not_fit_are_skipped():
    # One position may be masked, so only words with one piece fit.
    text = text_of([[CLS, A, GOES_ON, B, C, GOES_ON, SEP]] * 200, WORDS_LENGTH)
    masker = make_masker(WORDS_LENGTH, scheme="whole_word", rate=0.1)
    masked = masker(text, rng())
    assert masker.num_masked_by_length[7] == 1
    assert (masked.positions_BM.numpy()[:, 0] == 3).all()
    assert masked.weights_BM.numpy().sum() == 200
    # If no word fits, nothing is masked.
    long_words = text_of([[CLS, A, GOES_ON, B, GOES_ON, SEP]], WORDS_LENGTH)
    assert not masker(long_words, rng()).weights_BM.numpy().any()
