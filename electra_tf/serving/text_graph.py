"""Encode texts with TensorFlow operations, equal to `text.encoding.encode_rows`."""

import tensorflow as tf

from electra_tf.serving.export_options import LIMITS, RequestLimits
from electra_tf.serving.signatures import assert_max_positions
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import CLS, MASK, SEP, UNKNOWN

_FILLER = 0
Part = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
"""Wordpieces of all texts, and for each row the index of its first one and the number
of those to keep, int32."""


class GraphEncoder(tf.Module):
    """Tokenizer that runs in a graph, and packs its wordpieces."""

    def __init__(self, tokenizer: WordPieceTokenizer, limits: RequestLimits):
        super().__init__()
        self._limits = limits
        self._tokenize = tokenizer.graph()
        self._cls, self._sep, self._mask, self._unknown = (
            tokenizer.vocabulary.ids[name] for name in (CLS, SEP, MASK, UNKNOWN)
        )

    def _packed(self, *parts: Part) -> dict[str, tf.Tensor]:
        """Join texts, each given by a part for every row, to a batch.

        All positions are looked up in one table of fillers, special tokens and
        wordpieces, because the time for a short text depends on the number of
        operations. There is at least one position, because the encoder reads the first.
        """
        lengths_B = 1 + tf.add_n([kept_B + 1 for _, _, kept_B in parts])
        longest = tf.maximum(tf.reduce_max(lengths_B), 1)
        rows = tf.size(lengths_B)
        within = assert_max_positions(rows, longest, self._limits)
        with tf.control_dependencies([within]):
            position_L = tf.range(longest)
        entries = [[_FILLER, self._cls, self._sep], *(ids for ids, _, _ in parts)]
        known, end_B1 = len(entries[0]), tf.ones_like(lengths_B)[:, None]
        source_BL = tf.where(position_L == 0, 1, 0)
        for ids, first_B, kept_B in parts:
            begin_B1, end_B1 = end_B1, end_B1 + kept_B[:, None]
            shift_B1 = known + tf.cast(first_B, tf.int32)[:, None] - begin_B1
            inside_BL = (position_L >= begin_B1) & (position_L < end_B1)
            source_BL = tf.where(inside_BL, position_L + shift_B1, source_BL)
            source_BL = tf.where(position_L == end_B1, 2, source_BL)
            known, end_B1 = known + tf.size(ids), end_B1 + 1
        mask_BL = position_L < end_B1
        second_BL = mask_BL & (position_L >= begin_B1) & (len(parts) > 1)
        return {
            "token_ids": tf.gather(tf.concat(entries, 0), source_BL),
            "segment_ids": tf.cast(second_BL, tf.int32),
            "padding_mask": tf.cast(mask_BL, tf.int32),
        }


class GraphInputs(GraphEncoder):
    """Encode texts and pairs."""

    def __init__(
        self,
        tokenizer: WordPieceTokenizer,
        max_length: int,
        limits: RequestLimits = LIMITS,
    ):
        super().__init__(tokenizer, limits)
        self._max_length = max_length

    def __call__(
        self, text_B: tf.Tensor, text_b_B: tf.Tensor | None = None
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Encode texts, or pairs with `text_b_B`, whose invalid bytes are dropped.

        Returns:
            `token_ids`, `segment_ids` and `padding_mask`, each int32 [B, L], and the
            number of wordpieces cut off, int32 [B]. More positions than the limit raise
            `InvalidArgumentError` at run time, before they are allocated.
        """
        first = self._tokenize(text_B)
        length_B = _lengths(first)
        if text_b_B is None:
            kept_B = tf.minimum(length_B, self._max_length - 2)
            inputs = self._packed((first.values, first.row_starts(), kept_B))
            return inputs, length_B - kept_B
        second = self._tokenize(text_b_B)
        kept_a_B, kept_b_B = truncated_lengths(
            length_B, _lengths(second), self._max_length - 3
        )
        cut_B = length_B + _lengths(second) - kept_a_B - kept_b_B
        inputs = self._packed(
            (first.values, first.row_starts(), kept_a_B),
            (second.values, second.row_starts(), kept_b_B),
        )
        return inputs, cut_B


class GraphMasks(GraphInputs):
    """Encode texts in which `[MASK]`, in capitals, is the special token.

    The tokenizer itself never converts text to special tokens.
    """

    def __call__(self, text_B: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Encode texts, as `GraphInputs` does."""
        segments = tf.strings.split(text_B, MASK)
        pieces = self._tokenize(segments.values)
        masks = tf.fill([tf.size(segments.values), 1], self._mask)
        pieces = tf.concat([pieces, tf.RaggedTensor.from_tensor(masks)], axis=1)
        pieces = segments.with_values(pieces).merge_dims(1, 2)
        # Each segment got a mask, but no mask follows the last segment of a text.
        length_B = _lengths(pieces) - 1
        kept_B = tf.minimum(length_B, self._max_length - 2)
        inputs = self._packed((pieces.values, pieces.row_starts(), kept_B))
        return inputs, length_B - kept_B


def truncated_lengths(
    a_B: tf.Tensor, b_B: tf.Tensor, max_length: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute the lengths of both texts after truncation.

    Equal to `encoding.truncate`, without a loop. Lengths are int32 [B].
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
