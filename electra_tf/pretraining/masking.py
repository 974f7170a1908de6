"""Which positions are masked, and what is written there.

Every function takes the random numbers it needs, so that tests (and the comparison
with the original) can bring their own.
"""

import dataclasses
import fractions
import math

import numpy as np
import tensorflow as tf

from electra_tf.batch import Batch, MaskedBatch
from electra_tf.config.pretraining import MaskingConfig
from electra_tf.kernels.rng import POSITIONS, REPLACEMENTS, TOKENS, RngStream

_ORIGINAL_MASK_SHARE = 0.85  # its share of draws that become [MASK]


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """What masking has to know of a vocabulary."""

    cls: int
    sep: int
    mask: int
    vocabulary_size: int
    is_continuation_V: np.ndarray
    """bool [V]: pieces that go on a word, `##ing`."""


@dataclasses.dataclass(frozen=True)
class Masker:
    """Masks batches of one length by one scheme."""

    settings: MaskingConfig
    tokens: SpecialTokens
    length: int

    @property
    def max_predictions_per_seq(self) -> int:
        """M, the most positions a row can have masked."""
        if self.settings.scheme == "original":
            return int((self.settings.rate + 0.005) * self.length)
        return int(self.num_masked_by_length[-1])

    @property
    def num_masked_by_length(self) -> np.ndarray:
        """int32 [L + 1]: how many positions are masked in a row of n real tokens."""
        lengths = range(self.length + 1)
        if self.settings.scheme == "original":
            # Rounds half to even, in float32.
            rounded = np.round(np.float32(self.settings.rate) * np.float32(lengths))
            counts = np.minimum(
                int((self.settings.rate + 0.005) * self.length), rounded
            )
        else:
            # Exact: 0.15 * 100 is more than 15 in float32, and would be 16.
            rate = fractions.Fraction(str(self.settings.rate))
            counts = np.array([math.ceil(rate * n) for n in lengths])
        return np.maximum(1, counts).astype(np.int32)

    def __call__(self, batch: Batch, rng: RngStream) -> MaskedBatch:
        """Draws the positions and writes over them; shapes are static."""
        rows = batch.input_ids_BL.shape[0]
        maskable_BL = maskable(batch, self.tokens)
        count_B = tf.gather(
            self.num_masked_by_length, tf.reduce_sum(batch.input_mask_BL, 1)
        )
        if self.settings.scheme == "original":
            # Position 0, [CLS]'s, stands for "no position" there.
            maskable_BL &= tf.range(self.length) > 0
            bits_BM = rng.bits(POSITIONS, rows, (self.max_predictions_per_seq,))
            positions_BM = sample_with_replacement(maskable_BL, bits_BM)
            positions_BM, weights_BM = first_positions(
                positions_BM, count_B, maskable_BL
            )
            kept_BM = rng.uniform(REPLACEMENTS, rows, (self.max_predictions_per_seq,))
            return apply_mask_as_original(
                batch, positions_BM, weights_BM, kept_BM, self.tokens.mask
            )
        keys_BL = _keys(rng.bits(POSITIONS, rows, (self.length,)), maskable_BL)
        if self.settings.scheme == "whole_word":
            starts_BL = word_starts(batch, maskable_BL, self.tokens)
            positions_BM, weights_BM = sample_whole_words(
                keys_BL, starts_BL, maskable_BL, count_B, self.max_predictions_per_seq
            )
        else:
            _, positions_BM = tf.math.top_k(keys_BL, self.max_predictions_per_seq)
            positions_BM, weights_BM = first_positions(
                positions_BM, count_B, maskable_BL
            )
        written_BM = self._replacement_ids(batch, positions_BM, rng)
        return apply_mask(batch, positions_BM, weights_BM, written_BM)

    def _replacement_ids(
        self, batch: Batch, positions_BM: tf.Tensor, rng: RngStream
    ) -> tf.Tensor:
        mask_BM = tf.fill(positions_BM.shape, self.tokens.mask)
        if self.settings.replacement == "mask":
            return mask_BM
        shape = (self.max_predictions_per_seq,)
        share_BM = rng.uniform(REPLACEMENTS, positions_BM.shape[0], shape)
        random_BM = rng.uniform(TOKENS, positions_BM.shape[0], shape)
        random_BM = tf.cast(random_BM * self.tokens.vocabulary_size, tf.int32)
        original_BM = tf.gather(batch.input_ids_BL, positions_BM, batch_dims=1)
        other_BM = tf.where(share_BM < 0.9, random_BM, original_BM)
        return tf.where(share_BM < 0.8, mask_BM, other_BM)


def maskable(batch: Batch, tokens: SpecialTokens) -> tf.Tensor:
    """bool [B, L]: real tokens other than [CLS], [SEP] and [MASK]."""
    ids_BL = batch.input_ids_BL
    special_BL = (ids_BL == tokens.cls) | (ids_BL == tokens.sep)
    special_BL |= ids_BL == tokens.mask
    return tf.cast(batch.input_mask_BL, tf.bool) & ~special_BL


def first_positions(
    positions_BM: tf.Tensor, count_B: tf.Tensor, maskable_BL: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Uses the first slots of each row and zeroes the others.

    Args:
        positions_BM: int32, the drawn positions.
        count_B: int32, how many are wanted.
        maskable_BL: bool; a row cannot use more slots than it has such positions.

    Returns:
        int32 [B, M] positions and float32 [B, M] weights, both 0 in unused slots.
    """
    there_B = tf.reduce_sum(tf.cast(maskable_BL, tf.int32), 1)
    used_B = tf.minimum(count_B, there_B)
    used_BM = tf.sequence_mask(used_B, positions_BM.shape[1], tf.int32)
    return positions_BM * used_BM, tf.cast(used_BM, tf.float32)


def word_starts(
    batch: Batch, maskable_BL: tf.Tensor, tokens: SpecialTokens
) -> tf.Tensor:
    """bool [B, L]: positions where a new word begins.

    A continuation piece belongs to the word before it; after a special token (a text
    cut within a word) it begins one.
    """
    is_continuation_BL = tf.gather(tokens.is_continuation_V, batch.input_ids_BL)
    after_text_BL = tf.pad(maskable_BL[:, :-1], [[0, 0], [1, 0]])
    return ~(is_continuation_BL & after_text_BL & maskable_BL)


def sample_whole_words(
    keys_BL: tf.Tensor,
    starts_BL: tf.Tensor,
    maskable_BL: tf.Tensor,
    count_B: tf.Tensor,
    slots: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Takes whole words in random order, each that still fits into the count.

    Args:
        keys_BL: int32 random order of positions; a word has that of its first piece.
        starts_BL: bool, where words begin.
        maskable_BL: bool; other positions are never taken.
        count_B: int32, how many positions of a row at most.
        slots: M.

    Returns:
        As `first_slots`.
    """
    rows, length = keys_BL.shape
    word_BL = tf.cumsum(tf.cast(starts_BL, tf.int32), 1) - 1
    word_BL = tf.maximum(word_BL, 0)
    flat_BL = word_BL + tf.range(rows)[:, None] * length

    def per_word(reduced, values_BL):  # [B, W]: as many words as positions, at most
        return tf.reshape(reduced(values_BL, flat_BL, rows * length), [rows, length])

    size_BW = per_word(tf.math.unsorted_segment_sum, tf.cast(maskable_BL, tf.int32))
    place_BL = tf.broadcast_to(tf.range(length), [rows, length])
    first_BW = per_word(tf.math.unsorted_segment_min, place_BL)
    first_BW = tf.minimum(first_BW, length - 1)  # words that do not exist
    key_BW = tf.gather(keys_BL, first_BW, batch_dims=1)
    order_BW = tf.argsort(tf.where(size_BW > 0, key_BW, -1), 1, "DESCENDING", True)
    fits_BW = _greedy(tf.gather(size_BW, order_BW, batch_dims=1), count_B)
    taken_BW = tf.gather(fits_BW, tf.argsort(order_BW, 1), batch_dims=1)
    taken_BL = tf.gather(taken_BW, word_BL, batch_dims=1) & maskable_BL
    used_BM, positions_BM = tf.math.top_k(tf.cast(taken_BL, tf.int32), slots)
    return positions_BM * used_BM, tf.cast(used_BM, tf.float32)


def _greedy(size_BW: tf.Tensor, count_B: tf.Tensor) -> tf.Tensor:
    """bool [B, W]: goes along the sizes and takes each that what is left can hold."""

    def fit(state: tuple[tf.Tensor, tf.Tensor], size_B: tf.Tensor):
        left_B, _ = state
        fits_B = (size_B > 0) & (size_B <= left_B)
        return left_B - tf.where(fits_B, size_B, 0), fits_B

    start = (count_B, tf.zeros_like(count_B, tf.bool))
    _, fits_WB = tf.scan(fit, tf.transpose(size_BW), start)
    return tf.transpose(fits_WB)


def apply_mask(
    batch: Batch, positions_BM: tf.Tensor, weights_BM: tf.Tensor, written_BM: tf.Tensor
) -> MaskedBatch:
    """Writes `written_BM` at distinct positions."""
    labels_BM = tf.gather(batch.input_ids_BL, positions_BM, batch_dims=1)
    masked_ids_BL = scatter_tokens(
        batch.input_ids_BL, positions_BM, weights_BM, written_BM
    )
    labels_BM *= tf.cast(weights_BM, tf.int32)
    return MaskedBatch(*batch, masked_ids_BL, positions_BM, labels_BM, weights_BM)


def scatter_tokens(
    ids_BL: tf.Tensor,
    positions_BM: tf.Tensor,
    weights_BM: tf.Tensor,
    written_BM: tf.Tensor,
) -> tf.Tensor:
    """Writes tokens over a text, int32 [B, L].

    Args:
        ids_BL: int32, the text.
        positions_BM: int32, where; used slots of a row are distinct, or hold equal
            positions as the original draws them.
        weights_BM: float32, 0 in slots that write nothing.
        written_BM: int32, what.

    Returns:
        The text with the tokens. Where several slots have one position, the mean of
        their ids, rounded down: the original does so (google-research/electra#41).
    """
    used_BM = tf.cast(weights_BM, tf.int32)
    rows, length = ids_BL.shape
    flat_BM = positions_BM + tf.range(rows)[:, None] * length

    def summed(values_BM):
        sums_X = tf.math.unsorted_segment_sum(values_BM, flat_BM, rows * length)
        return tf.reshape(sums_X, [rows, length])

    times_BL = summed(used_BM)
    mean_BL = summed(written_BM * used_BM) // tf.maximum(times_BL, 1)
    return tf.where(times_BL > 0, mean_BL, ids_BL)


def sample_with_replacement(maskable_BL: tf.Tensor, bits_BM: tf.Tensor) -> tf.Tensor:
    """Draws each slot's position for itself, as the original does.

    Args:
        maskable_BL: bool, the positions to draw from.
        bits_BM: uint32 random bits.

    Returns:
        int32 [B, M]; a row without maskable positions gets 0.
    """
    rank_BL = tf.cumsum(tf.cast(maskable_BL, tf.int32), 1)
    there_B1 = tf.cast(rank_BL[:, -1:], tf.uint64)
    # The upper half of a product with 2^32 random values: uniform to 1 in 2^32.
    drawn_BM = tf.bitwise.right_shift(tf.cast(bits_BM, tf.uint64) * there_B1, 32)
    wanted_BM = tf.cast(drawn_BM, tf.int32) + 1
    positions_BM = tf.searchsorted(rank_BL, wanted_BM, side="left")
    return tf.where(there_B1 > 0, positions_BM, 0)


def apply_mask_as_original(
    batch: Batch,
    positions_BM: tf.Tensor,
    weights_BM: tf.Tensor,
    uniform_BM: tf.Tensor,
    mask_id: int,
) -> MaskedBatch:
    """Masks 85% of the drawn slots; the others keep their token.

    A position drawn twice is masked if either slot says so.

    Args:
        batch: The text.
        positions_BM: int32, drawn with replacement; 0 in unused slots.
        weights_BM: float32, 0 in unused slots.
        uniform_BM: float32 in [0, 1).
        mask_id: The id of [MASK].

    Returns:
        The masked batch, with a label in every used slot.
    """
    says_BM = tf.cast(uniform_BM < _ORIGINAL_MASK_SHARE, tf.float32) * weights_BM
    written_BM = tf.fill(positions_BM.shape, mask_id)
    written_BL = scatter_tokens(batch.input_ids_BL, positions_BM, says_BM, written_BM)
    labels_BM = tf.gather(batch.input_ids_BL, positions_BM, batch_dims=1)
    labels_BM *= tf.cast(weights_BM, tf.int32)
    return MaskedBatch(*batch, written_BL, positions_BM, labels_BM, weights_BM)


def _keys(bits_BL: tf.Tensor, maskable_BL: tf.Tensor) -> tf.Tensor:
    """int32 [B, L]: random numbers of 31 bits, -1 where nothing can be masked."""
    keys_BL = tf.cast(tf.bitwise.right_shift(bits_BL, 1), tf.int32)
    return tf.where(maskable_BL, keys_BL, -1)
