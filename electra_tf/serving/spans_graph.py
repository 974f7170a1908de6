"""Encode questions and contexts as windows in a graph, and decode answers from outputs.

The windows equal those of `tasks.windows`, the answers those of `tasks.spans`. Axes: P
windows of all questions, L positions, T wordpieces of all contexts, S candidates for
the start, K for the end, N pairs of both.
"""

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from electra_tf.config.finetuning import DataConfig, TaskModelConfig
from electra_tf.serving.text_graph import GraphEncoder
from electra_tf.text import graph_tokenizer

_SPECIALS = 3  # [CLS], and [SEP] twice
NO_SPAN = -1e30  # score of a question without a valid span
_LOWEST = tf.float32.min


class WindowAlignment(NamedTuple):
    """Positions of windows in contexts; wordpieces have numbers from 1, 0: none."""

    context_B: tf.Tensor  # without invalid bytes; characters refer to these
    row_P: tf.Tensor  # int32: index of each window's question
    piece_PL: tf.Tensor  # int32: number of the wordpiece at each position
    max_context_PL: tf.Tensor  # bool: no window has more text around the piece
    start_T: tf.Tensor  # int32: first character of each wordpiece; -1: none
    end_T: tf.Tensor  # int32: after its last character and marks; -1: none
    num_truncated_B: tf.Tensor  # int32: wordpieces dropped from each question


def encode_windows(
    encoder: GraphEncoder,
    settings: DataConfig,
    question_B: tf.Tensor,
    context_B: tf.Tensor,
) -> tuple[dict[str, tf.Tensor], WindowAlignment]:
    """Pack all windows of all questions, question by question.

    Returns:
        Inputs, each int32 [P, L], with one or more windows of each question, and
        their alignment. More positions than the limit raise `InvalidArgumentError`
        at run time, before they are allocated.
    """
    query = encoder.tokenize(question_B)
    length_B = tf.cast(query.row_lengths(), tf.int32)
    kept_B = tf.minimum(length_B, settings.query_limit)
    # `tasks.windows` tokenizes the context word by word. Its word boundaries are
    # also boundaries of the tokenizer, so the wordpieces are the same.
    document = encoder.tokenize.encode_with_offsets(context_B)
    row_P, first_P, length_P = _window_ranges(settings, kept_B, document.ids)
    kept_P = tf.gather(kept_B, row_P)
    inputs = encoder.packed(
        (query.values, tf.gather(query.row_starts(), row_P), kept_P),
        (document.ids.values, first_P, length_P),
    )
    count = tf.size(document.ids.values)
    index_PL = tf.range(tf.shape(inputs["token_ids"])[1]) - (kept_P[:, None] + 2)
    piece_PL, max_context_PL = _align(index_PL, first_P, length_P, count)
    return inputs, WindowAlignment(
        context_B=graph_tokenizer.drop_invalid_utf8(context_B),
        row_P=row_P,
        piece_PL=piece_PL,
        max_context_PL=max_context_PL,
        start_T=tf.concat([[-1], document.starts.values], 0),
        end_T=tf.concat([[-1], document.ends.values], 0),
        num_truncated_B=length_B - kept_B,
    )


def _window_ranges(
    settings: DataConfig, query_length_B: tf.Tensor, ids: tf.RaggedTensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return question, first wordpiece of all, and wordpieces of each window."""
    room_B = settings.max_length - _SPECIALS - query_length_B
    pieces_B = tf.cast(ids.row_lengths(), tf.int32)
    step_B = tf.minimum(room_B, settings.doc_stride)
    excess_B = tf.maximum(pieces_B - room_B, 0)
    windows_B = 1 + (excess_B + step_B - 1) // step_B
    row_P = graph_tokenizer.repeat_rows(tf.range(tf.size(windows_B)), windows_B)
    number_P = tf.ragged.range(windows_B).values
    first_P = number_P * tf.gather(step_B, row_P)
    remaining_P = tf.gather(pieces_B, row_P) - first_P
    length_P = tf.minimum(remaining_P, tf.gather(room_B, row_P))
    base_B = tf.cast(ids.row_starts(), tf.int32)
    return row_P, tf.gather(base_B, row_P) + first_P, length_P


def _align(
    index_PL: tf.Tensor, first_P: tf.Tensor, length_P: tf.Tensor, count: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return `piece_PL` and `max_context_PL`.

    `index_PL` are the indices of positions in the window's part of the context, `count`
    is the number of all wordpieces.
    """
    length_P1 = length_P[:, None]
    is_piece_PL = (index_PL >= 0) & (index_PL < length_P1)
    piece_PL = tf.where(is_piece_PL, first_P[:, None] + index_PL + 1, 0)
    window_PL = tf.zeros_like(piece_PL) + tf.range(tf.size(first_P))[:, None]
    # The score of `windows._max_context_windows`, in float64 as in Python.
    sides_PL = tf.minimum(index_PL, length_P1 - 1 - index_PL)
    scores_PL = tf.cast(sides_PL, tf.float64) + 0.01 * tf.cast(length_P1, tf.float64)
    best_score_T = tf.math.unsorted_segment_max(scores_PL, piece_PL, count + 1)
    is_best_PL = scores_PL == tf.gather(best_score_T, piece_PL)
    candidates_PL = tf.where(is_best_PL, window_PL, tf.int32.max)
    best_window_T = tf.math.unsorted_segment_min(candidates_PL, piece_PL, count + 1)
    is_best_PL = tf.gather(best_window_T, piece_PL) == window_PL
    return piece_PL, is_piece_PL & is_best_PL


def graph_answers(
    outputs: Mapping[str, tf.Tensor],
    alignment: WindowAlignment,
    settings: TaskModelConfig,
    threshold: float | tf.Tensor | None,
) -> dict[str, tf.Tensor]:
    """Choose the answer of each question among the spans of its windows.

    Returns:
        `answer`, strings [B], empty for no answer. `null_odds`, float32 [B], score of
        no answer. `score`, float32 [B], score of the best span, also if `answer` is
        empty; -1e30 without a valid span. `start` and `end`, int32 [B], the first
        character (code point) of the answer in the context without its invalid bytes
        and the index after its last; -1 for no answer.
    """
    start_PN, end_PN, score_PN = _pairs(outputs, settings.n_best)
    valid_PN = tf.gather(alignment.max_context_PL, start_PN, batch_dims=1)
    valid_PN &= tf.gather(alignment.piece_PL, end_PN, batch_dims=1) > 0
    length_PN = end_PN - start_PN
    valid_PN &= (length_PN >= 0) & (length_PN < settings.max_answer_length)
    score_PN = tf.where(valid_PN, score_PN, _LOWEST)
    score_B, start_B, end_B = _best(start_PN, end_PN, score_PN, alignment)
    has_answer_B = score_B > _LOWEST
    odds_B = _null_odds(outputs, alignment, tf.where(has_answer_B, score_B, 0))
    score_B = tf.where(has_answer_B, score_B, NO_SPAN)
    if threshold is not None:
        # A tuned threshold equals one of the odds, so float64 decides the tie.
        has_answer_B &= ~(odds_B > tf.cast(threshold, tf.float64))
    start_B, end_B = (
        tf.where(has_answer_B, index_B, 0) for index_B in (start_B, end_B)
    )
    answer_B = tf.strings.substr(
        alignment.context_B, start_B, end_B - start_B, unit="UTF8_CHAR"
    )
    return {
        "answer": tf.strings.regex_replace(answer_B, r"[ \t\r\n\x{202f}]+", " "),
        "null_odds": tf.cast(odds_B, tf.float32),
        "score": score_B,
        "start": tf.where(has_answer_B, start_B, -1),
        "end": tf.where(has_answer_B, end_B, -1),
    }


def _pairs(outputs: Mapping[str, tf.Tensor], n_best: int) -> list[tf.Tensor]:
    """Return starts, ends and scores of candidates in the order of `tasks.spans`."""
    if "end_logits_BL" in outputs:
        count = tf.minimum(n_best, tf.shape(outputs["start_logits_BL"])[1])
        start_PS, start_index_PS = tf.math.top_k(outputs["start_logits_BL"], count)
        end_PK, end_index_PK = tf.math.top_k(outputs["end_logits_BL"], count)
        end_PSK, end_index_PSK = end_PK[:, None, :], end_index_PK[:, None, :]
    else:
        start_PS = outputs["start_top_log_probs_BS"]
        start_index_PS = outputs["start_top_index_BS"]
        end_PSK = outputs["end_top_log_probs_BSK"]
        end_index_PSK = outputs["end_top_index_BSK"]
    score_PSK = start_PS[:, :, None] + end_PSK
    shape = tf.shape(score_PSK)
    start_index_PSK = tf.broadcast_to(start_index_PS[:, :, None], shape)
    end_index_PSK = tf.broadcast_to(end_index_PSK, shape)
    flat = tf.stack([shape[0], shape[1] * shape[2]])
    return [tf.reshape(x, flat) for x in (start_index_PSK, end_index_PSK, score_PSK)]


def _best(
    start_PN: tf.Tensor,
    end_PN: tf.Tensor,
    score_PN: tf.Tensor,
    alignment: WindowAlignment,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the score of each question's best span, and its range of characters.

    Among equal scores it is the first pair of the first window.
    """
    rows, row_P = tf.size(alignment.context_B), alignment.row_P
    score_P = tf.reduce_max(score_PN, 1)
    pair_P = tf.argmax(score_PN, 1, tf.int32)
    score_B = tf.math.unsorted_segment_max(score_P, row_P, rows)
    windows = tf.size(score_P)
    is_best_P = score_P == tf.gather(score_B, row_P)
    window_P = tf.where(is_best_P, tf.range(windows), windows - 1)
    window_B = tf.math.unsorted_segment_min(window_P, row_P, rows)

    def character(of_T: tf.Tensor, position_PN: tf.Tensor) -> tf.Tensor:
        position_P = tf.gather(position_PN, pair_P, batch_dims=1)
        piece_P = tf.gather(alignment.piece_PL, position_P, batch_dims=1)
        return tf.gather(of_T, tf.gather(piece_P, window_B))

    start_B = character(alignment.start_T, start_PN)
    return score_B, start_B, character(alignment.end_T, end_PN)


def _null_odds(
    outputs: Mapping[str, tf.Tensor], alignment: WindowAlignment, score_B: tf.Tensor
) -> tf.Tensor:
    """Return the smallest score of no answer over the windows, float64 [B].

    `score_B` is that of the best span, 0 without a valid one.
    """
    rows, row_P = tf.size(alignment.context_B), alignment.row_P
    if "answerable_logit_B" in outputs:
        odds_P = tf.cast(outputs["answerable_logit_B"], tf.float64)
        return tf.math.unsorted_segment_min(odds_P, row_P, rows)
    start_PL = tf.cast(outputs["start_logits_BL"], tf.float64)
    if "end_logits_BL" in outputs:
        odds_P = start_PL[:, 0] + tf.cast(outputs["end_logits_BL"], tf.float64)[:, 0]
    else:
        odds_P = tf.nn.log_softmax(start_PL)[:, 0]
    odds_B = tf.math.unsorted_segment_min(odds_P, row_P, rows)
    return odds_B - tf.cast(score_B, tf.float64)
