"""What the head says of windows -> answers, inside a graph.

Equal to `tasks.squad_answers`. Axes: P windows of all questions, L positions, S
candidates for the start, K for the end, N pairs of both.
"""

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from electra_tf.errors import InputError
from electra_tf.tasks.squad.decoding import DecodingConfig
from electra_tf.tasks.squad.preprocessing_graph import WindowAlignment

NO_SPAN = -1e30  # the score where none is possible
_LOWEST = tf.float32.min


class _Pairs(NamedTuple):
    """Starts with their ends in the order they are tried; all are [P, N]."""

    start: tf.Tensor
    end: tf.Tensor
    score: tf.Tensor


class _Best(NamedTuple):
    """The best span of each question; all are [B]."""

    found: tf.Tensor
    score: tf.Tensor
    first: tf.Tensor  # characters
    beyond: tf.Tensor


class GraphAnswers(tf.Module):
    """Chooses each question's answer among the spans of its windows.

    An answer is the characters that its pieces are made of, white space as single
    spaces: `squad_answers` with `text="exact"`. That would look for the answer's words
    instead where pieces tell no way back to their characters; here there always is
    one, and no context is known where the two differ.

    Args:
        settings: How spans are chosen.

    Raises:
        InputError: `text` is not `exact`.
    """

    def __init__(self, settings: DecodingConfig = DecodingConfig()):
        super().__init__()
        if settings.text != "exact":
            raise InputError(
                "In a graph answers are the characters of their pieces, text=exact",
                f"text={settings.text!r}",
                "Leave it out, or use QuestionAnswerer.predict",
            )
        self._settings = settings

    def __call__(
        self,
        outputs: Mapping[str, tf.Tensor],
        book: WindowAlignment,
        threshold: float | tf.Tensor | None,
    ) -> dict[str, tf.Tensor]:
        """Tells the answers.

        Args:
            outputs: What `SpanHead` returned without right starts, for the inputs
                that came with the book.
            book: Of `GraphWindows`.
            threshold: Odds above which there is no answer; None: there always is one,
                if any span is possible.

        Returns:
            `answer`, strings [B], empty where there is none; `null_odds`, float32
            [B], how much speaks for that; `score`, float32 [B], start and end of the
            best span, whether or not it is told (-1e30 where none is possible);
            `start` and `end`, int32 [B], the answer's first character (code point) in
            the context without its invalid bytes and the one beyond its last, -1
            where there is none.
        """
        best = _best(self._allowed(_pairs(outputs, self._settings.n_best), book), book)
        odds_B = _null_odds(outputs, book, best)
        told_B = best.found
        if threshold is not None:
            # In float64, as a threshold that was tuned is one of the odds.
            told_B &= ~(odds_B > tf.cast(threshold, tf.float64))
        first_B, beyond_B = (
            tf.where(told_B, at_B, 0) for at_B in (best.first, best.beyond)
        )
        answer_B = tf.strings.substr(
            book.context_B, first_B, beyond_B - first_B, unit="UTF8_CHAR"
        )
        return {
            "answer": tf.strings.regex_replace(answer_B, r"[ \t\r\n\x{202f}]+", " "),
            "null_odds": tf.cast(odds_B, tf.float32),
            "score": best.score,
            "start": tf.where(told_B, first_B, -1),
            "end": tf.where(told_B, beyond_B, -1),
        }

    def _allowed(self, pairs: _Pairs, book: WindowAlignment) -> _Pairs:
        """The pairs with the lowest score for those that are no answers."""
        good_PN = tf.gather(book.max_context_PL, pairs.start, batch_dims=1)
        good_PN &= tf.gather(book.piece_PL, pairs.end, batch_dims=1) > 0
        length_PN = pairs.end - pairs.start
        good_PN &= (length_PN >= 0) & (length_PN < self._settings.max_answer_length)
        return pairs._replace(score=tf.where(good_PN, pairs.score, _LOWEST))


def _pairs(outputs: Mapping[str, tf.Tensor], n_best: int) -> _Pairs:
    if "end_logits_BL" in outputs:
        count = tf.minimum(n_best, tf.shape(outputs["start_logits_BL"])[1])
        start_PS, at_start_PS = tf.math.top_k(outputs["start_logits_BL"], count)
        end_PK, at_end_PK = tf.math.top_k(outputs["end_logits_BL"], count)
        end_PSK, at_end_PSK = end_PK[:, None, :], at_end_PK[:, None, :]
    else:
        start_PS = outputs["start_top_log_probs_BS"]
        at_start_PS = outputs["start_top_index_BS"]
        end_PSK = outputs["end_top_log_probs_BSK"]
        at_end_PSK = outputs["end_top_index_BSK"]
    score_PSK = start_PS[:, :, None] + end_PSK
    shape = tf.shape(score_PSK)
    start_PSK = tf.broadcast_to(at_start_PS[:, :, None], shape)
    end_PSK = tf.broadcast_to(at_end_PSK, shape)
    flat = tf.stack([shape[0], shape[1] * shape[2]])
    return _Pairs(*(tf.reshape(x, flat) for x in (start_PSK, end_PSK, score_PSK)))


def _best(pairs: _Pairs, book: WindowAlignment) -> _Best:
    """Of equal scores that of the first window, and in it of the first pair."""
    rows, row_P = tf.size(book.context_B), book.row_P
    score_P = tf.reduce_max(pairs.score, 1)
    place_P = tf.argmax(pairs.score, 1, tf.int32)
    score_B = tf.math.unsorted_segment_max(score_P, row_P, rows)
    windows = tf.size(score_P)
    best_P = score_P == tf.gather(score_B, row_P)
    window_P = tf.where(best_P, tf.range(windows), windows - 1)
    window_B = tf.math.unsorted_segment_min(window_P, row_P, rows)
    found_B = score_B > _LOWEST

    def character(of_T: tf.Tensor, position_PN: tf.Tensor) -> tf.Tensor:
        position_P = tf.gather(position_PN, place_P, batch_dims=1)
        piece_P = tf.gather(book.piece_PL, position_P, batch_dims=1)
        return tf.gather(of_T, tf.gather(piece_P, window_B))

    return _Best(
        found_B,
        tf.where(found_B, score_B, NO_SPAN),
        character(book.first_T, pairs.start),
        character(book.beyond_T, pairs.end),
    )


def _null_odds(
    outputs: Mapping[str, tf.Tensor], book: WindowAlignment, best: _Best
) -> tf.Tensor:
    """float64 [B]: what speaks for no answer, the smallest of the windows'."""
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
    rows = tf.size(book.context_B)
    odds_B = tf.math.unsorted_segment_min(odds_P, book.row_P, rows)
    if answerable:
        return odds_B
    score_B = tf.cast(best.score, tf.float64)
    return odds_B - tf.where(best.found, score_B, tf.zeros_like(score_B))
