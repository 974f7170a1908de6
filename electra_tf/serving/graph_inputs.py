"""Texts -> the encoder's inputs inside a graph, equal to `tasks.pairs.pack`."""

import tensorflow as tf

from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CLS, SEP


class GraphInputs(tf.Module):
    """Tokenizes, truncates and joins texts inside a graph.

    Args:
        tokenizer: The checkpoint's.
        max_length: Positions with special tokens, as in training.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int):
        super().__init__()
        self._tokenize = tokenizer.graph()
        self._max_length = max_length
        self._cls, self._sep = (tokenizer.vocabulary.ids[name] for name in (CLS, SEP))

    def __call__(
        self, text_B: tf.Tensor, text_b_B: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Packs texts, or pairs, to a batch as long as its longest.

        Args:
            text_B: UTF-8 strings; invalid bytes are dropped.
            text_b_B: The second texts of pairs; None: there are none.

        Returns:
            `token_ids`, `segment_ids` and `padding_mask`, each int32 [B, L].
        """
        first = self._tokenize(text_B)
        rows = tf.shape(text_B)[0]
        cls, sep = (
            tf.RaggedTensor.from_tensor(tf.fill([rows, 1], index))
            for index in (self._cls, self._sep)
        )
        if text_b_B is None:
            kept = tf.minimum(_lengths(first), self._max_length - 2)
            ids = tf.concat([cls, _head(first, kept), sep], axis=1)
            segments_of = tf.zeros_like(ids.row_lengths())
        else:
            second = self._tokenize(text_b_B)
            kept_a, kept_b = kept_lengths(
                _lengths(first), _lengths(second), self._max_length - 3
            )
            head, tail = _head(first, kept_a), _head(second, kept_b)
            ids = tf.concat([cls, head, sep, tail, sep], axis=1)
            segments_of = tf.cast(kept_b, tf.int64) + 1
        lengths_B = tf.cast(ids.row_lengths(), tf.int32)
        ids_BL = ids.to_tensor()
        longest = tf.shape(ids_BL)[1]
        mask_BL = tf.sequence_mask(lengths_B, longest, tf.int32)
        first_of_b_B = lengths_B - tf.cast(segments_of, tf.int32)
        before_BL = tf.sequence_mask(first_of_b_B, longest, tf.int32)
        return {
            "token_ids": ids_BL,
            "segment_ids": mask_BL - before_BL,
            "padding_mask": mask_BL,
        }


def kept_lengths(
    a_B: tf.Tensor, b_B: tf.Tensor, room: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """How many pieces of each text are left where the longer one loses its last.

    Piece by piece, from the second text where both are equally long (see
    `tasks.pairs.truncate`), written without a loop.

    Args:
        a_B: int32, pieces of the first texts.
        b_B: int32, pieces of the second ones.
        room: Pieces of both together.

    Returns:
        What is left of each, int32 [B].
    """
    surplus_B = tf.maximum(a_B + b_B - room, 0)
    # First the longer one comes down to the other, then they take turns.
    alone_a_B = tf.minimum(surplus_B, tf.maximum(a_B - b_B, 0))
    alone_b_B = tf.minimum(surplus_B, tf.maximum(b_B - a_B, 0))
    turns_B = surplus_B - alone_a_B - alone_b_B
    lost_a_B = alone_a_B + turns_B // 2
    lost_b_B = alone_b_B + turns_B - turns_B // 2
    return a_B - lost_a_B, b_B - lost_b_B


def _lengths(ids: tf.RaggedTensor) -> tf.Tensor:
    return tf.cast(ids.row_lengths(), tf.int32)


def _head(ids: tf.RaggedTensor, kept_B: tf.Tensor) -> tf.RaggedTensor:
    """The first pieces of each row."""
    places = tf.ragged.range(_lengths(ids))
    return tf.ragged.boolean_mask(ids, places < kept_B[:, None])
