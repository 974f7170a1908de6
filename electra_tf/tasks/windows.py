"""Encode a question and its context as windows, with the original's document stride.

A context that is too long for one input is split into overlapping windows of the form
`[CLS] question [SEP] part of the context [SEP]` (the original's qa_tasks.py).
"""

import bisect
import dataclasses
import re

import numpy as np

from electra_tf.config.finetuning import DataConfig
from electra_tf.errors import InputError
from electra_tf.tasks.data.squad_json import Answer, Question
from electra_tf.text.tokenizer import WordPieceTokenizer
from electra_tf.text.vocab import CLS, SEP

_SPECIALS = 3  # [CLS] and two [SEP]
# The only word separators of the original; U+202F is the narrow no-break space.
_WORD = re.compile("[^ \t\r\n\u202f]+")


@dataclasses.dataclass(frozen=True, slots=True)
class QAFeature:
    """One window as input of the model, with its alignment; not padded."""

    ids: list[int]  # [CLS] question [SEP] part of the context [SEP]
    segments: list[int]  # 0 up to the first [SEP], 1 after it
    document_start: int  # position of the first wordpiece of the context
    first_piece: int  # index of that wordpiece in the whole context
    max_context: list[bool]  # where no window has more text around the piece
    start: int  # position of the answer's first wordpiece; 0: not in the window
    end: int  # position of the answer's last wordpiece; 0: not in the window
    impossible: int  # 1 if the window is labelled as without an answer, else 0
    query_truncated: bool  # whether wordpieces of the question were dropped

    def piece(self, position: int) -> int | None:
        """Return the index of a position's wordpiece in the context, or None."""
        last = len(self.ids) - 2  # the last position is [SEP]
        if not self.document_start <= position <= last:
            return None
        return position - self.document_start + self.first_piece


def split_words(text: str) -> list[tuple[int, int]]:
    """Return the characters (start, end) of each word, by the rule of the original."""
    return [match.span() for match in _WORD.finditer(text)]


def make_features(
    question: Question,
    tokenizer: WordPieceTokenizer,
    settings: DataConfig,
    training: bool = False,
) -> list[QAFeature]:
    """Encode a question and its context as windows, with targets for training."""
    all_query_ids = tokenizer.encode(question.question)
    query_ids = all_query_ids[: settings.query_limit]
    document = _Document(question.context, tokenizer)
    target = _target(question, document, tokenizer) if training else None
    room = settings.max_length - len(query_ids) - _SPECIALS
    ranges = _window_ranges(len(document.ids), room, settings.doc_stride)
    best_windows = _max_context_windows(ranges, len(document.ids))
    cls, sep = (tokenizer.vocabulary.ids[name] for name in (CLS, SEP))
    offset = len(query_ids) + 2
    label_impossible = question.impossible or settings.window_labels == "exact"
    windows = []
    for index, (first, length) in enumerate(ranges):
        start = end = 0  # unless the answer is wholly in the window
        if target and first <= target[0] and target[1] < first + length:
            start, end = (piece - first + offset for piece in target)
        is_best = (best_windows[first : first + length] == index).tolist()
        windows.append(
            QAFeature(
                ids=[cls, *query_ids, sep, *document.ids[first : first + length], sep],
                segments=[0] * offset + [1] * (length + 1),
                document_start=offset,
                first_piece=first,
                max_context=[False] * offset + is_best + [False],
                start=start,
                end=end,
                impossible=int(training and label_impossible and not end),
                query_truncated=len(all_query_ids) > len(query_ids),
            )
        )
    return windows


class _Document:
    """Wordpieces of a context, with their words."""

    def __init__(self, context: str, tokenizer: WordPieceTokenizer):
        self.words, self.ids = split_words(context), []
        self.first_pieces = [0]  # of each word, then the number of wordpieces
        for word in self.words:
            self.ids += tokenizer.encode(context[slice(*word)])
            self.first_pieces.append(len(self.ids))


def _target(
    question: Question, document: _Document, tokenizer: WordPieceTokenizer
) -> tuple[int, int] | None:
    """Return the first and last wordpiece of the answer; None for an impossible one."""
    if question.impossible:
        return None
    for answer in question.located:
        pieces = _answer_pieces(answer, question.context, document, tokenizer)
        if pieces:
            return pieces
    raise InputError(
        f"{question.source}, question {question.id}: none of its "
        f"{len(question.answers)} answers is in the context"
    )


def _answer_pieces(
    answer: Answer, context: str, document: _Document, tokenizer: WordPieceTokenizer
) -> tuple[int, int] | None:
    """Return the first and last wordpiece of an answer; None if it has none.

    These are the answer's own wordpieces if its words contain them ("1895" within
    "(1895-1943)."), else all wordpieces of its words. Of several, those nearest to the
    answer's offset are used, not the first as in the original: in a script without
    spaces a word is a whole paragraph.
    """
    text = answer.text.strip()
    start = answer.start + answer.text.index(text)
    end = start + len(text)
    first_word = bisect.bisect_right(document.words, start, key=lambda word: word[1])
    last_word = bisect.bisect_left(document.words, end, key=lambda word: word[0]) - 1
    if last_word < first_word:
        return None
    first = document.first_pieces[first_word]
    last = document.first_pieces[last_word + 1] - 1
    if last < first:
        return None
    ids = tokenizer.encode(text)
    before = context[document.words[first_word][0] : start]
    expected = first + len(tokenizer.encode(before))
    starts = [
        start
        for start in range(first, last - len(ids) + 2)
        if ids and document.ids[start : start + len(ids)] == ids
    ]
    if not starts:
        return first, last
    nearest = min(starts, key=lambda start: abs(start - expected))
    return nearest, nearest + len(ids) - 1


def _window_ranges(pieces: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Return the first wordpiece and the number of wordpieces of each window."""
    ranges = [(0, min(pieces, room))]
    while sum(ranges[-1]) < pieces:
        first = ranges[-1][0] + min(room, stride)
        ranges.append((first, min(pieces - first, room)))
    return ranges


def _max_context_windows(ranges: list[tuple[int, int]], pieces: int) -> np.ndarray:
    """Return for each wordpiece the window with the most text around it.

    As in BERT, the score is the number of wordpieces on the shorter side plus 0.01
    times the length of the window; among equal scores the first window is returned.
    """
    best_P, scores_P = np.zeros(pieces, np.int64), np.full(pieces, -1.0)
    for index, (first, length) in enumerate(ranges):
        place_W = np.arange(length)
        scores_W = np.minimum(place_W, length - 1 - place_W) + 0.01 * length
        window = slice(first, first + length)
        best_P[window] = np.where(scores_W > scores_P[window], index, best_P[window])
        scores_P[window] = np.maximum(scores_W, scores_P[window])
    return best_P
