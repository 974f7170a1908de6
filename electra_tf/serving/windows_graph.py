"""Encode questions and contexts as windows in a graph.

The windows equal those of `tasks.windows`. Axes: P windows of all questions, L
positions, T wordpieces of all contexts.
"""

from typing import NamedTuple

import tensorflow as tf

from electra_tf.config.finetuning import DataConfig
from electra_tf.serving.request_limits import LIMITS, RequestLimits
from electra_tf.serving.signatures import assert_max_positions
from electra_tf.serving.text_graph import GraphEncoder
from electra_tf.tasks.windows import query_limit
from electra_tf.text.graph_tokenizer import (
    TokenOffsets,
    drop_invalid_utf8,
    repeat_rows,
    truncate_rows,
)
from electra_tf.text.tokenizer import Tokenizer

_SPECIALS = 3  # [CLS], and [SEP] twice


class WindowAlignment(NamedTuple):
    """Alignment of the positions of windows with the characters of contexts.

    The wordpieces of all contexts are numbered from 1; 0 means no wordpiece.
    """

    context_B: tf.Tensor
    """The contexts without invalid bytes; character indices refer to these."""
    row_P: tf.Tensor
    """int32: index of each window's question."""
    piece_PL: tf.Tensor
    """int32: number of the wordpiece at each position."""
    max_context_PL: tf.Tensor
    """bool: whether the window is the one with the most text around the wordpiece."""
    start_T: tf.Tensor
    """int32: first character of each wordpiece in its context; -1 for number 0."""
    end_T: tf.Tensor
    """int32: index after its last character with its combining marks; -1 for
    number 0."""
    num_truncated_B: tf.Tensor
    """int32: wordpieces dropped from each question."""


class _WindowRanges(NamedTuple):
    """Range of context wordpieces of each window."""

    row_P: tf.Tensor
    first_P: tf.Tensor  # among the wordpieces of all contexts, from 0
    length_P: tf.Tensor


class GraphWindows(GraphEncoder):
    """Split contexts into overlapping windows, each with its question."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        settings: DataConfig,
        limits: RequestLimits = LIMITS,
    ):
        super().__init__(tokenizer, limits)
        self._settings = settings

    def __call__(
        self, question_B: tf.Tensor, context_B: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], WindowAlignment]:
        """Pack all windows of all questions, question by question.

        Returns:
            Inputs, each int32 [P, L], with one or more windows of each question, and
            their alignment. More positions than the limit raise `InvalidArgumentError`
            at run time, before they are allocated.
        """
        query = self._tokenize(question_B)
        question = truncate_rows(query, query_limit(self._settings))
        # `tasks.windows` tokenizes the context word by word. Its word boundaries are
        # also boundaries of the tokenizer, so the wordpieces are the same.
        document = self._tokenize.encode_with_offsets(context_B)
        query_length_B = tf.cast(question.row_lengths(), tf.int32)
        ranges = self._window_ranges(query_length_B, document.ids)
        offset_P = tf.gather(query_length_B, ranges.row_P) + 2
        inputs = self._packed(question, document.ids, ranges, offset_P)
        length = tf.shape(inputs["token_ids"])[1]
        alignment = _align(document, ranges, offset_P, length)
        return inputs, alignment._replace(
            context_B=drop_invalid_utf8(context_B),
            num_truncated_B=tf.cast(query.row_lengths(), tf.int32) - query_length_B,
        )

    def _window_ranges(
        self, query_length_B: tf.Tensor, ids: tf.RaggedTensor
    ) -> _WindowRanges:
        """Split the wordpieces of each context into windows."""
        room_B = self._settings.max_length - _SPECIALS - query_length_B
        pieces_B = tf.cast(ids.row_lengths(), tf.int32)
        step_B = tf.minimum(room_B, self._settings.doc_stride)
        excess_B = tf.maximum(pieces_B - room_B, 0)
        windows_B = 1 + (excess_B + step_B - 1) // step_B
        lengths_B = query_length_B + _SPECIALS + tf.minimum(pieces_B, room_B)
        longest = tf.reduce_max(tf.concat([[0], lengths_B], 0))
        windows = tf.reduce_sum(windows_B)
        within = assert_max_positions(windows, longest, self._limits)
        with tf.control_dependencies([within]):
            windows_B = tf.identity(windows_B)
        row_P = repeat_rows(tf.range(tf.size(windows_B)), windows_B)
        number_P = tf.ragged.range(windows_B).values
        first_P = number_P * tf.gather(step_B, row_P)
        remaining_P = tf.gather(pieces_B, row_P) - first_P
        length_P = tf.minimum(remaining_P, tf.gather(room_B, row_P))
        base_B = tf.cast(ids.row_starts(), tf.int32)
        return _WindowRanges(row_P, tf.gather(base_B, row_P) + first_P, length_P)

    def _packed(
        self,
        question: tf.RaggedTensor,
        document: tf.RaggedTensor,
        ranges: _WindowRanges,
        offset_P: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Return the padded inputs of all windows."""
        index = tf.ragged.range(ranges.first_P, ranges.first_P + ranges.length_P)
        context = index.with_values(tf.gather(document.values, index.values))
        ids = self._join(tf.gather(question, ranges.row_P), context)
        ids_PL, mask_PL = self._padded(ids, _SPECIALS)
        segment_0_PL = tf.sequence_mask(offset_P, tf.shape(ids_PL)[1], tf.int32)
        return {
            "token_ids": ids_PL,
            "segment_ids": mask_PL - segment_0_PL,
            "padding_mask": mask_PL,
        }


def _align(
    document: TokenOffsets,
    ranges: _WindowRanges,
    offset_P: tf.Tensor,
    longest: tf.Tensor,
) -> WindowAlignment:
    """Return the alignment without `context_B` and `num_truncated_B`."""
    index_PL = tf.range(longest)[None, :] - offset_P[:, None]
    length_P1 = ranges.length_P[:, None]
    is_piece_PL = (index_PL >= 0) & (index_PL < length_P1)
    piece_PL = tf.where(is_piece_PL, ranges.first_P[:, None] + index_PL + 1, 0)
    window_PL = tf.broadcast_to(
        tf.range(tf.size(offset_P))[:, None], tf.shape(piece_PL)
    )
    # The score of `windows._max_context_windows`, in float64 as in Python.
    sides_PL = tf.minimum(index_PL, length_P1 - 1 - index_PL)
    scores_PL = tf.cast(sides_PL, tf.float64) + 0.01 * tf.cast(length_P1, tf.float64)
    count = tf.size(document.ids.values) + 1
    best_score_T = tf.math.unsorted_segment_max(scores_PL, piece_PL, count)
    is_best_PL = scores_PL == tf.gather(best_score_T, piece_PL)
    candidates_PL = tf.where(is_best_PL, window_PL, tf.int32.max)
    best_window_T = tf.math.unsorted_segment_min(candidates_PL, piece_PL, count)
    return WindowAlignment(
        context_B=tf.constant([], tf.string),
        row_P=ranges.row_P,
        piece_PL=piece_PL,
        max_context_PL=is_piece_PL & (tf.gather(best_window_T, piece_PL) == window_PL),
        start_T=tf.concat([[-1], document.starts.values], 0),
        end_T=tf.concat([[-1], document.ends.values], 0),
        num_truncated_B=tf.constant([], tf.int32),
    )
