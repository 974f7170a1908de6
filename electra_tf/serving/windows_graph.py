"""Encode questions and contexts as windows in a graph.

The windows equal those of `tasks.windows`. Axes: P windows of all questions, L
positions, T wordpieces of all contexts.
"""

from typing import NamedTuple

import tensorflow as tf

from electra_tf.config.finetuning import DataConfig
from electra_tf.serving.request_limits import LIMITS, RequestLimits
from electra_tf.serving.text_graph import GraphEncoder
from electra_tf.tasks.windows import query_limit
from electra_tf.text.graph_tokenizer import (
    drop_invalid_utf8,
    repeat_rows,
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
        length_B = tf.cast(query.row_lengths(), tf.int32)
        kept_B = tf.minimum(length_B, query_limit(self._settings))
        # `tasks.windows` tokenizes the context word by word. Its word boundaries are
        # also boundaries of the tokenizer, so the wordpieces are the same.
        document = self._tokenize.encode_with_offsets(context_B)
        ranges = self._window_ranges(kept_B, document.ids)
        kept_P = tf.gather(kept_B, ranges.row_P)
        inputs = self._packed(
            (query.values, tf.gather(query.row_starts(), ranges.row_P), kept_P),
            (document.ids.values, ranges.first_P, ranges.length_P),
        )
        count = tf.size(document.ids.values)
        longest = tf.shape(inputs["token_ids"])[1]
        piece_PL, max_context_PL = _align(ranges, kept_P + 2, longest, count)
        return inputs, WindowAlignment(
            context_B=drop_invalid_utf8(context_B),
            row_P=ranges.row_P,
            piece_PL=piece_PL,
            max_context_PL=max_context_PL,
            start_T=tf.concat([[-1], document.starts.values], 0),
            end_T=tf.concat([[-1], document.ends.values], 0),
            num_truncated_B=length_B - kept_B,
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
        row_P = repeat_rows(tf.range(tf.size(windows_B)), windows_B)
        number_P = tf.ragged.range(windows_B).values
        first_P = number_P * tf.gather(step_B, row_P)
        remaining_P = tf.gather(pieces_B, row_P) - first_P
        length_P = tf.minimum(remaining_P, tf.gather(room_B, row_P))
        base_B = tf.cast(ids.row_starts(), tf.int32)
        return _WindowRanges(row_P, tf.gather(base_B, row_P) + first_P, length_P)


def _align(
    ranges: _WindowRanges, offset_P: tf.Tensor, longest: tf.Tensor, count: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return `piece_PL` and `max_context_PL`, given the number of all wordpieces."""
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
    best_score_T = tf.math.unsorted_segment_max(scores_PL, piece_PL, count + 1)
    is_best_PL = scores_PL == tf.gather(best_score_T, piece_PL)
    candidates_PL = tf.where(is_best_PL, window_PL, tf.int32.max)
    best_window_T = tf.math.unsorted_segment_min(candidates_PL, piece_PL, count + 1)
    is_best_PL = tf.gather(best_window_T, piece_PL) == window_PL
    return piece_PL, is_piece_PL & is_best_PL
