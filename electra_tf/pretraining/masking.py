"""Select the positions to mask and write the replacement tokens.

Each function receives its random numbers as an argument, so that tests and the
comparison with the released code can supply them.
"""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf.batch import Batch, MaskedBatch
from electra_tf.config.pretraining import MaskingConfig
from electra_tf.kernels.rng import POSITIONS, REPLACEMENTS, TOKENS, RngStream

_ORIGINAL_MASK_SHARE = 0.85  # share of the drawn positions that become [MASK]


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """Token ids that masking treats specially, and the vocabulary size."""

    cls: int
    sep: int
    mask: int
    vocabulary_size: int
    is_continuation_V: np.ndarray
    """bool [V]: wordpieces that continue a word, such as `##ing`."""
    counts_V: np.ndarray | None = None
    """int64 [V]: occurrences in the training records, for a unigram generator."""

    @classmethod
    def from_vocabulary(
        cls, vocabulary: Any, counts_V: np.ndarray | None = None
    ) -> "SpecialTokens":
        """Return the ids of an `electra_tf.Vocabulary` that masking needs."""
        return cls(
            cls=vocabulary.ids["[CLS]"],
            sep=vocabulary.ids["[SEP]"],
            mask=vocabulary.ids["[MASK]"],
            vocabulary_size=len(vocabulary.is_continuation),
            is_continuation_V=np.array(vocabulary.is_continuation),
            counts_V=counts_V,
        )


@dataclasses.dataclass(frozen=True)
class Masker:
    """Mask batches of one length with one scheme."""

    settings: MaskingConfig
    tokens: SpecialTokens
    length: int

    @property
    def max_predictions_per_seq(self) -> int:
        """Return M, the maximum number of masked positions of a row."""
        return self.settings.max_predictions(self.length)

    @property
    def num_masked_by_length(self) -> np.ndarray:
        """Return the number of masked positions for n real tokens, int32 [L + 1]."""
        lengths = range(self.length + 1)
        if self.settings.scheme == "original":
            # The released code rounds half to even, in float32.
            rounded = np.round(np.float32(self.settings.rate) * np.float32(lengths))
            counts = np.minimum(self.max_predictions_per_seq, rounded)
        else:
            counts = np.array([self.settings.max_predictions(n) for n in lengths])
        return np.maximum(1, counts).astype(np.int32)

    def __call__(self, batch: Batch, rng: RngStream) -> MaskedBatch:
        """Select positions and write replacement tokens there, with static shapes."""
        rows, slots = batch.input_ids_BL.shape[0], self.max_predictions_per_seq
        maskable_BL, written_BM = maskable(batch, self.tokens), None
        count_B = tf.gather(
            self.num_masked_by_length, tf.reduce_sum(batch.input_mask_BL, 1)
        )
        if self.settings.scheme == "original":
            # The released code uses position 0, that of [CLS], for "no position".
            maskable_BL &= tf.range(self.length) > 0
            bits_BM = rng.bits(POSITIONS, rows, (slots,))
            drawn_BM = sample_with_replacement(maskable_BL, bits_BM)
            chosen = first_positions(drawn_BM, count_B, maskable_BL)
            uniform_BM = rng.uniform(REPLACEMENTS, rows, (slots,))
            written_BM = written_by_original(uniform_BM, chosen[1])
        else:
            keys_BL = _keys(rng.bits(POSITIONS, rows, (self.length,)), maskable_BL)
            if self.settings.scheme == "whole_word":
                starts_BL = word_starts(batch, maskable_BL, self.tokens)
                chosen = sample_whole_words(
                    keys_BL, starts_BL, maskable_BL, count_B, slots
                )
            else:
                drawn_BM = tf.math.top_k(keys_BL, slots).indices
                chosen = first_positions(drawn_BM, count_B, maskable_BL)
        replacement_BM = self._replacement_ids(batch, chosen[0], rng)
        return apply_mask(batch, *chosen, replacement_BM, written_BM)

    def _replacement_ids(
        self, batch: Batch, positions_BM: tf.Tensor, rng: RngStream
    ) -> tf.Tensor:
        mask_BM = tf.fill(positions_BM.shape, self.tokens.mask)
        if self.settings.replacement == "mask":
            return mask_BM
        shape = (self.max_predictions_per_seq,)
        uniform_BM = rng.uniform(REPLACEMENTS, positions_BM.shape[0], shape)
        random_BM = rng.uniform(TOKENS, positions_BM.shape[0], shape)
        random_BM = tf.cast(random_BM * self.tokens.vocabulary_size, tf.int32)
        original_BM = tf.gather(batch.input_ids_BL, positions_BM, batch_dims=1)
        other_BM = tf.where(uniform_BM < 0.9, random_BM, original_BM)
        return tf.where(uniform_BM < 0.8, mask_BM, other_BM)


def maskable(batch: Batch, tokens: SpecialTokens) -> tf.Tensor:
    """Return the real tokens other than [CLS], [SEP] and [MASK], bool [B, L]."""
    ids_BL = batch.input_ids_BL
    special_BL = (ids_BL == tokens.cls) | (ids_BL == tokens.sep)
    special_BL |= ids_BL == tokens.mask
    return tf.cast(batch.input_mask_BL, tf.bool) & ~special_BL


def first_positions(
    positions_BM: tf.Tensor, count_B: tf.Tensor, maskable_BL: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Keep the first `count_B` positions of each row and set the others to 0.

    There are at most as many as maskable ones. Return int32 [B, M] positions and
    float32 [B, M] weights, both 0 where unused.
    """
    available_B = tf.reduce_sum(tf.cast(maskable_BL, tf.int32), 1)
    used_count_B = tf.minimum(count_B, available_B)
    used_BM = tf.sequence_mask(used_count_B, positions_BM.shape[1], tf.int32)
    return positions_BM * used_BM, tf.cast(used_BM, tf.float32)


def word_starts(
    batch: Batch, maskable_BL: tf.Tensor, tokens: SpecialTokens
) -> tf.Tensor:
    """Return the positions where a word begins, bool [B, L].

    A continuation piece belongs to the word before it. After a special token, where the
    text was cut within a word, it begins a word.
    """
    is_continuation_BL = tf.gather(tokens.is_continuation_V, batch.input_ids_BL)
    after_text_BL = tf.pad(maskable_BL[:, :-1], [[0, 0], [1, 0]])
    return ~(is_continuation_BL & after_text_BL & maskable_BL)


def sample_whole_words(
    keys_BL: tf.Tensor,
    starts_BL: tf.Tensor,
    maskable_BL: tf.Tensor,
    count_B: tf.Tensor,
    max_predictions: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Select whole words in random order, skipping those that exceed the count.

    The random key, int32, of a word's first piece is that of the word. Return positions
    and weights as `first_positions` does.
    """
    rows, length = keys_BL.shape
    word_BL = tf.cumsum(tf.cast(starts_BL, tf.int32), 1) - 1
    word_BL = tf.maximum(word_BL, 0)
    flat_BL = word_BL + tf.range(rows)[:, None] * length

    def per_word(reduced, values_BL):  # [B, W], W = L: an upper bound
        return tf.reshape(reduced(values_BL, flat_BL, rows * length), [rows, length])

    size_BW = per_word(tf.math.unsorted_segment_sum, tf.cast(maskable_BL, tf.int32))
    position_BL = tf.broadcast_to(tf.range(length), [rows, length])
    first_BW = per_word(tf.math.unsorted_segment_min, position_BL)
    first_BW = tf.minimum(first_BW, length - 1)  # for indices beyond the last word
    key_BW = tf.gather(keys_BL, first_BW, batch_dims=1)
    order_BW = tf.argsort(tf.where(size_BW > 0, key_BW, -1), 1, "DESCENDING", True)
    fits_BW = _greedy(tf.gather(size_BW, order_BW, batch_dims=1), count_B)
    selected_BW = tf.gather(fits_BW, tf.argsort(order_BW, 1), batch_dims=1)
    selected_BL = tf.gather(selected_BW, word_BL, batch_dims=1) & maskable_BL
    used_BM, positions_BM = tf.math.top_k(
        tf.cast(selected_BL, tf.int32), max_predictions
    )
    return positions_BM * used_BM, tf.cast(used_BM, tf.float32)


def _greedy(size_BW: tf.Tensor, count_B: tf.Tensor) -> tf.Tensor:
    """Select each word in turn that fits into the remaining count, bool [B, W]."""

    def fit(state: tuple[tf.Tensor, tf.Tensor], size_B: tf.Tensor):
        remaining_B, _ = state
        fits_B = (size_B > 0) & (size_B <= remaining_B)
        return remaining_B - tf.where(fits_B, size_B, 0), fits_B

    start = (count_B, tf.zeros_like(count_B, tf.bool))
    _, fits_WB = tf.scan(fit, tf.transpose(size_BW), start)
    return tf.transpose(fits_WB)


def apply_mask(
    batch: Batch,
    positions_BM: tf.Tensor,
    weights_BM: tf.Tensor,
    replacement_BM: tf.Tensor,
    written_BM: tf.Tensor | None = None,
) -> MaskedBatch:
    """Write `replacement_BM` at positions, where `written_BM` is 1, and collect labels.

    By default all used positions are written. A position that is drawn twice is written
    if any of its draws is.
    """
    labels_BM = tf.gather(batch.input_ids_BL, positions_BM, batch_dims=1)
    labels_BM *= tf.cast(weights_BM, tf.int32)
    written_BM = weights_BM if written_BM is None else written_BM
    masked_ids_BL = scatter_tokens(
        batch.input_ids_BL, positions_BM, written_BM, replacement_BM
    )
    return MaskedBatch(*batch, masked_ids_BL, positions_BM, labels_BM, weights_BM)


def written_by_original(uniform_BM: tf.Tensor, weights_BM: tf.Tensor) -> tf.Tensor:
    """Return 1 at the 85% of the used positions that the released code masks."""
    return tf.cast(uniform_BM < _ORIGINAL_MASK_SHARE, tf.float32) * weights_BM


def scatter_tokens(
    ids_BL: tf.Tensor,
    positions_BM: tf.Tensor,
    weights_BM: tf.Tensor,
    replacement_BM: tf.Tensor,
) -> tf.Tensor:
    """Write tokens at given positions of a text, where their weight is 1.

    A repeated position, as of scheme `original`, receives the mean of its ids, rounded
    down, as in the released code (google-research/electra#41).
    """
    used_BM = tf.cast(weights_BM, tf.int32)
    rows, length = ids_BL.shape
    flat_BM = positions_BM + tf.range(rows)[:, None] * length

    def summed(values_BM):
        sums_X = tf.math.unsorted_segment_sum(values_BM, flat_BM, rows * length)
        return tf.reshape(sums_X, [rows, length])

    count_BL = summed(used_BM)
    mean_BL = summed(replacement_BM * used_BM) // tf.maximum(count_BL, 1)
    return tf.where(count_BL > 0, mean_BL, ids_BL)


def mark_masked(masked: MaskedBatch) -> tf.Tensor:
    """Return 1 at the masked positions, int32 [B, L]."""
    zeros_BL = tf.zeros_like(masked.input_ids_BL)
    ones_BM = tf.ones_like(masked.positions_BM)
    return scatter_tokens(zeros_BL, masked.positions_BM, masked.weights_BM, ones_BM)


def sample_with_replacement(maskable_BL: tf.Tensor, bits_BM: tf.Tensor) -> tf.Tensor:
    """Sample maskable positions independently, as the released code does.

    Return int32 [B, M], 0 for a row without maskable positions.
    """
    rank_BL = tf.cumsum(tf.cast(maskable_BL, tf.int32), 1)
    available_B1 = tf.cast(rank_BL[:, -1:], tf.uint64)
    # (bits * count) >> 32 is a uniform index below count; its bias is below 2^-32.
    index_BM = tf.bitwise.right_shift(tf.cast(bits_BM, tf.uint64) * available_B1, 32)
    rank_BM = tf.cast(index_BM, tf.int32) + 1
    positions_BM = tf.searchsorted(rank_BL, rank_BM, side="left")
    return tf.where(available_B1 > 0, positions_BM, 0)


def _keys(bits_BL: tf.Tensor, maskable_BL: tf.Tensor) -> tf.Tensor:
    """Return random sort keys of 31 bits, -1 where not maskable, int32 [B, L]."""
    keys_BL = tf.cast(tf.bitwise.right_shift(bits_BL, 1), tf.int32)
    return tf.where(maskable_BL, keys_BL, -1)
