"""Convert texts with [MASK] to the encoder's inputs inside a graph."""

import tensorflow as tf

from electra_tf.serving.request_limits import (
    LIMITS,
    RequestLimits,
    assert_max_positions,
)
from electra_tf.text.graph_tokenizer import truncate_rows
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CLS, MASK, SEP


class GraphMasks(tf.Module):
    """Tokenizer of texts in which `[MASK]` is the special token.

    The tokenizer itself never converts text to special tokens. `[MASK]` is
    case-sensitive.
    """

    def __init__(
        self, tokenizer: Tokenizer, max_length: int, limits: RequestLimits = LIMITS
    ):
        super().__init__()
        self._limits = limits
        self._tokenize = tokenizer.graph()
        self._max_length = max_length
        ids = tokenizer.vocabulary.ids
        self._cls, self._sep, self._mask = ids[CLS], ids[SEP], ids[MASK]

    def with_cut(self, text_B: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Return texts as a batch padded to its longest, and truncation counts.

        Args:
            text_B: UTF-8 strings.

        Returns:
            `token_ids`, `segment_ids` and `padding_mask`, each int32 [B, L], and the
            number of wordpieces cut off, int32 [B]. `InvalidArgumentError` at run time
            if the positions exceed the limit; this is checked before the batch is
            built.
        """
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
        pieces = truncate_rows(pieces, kept_B)
        ends = tf.ones([tf.size(text_B), 1], tf.int32)
        cls, sep = (
            tf.RaggedTensor.from_tensor(ends * index)
            for index in (self._cls, self._sep)
        )
        ids = tf.concat([cls, pieces, sep], axis=1)
        mask_BL = tf.sequence_mask(ids.row_lengths(), dtype=tf.int32)
        inputs = {
            "token_ids": ids.to_tensor(),
            "segment_ids": tf.zeros_like(mask_BL),
            "padding_mask": mask_BL,
        }
        return inputs, tf.cast(length_B - kept_B, tf.int32)
