"""Decode answers from the outputs for windows in a graph.

The answers equal those of `tasks.spans`. Axes: P windows of all questions, L positions,
S candidates for the start, K for the end, N pairs of both.
"""

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from electra_tf.config.finetuning import TaskModelConfig
from electra_tf.serving.windows_graph import WindowAlignment

NO_SPAN = -1e30  # score of a question without a valid span
_LOWEST = tf.float32.min


class _Pairs(NamedTuple):
    """Starts, ends and scores of candidate spans; all are [P, N]."""

    start: tf.Tensor
    end: tf.Tensor
    score: tf.Tensor


class _Best(NamedTuple):
    """Best span of each question; all are [B]."""

    is_valid: tf.Tensor  # bool: the question has a valid span
    score: tf.Tensor
    start: tf.Tensor  # first character in the context
    end: tf.Tensor  # index after the last character


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
    pairs = _pairs(outputs, settings.n_best)
    valid_PN = tf.gather(alignment.max_context_PL, pairs.start, batch_dims=1)
    valid_PN &= tf.gather(alignment.piece_PL, pairs.end, batch_dims=1) > 0
    length_PN = pairs.end - pairs.start
    valid_PN &= (length_PN >= 0) & (length_PN < settings.max_answer_length)
    pairs = pairs._replace(score=tf.where(valid_PN, pairs.score, _LOWEST))
    best = _best(pairs, alignment)
    odds_B = _null_odds(outputs, alignment, best)
    has_answer_B = best.is_valid
    if threshold is not None:
        # A tuned threshold equals one of the odds, so float64 decides the tie.
        has_answer_B &= ~(odds_B > tf.cast(threshold, tf.float64))
    start_B, end_B = (
        tf.where(has_answer_B, index_B, 0) for index_B in (best.start, best.end)
    )
    answer_B = tf.strings.substr(
        alignment.context_B, start_B, end_B - start_B, unit="UTF8_CHAR"
    )
    return {
        "answer": tf.strings.regex_replace(answer_B, r"[ \t\r\n\x{202f}]+", " "),
        "null_odds": tf.cast(odds_B, tf.float32),
        "score": best.score,
        "start": tf.where(has_answer_B, start_B, -1),
        "end": tf.where(has_answer_B, end_B, -1),
    }


def _pairs(outputs: Mapping[str, tf.Tensor], n_best: int) -> _Pairs:
    """Return the candidate spans in the order of `tasks.spans`."""
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
    return _Pairs(
        *(tf.reshape(x, flat) for x in (start_index_PSK, end_index_PSK, score_PSK))
    )


def _best(pairs: _Pairs, alignment: WindowAlignment) -> _Best:
    """Return the best span; among equal scores the first pair of the first window."""
    rows, row_P = tf.size(alignment.context_B), alignment.row_P
    score_P = tf.reduce_max(pairs.score, 1)
    pair_P = tf.argmax(pairs.score, 1, tf.int32)
    score_B = tf.math.unsorted_segment_max(score_P, row_P, rows)
    windows = tf.size(score_P)
    is_best_P = score_P == tf.gather(score_B, row_P)
    window_P = tf.where(is_best_P, tf.range(windows), windows - 1)
    window_B = tf.math.unsorted_segment_min(window_P, row_P, rows)
    is_valid_B = score_B > _LOWEST

    def character(of_T: tf.Tensor, position_PN: tf.Tensor) -> tf.Tensor:
        position_P = tf.gather(position_PN, pair_P, batch_dims=1)
        piece_P = tf.gather(alignment.piece_PL, position_P, batch_dims=1)
        return tf.gather(of_T, tf.gather(piece_P, window_B))

    return _Best(
        is_valid_B,
        tf.where(is_valid_B, score_B, NO_SPAN),
        character(alignment.start_T, pairs.start),
        character(alignment.end_T, pairs.end),
    )


def _null_odds(
    outputs: Mapping[str, tf.Tensor], alignment: WindowAlignment, best: _Best
) -> tf.Tensor:
    """Return the smallest score of no answer over the windows, float64 [B]."""
    answerable = "answerable_logit_B" in outputs
    if answerable:
        odds_P = tf.cast(outputs["answerable_logit_B"], tf.float64)
    else:
        start_PL = tf.cast(outputs["start_logits_BL"], tf.float64)
        if "end_logits_BL" in outputs:
            end_PL = tf.cast(outputs["end_logits_BL"], tf.float64)
            odds_P = start_PL[:, 0] + end_PL[:, 0]
        else:
            odds_P = tf.nn.log_softmax(start_PL)[:, 0]
    rows = tf.size(alignment.context_B)
    odds_B = tf.math.unsorted_segment_min(odds_P, alignment.row_P, rows)
    if answerable:
        return odds_B
    score_B = tf.cast(best.score, tf.float64)
    return odds_B - tf.where(best.is_valid, score_B, tf.zeros_like(score_B))
