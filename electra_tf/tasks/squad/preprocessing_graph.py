"""Questions and contexts -> windows inside a graph, equal to `tasks.squad_windows`.

Axes: P windows of all questions, L positions, T pieces of all contexts.
"""

from typing import NamedTuple

import tensorflow as tf

from electra_tf.tasks.request_limits import assert_max_parts
from electra_tf.tasks.squad.preprocessing import QAFeatureConfig
from electra_tf.text.graph_tokenizer import TokenOffsets, drop_invalid_utf8
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CLS, SEP

_SPECIALS = 3  # [CLS], and [SEP] twice


class WindowAlignment(NamedTuple):
    """The way back from windows to contexts.

    The pieces of all contexts are numbered from 1; 0 stands for no piece.
    """

    context_B: tf.Tensor
    """The contexts without invalid bytes, whose characters are counted."""
    row_P: tf.Tensor
    """int32: the question of each window."""
    piece_PL: tf.Tensor
    """int32: the piece at each position."""
    max_context_PL: tf.Tensor
    """bool: the position holds a piece of the context that no other window shows with
    more text on both sides."""
    first_T: tf.Tensor
    """int32: the first character of each piece in its context; -1 of no piece."""
    beyond_T: tf.Tensor
    """int32: the one beyond its last, marks included; -1 of no piece."""
    cut_B: tf.Tensor
    """int32: pieces that each question lost."""


class _Cut(NamedTuple):
    """Which pieces each window shows."""

    row_P: tf.Tensor
    first_P: tf.Tensor  # among the pieces of all contexts, from 0
    length_P: tf.Tensor


class GraphWindows(tf.Module):
    """Cuts contexts into windows that overlap, each beside its question.

    Args:
        tokenizer: The checkpoint's.
        rule: How long the windows are and how they overlap.
    """

    def __init__(self, tokenizer: Tokenizer, rule: QAFeatureConfig):
        super().__init__()
        self._tokenize = tokenizer.graph()
        self._rule = rule
        self._cls, self._sep = (tokenizer.vocabulary.ids[name] for name in (CLS, SEP))

    def __call__(
        self, question_B: tf.Tensor, context_B: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], WindowAlignment]:
        """Packs all windows of all questions, question by question.

        Args:
            question_B: UTF-8 strings; invalid bytes are dropped.
            context_B: The texts to answer them from, likewise, as many.

        Returns:
            inputs: `token_ids`, `segment_ids` and `padding_mask`, each int32 [P, L];
                each question has a window or more.
            book: What `GraphAnswers` takes.

            `InvalidArgumentError` at run time, before there are inputs, where there are
            more windows than `by_parts.MOST`.
        """
        query = self._tokenize(question_B)
        kept = tf.ragged.range(query.row_lengths()) < self._rule.max_query_length
        head = tf.ragged.boolean_mask(query, kept)
        # The original tokenizes word by word; it parts words at some of the spaces
        # that the tokenizer parts them at, so this gives the same pieces.
        document = self._tokenize.encode_with_offsets(context_B)
        head_B = tf.cast(head.row_lengths(), tf.int32)
        cut = self._cut(head_B, document.ids)
        inputs = self._packed(head, document.ids, cut)
        offset_P = tf.gather(head_B, cut.row_P) + 2
        book = _book(document, cut, offset_P, tf.shape(inputs["token_ids"])[1])
        cut_B = tf.cast(query.row_lengths(), tf.int32) - head_B
        return inputs, book._replace(
            context_B=drop_invalid_utf8(context_B), cut_B=cut_B
        )

    def _cut(self, head_B: tf.Tensor, ids: tf.RaggedTensor) -> _Cut:
        room_B = self._rule.max_length - _SPECIALS - head_B
        pieces_B = tf.cast(ids.row_lengths(), tf.int32)
        step_B = tf.minimum(room_B, self._rule.doc_stride)
        beyond_B = tf.maximum(pieces_B - room_B, 0)
        windows_B = 1 + (beyond_B + step_B - 1) // step_B
        with tf.control_dependencies([assert_max_parts(tf.reduce_sum(windows_B))]):
            windows_B = tf.identity(windows_B)
        row_P = tf.repeat(tf.range(tf.size(windows_B)), windows_B)
        number_P = tf.ragged.range(windows_B).values
        first_P = number_P * tf.gather(step_B, row_P)
        left_P = tf.gather(pieces_B, row_P) - first_P
        length_P = tf.minimum(left_P, tf.gather(room_B, row_P))
        base_B = tf.cast(ids.row_starts(), tf.int32)
        return _Cut(row_P, tf.gather(base_B, row_P) + first_P, length_P)

    def _packed(
        self, head: tf.RaggedTensor, document: tf.RaggedTensor, cut: _Cut
    ) -> dict[str, tf.Tensor]:
        shown = tf.ragged.range(cut.first_P, cut.first_P + cut.length_P)
        part = shown.with_values(tf.gather(document.values, shown.values))
        cls, sep = (
            tf.RaggedTensor.from_tensor(tf.fill([tf.size(cut.row_P), 1], index))
            for index in (self._cls, self._sep)
        )
        ids = tf.concat([cls, tf.gather(head, cut.row_P), sep, part, sep], axis=1)
        lengths_P = tf.cast(ids.row_lengths(), tf.int32)
        # Of no window at all, the positions of an empty one: no axis is of length 0.
        longest = tf.reduce_max(tf.concat([[_SPECIALS], lengths_P], 0))
        mask_PL = tf.sequence_mask(lengths_P, longest, tf.int32)
        offset_P = lengths_P - cut.length_P - 1
        before_PL = tf.sequence_mask(offset_P, longest, tf.int32)
        return {
            "token_ids": ids.to_tensor(shape=tf.stack([-1, longest])),
            "segment_ids": mask_PL - before_PL,
            "padding_mask": mask_PL,
        }


def _book(
    document: TokenOffsets, cut: _Cut, offset_P: tf.Tensor, longest: tf.Tensor
) -> WindowAlignment:
    """All but the contexts."""
    place_PL = tf.range(longest)[None, :] - offset_P[:, None]
    length_P1 = cut.length_P[:, None]
    shown_PL = (place_PL >= 0) & (place_PL < length_P1)
    piece_PL = tf.where(shown_PL, cut.first_P[:, None] + place_PL + 1, 0)
    window_PL = tf.broadcast_to(
        tf.range(tf.size(offset_P))[:, None], tf.shape(piece_PL)
    )
    # The larger of the smaller sides, with a hundredth of the part's length added;
    # of equals the first window's. In float64, as Python has it.
    sides_PL = tf.minimum(place_PL, length_P1 - 1 - place_PL)
    scores_PL = tf.cast(sides_PL, tf.float64) + 0.01 * tf.cast(length_P1, tf.float64)
    count = tf.size(document.ids.values) + 1
    most_T = tf.math.unsorted_segment_max(scores_PL, piece_PL, count)
    most_PL = tf.gather(most_T, piece_PL)
    candidates_PL = tf.where(scores_PL == most_PL, window_PL, tf.int32.max)
    best_T = tf.math.unsorted_segment_min(candidates_PL, piece_PL, count)
    return WindowAlignment(
        context_B=tf.constant([], tf.string),
        row_P=cut.row_P,
        piece_PL=piece_PL,
        max_context_PL=shown_PL & (tf.gather(best_T, piece_PL) == window_PL),
        first_T=tf.concat([[-1], document.first.values], 0),
        beyond_T=tf.concat([[-1], document.beyond.values], 0),
        cut_B=tf.constant([], tf.int32),
    )
