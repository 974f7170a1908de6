"""Encode texts with TensorFlow operations, equal to `text.encoding.encode_rows`."""

import tensorflow as tf

from electra_tf.serving.request_limits import LIMITS, RequestLimits
from electra_tf.serving.signatures import assert_max_positions
from electra_tf.text.graph_tokenizer import truncate_rows
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CLS, MASK, SEP, UNKNOWN

_FILLER = 0


class GraphEncoder(tf.Module):
    """Tokenizer that runs in a graph, and joins and pads rows of ids."""

    def __init__(self, tokenizer: Tokenizer, limits: RequestLimits):
        super().__init__()
        self._limits = limits
        self._tokenize = tokenizer.graph()
        self._cls, self._sep, self._mask, self._unknown = (
            tokenizer.vocabulary.ids[name] for name in (CLS, SEP, MASK, UNKNOWN)
        )

    def _join(self, *parts: tf.RaggedTensor) -> tf.RaggedTensor:
        """Return rows of [CLS] and each part with a [SEP] after it."""
        rows = parts[0].nrows(tf.int32)
        cls, sep = (
            tf.RaggedTensor.from_tensor(tf.fill([rows, 1], index))
            for index in (self._cls, self._sep)
        )
        joined = [cls]
        for part in parts:
            joined += [part, sep]
        return tf.concat(joined, axis=1)

    def _padded(
        self, ids: tf.RaggedTensor, shortest: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return ids and their mask, int32 [P, L].

        Without any row, L is `shortest`, the length of an empty one.
        """
        lengths_P = tf.cast(ids.row_lengths(), tf.int32)
        longest = tf.reduce_max(tf.concat([[shortest], lengths_P], 0))
        mask_PL = tf.sequence_mask(lengths_P, longest, tf.int32)
        return ids.to_tensor(shape=tf.stack([-1, longest])), mask_PL


class GraphInputs(GraphEncoder):
    """Encode texts and pairs."""

    def __init__(
        self, tokenizer: Tokenizer, max_length: int, limits: RequestLimits = LIMITS
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
        length_B = pieces.row_lengths() - 1
        kept_B = tf.minimum(length_B, self._max_length - 2)
        longest = 2 + tf.cast(tf.reduce_max(tf.concat([[0], kept_B], 0)), tf.int32)
        within = assert_max_positions(tf.size(text_B), longest, self._limits)
        with tf.control_dependencies([within]):
            kept_B = tf.identity(kept_B)
        ids_BL, mask_BL = self._padded(self._join(truncate_rows(pieces, kept_B)), 0)
        inputs = {
            "token_ids": ids_BL,
            "segment_ids": tf.zeros_like(mask_BL),
            "padding_mask": mask_BL,
        }
        return inputs, tf.cast(length_B - kept_B, tf.int32)


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
