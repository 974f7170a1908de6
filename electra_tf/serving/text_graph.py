"""Encode texts with TensorFlow operations, equal to `tasks.classifier.encode_texts`."""

import tensorflow as tf

from electra_tf.serving.request_limits import (
    LIMITS,
    RequestLimits,
    assert_max_positions,
)
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CLS, SEP

_FILLER = 0


class GraphInputs(tf.Module):
    """Tokenizer of texts and pairs that runs in a graph."""

    def __init__(
        self, tokenizer: Tokenizer, max_length: int, limits: RequestLimits = LIMITS
    ):
        super().__init__()
        self._limits = limits
        self._tokenize = tokenizer.graph()
        self._max_length = max_length
        self._cls, self._sep = (tokenizer.vocabulary.ids[name] for name in (CLS, SEP))

    def __call__(
        self, text_B: tf.Tensor, text_b_B: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Encode texts or pairs, padded to the longest.

        Args:
            text_B: UTF-8 strings; invalid bytes are dropped.
            text_b_B: Second texts of pairs; None: single texts.

        Returns:
            `token_ids`, `segment_ids` and `padding_mask`, each int32 [B, L]. More
            positions than the limit raise `InvalidArgumentError` at run time, before
            they are allocated.
        """
        return self.with_cut(text_B, text_b_B)[0]

    def with_cut(
        self, text_B: tf.Tensor, text_b_B: tf.Tensor | None = None
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Encode texts or pairs, and count the wordpieces that were cut.

        Args:
            text_B: As for a call.
            text_b_B: As for a call.

        Returns:
            Outputs of a call, and the number of cut wordpieces, int32 [B].
        """
        first = self._tokenize(text_B)
        length_B = _lengths(first)
        if text_b_B is None:
            kept_B = tf.minimum(length_B, self._max_length - 2)
            return self._packed((first, kept_B)), length_B - kept_B
        second = self._tokenize(text_b_B)
        kept_a_B, kept_b_B = truncated_lengths(
            length_B, _lengths(second), self._max_length - 3
        )
        cut_B = length_B + _lengths(second) - kept_a_B - kept_b_B
        return self._packed((first, kept_a_B), (second, kept_b_B)), cut_B

    def _packed(
        self, *parts: tuple[tf.RaggedTensor, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Join texts, given as (wordpieces, number of those to keep), to a batch.

        All positions are looked up in one table of fillers, special tokens and
        wordpieces, because the time for a short text depends on the number of
        operations.
        """
        lengths_B = 1 + tf.add_n([kept_B + 1 for _, kept_B in parts])
        longest = tf.maximum(tf.reduce_max(lengths_B), 0)  # no rows, no positions
        rows = tf.size(lengths_B)
        within = assert_max_positions(rows, longest, self._limits)
        with tf.control_dependencies([within]):
            position_L = tf.range(longest)
        entries = [[_FILLER, self._cls, self._sep], *(text.values for text, _ in parts)]
        known, end_B1 = len(entries[0]), tf.ones_like(lengths_B)[:, None]
        source_BL = tf.where(position_L == 0, 1, 0)
        for text, kept_B in parts:
            begin_B1, end_B1 = end_B1, end_B1 + kept_B[:, None]
            shift_B1 = known + tf.cast(text.row_starts(), tf.int32)[:, None] - begin_B1
            inside_BL = (position_L >= begin_B1) & (position_L < end_B1)
            source_BL = tf.where(inside_BL, position_L + shift_B1, source_BL)
            source_BL = tf.where(position_L == end_B1, 2, source_BL)
            known, end_B1 = known + tf.size(text.values), end_B1 + 1
        mask_BL = position_L < end_B1
        second_BL = mask_BL & (position_L >= begin_B1) & (len(parts) > 1)
        return {
            "token_ids": tf.gather(tf.concat(entries, 0), source_BL),
            "segment_ids": tf.cast(second_BL, tf.int32),
            "padding_mask": tf.cast(mask_BL, tf.int32),
        }


def truncated_lengths(
    a_B: tf.Tensor, b_B: tf.Tensor, max_length: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute the lengths of both texts after truncation.

    Equal to `classifier.truncate`, without a loop.

    Args:
        a_B: int32, wordpieces of the first texts.
        b_B: int32, wordpieces of the second texts.
        max_length: Wordpieces of both texts together, at most.

    Returns:
        Wordpieces to keep of each text, int32 [B].
    """
    surplus_B = tf.maximum(a_B + b_B - max_length, 0)
    # The longer text is cut to the length of the other, then both in turn.
    alone_a_B = tf.minimum(surplus_B, tf.maximum(a_B - b_B, 0))
    alone_b_B = tf.minimum(surplus_B, tf.maximum(b_B - a_B, 0))
    turns_B = surplus_B - alone_a_B - alone_b_B
    lost_a_B = alone_a_B + turns_B // 2
    lost_b_B = alone_b_B + turns_B - turns_B // 2
    return a_B - lost_a_B, b_B - lost_b_B


def _lengths(ids: tf.RaggedTensor) -> tf.Tensor:
    return tf.cast(ids.row_lengths(), tf.int32)
