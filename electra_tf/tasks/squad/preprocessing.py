"""A question and its context as windows: the original's document stride.

A context that does not fit beside its question is read in windows that overlap; each
is `[CLS] question [SEP] part of the context [SEP]` (the original's qa_tasks.py).
"""

import bisect
import dataclasses
import re
from typing import Literal

from electra_tf.errors import InputError
from electra_tf.tasks.squad.reader import Answer, Question
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CLS, SEP

_SPECIALS = 3  # [CLS], and [SEP] twice
# The original parts a context at these alone; U+202F is the narrow no-break space.
_WORD = re.compile("[^ \t\r\n\u202f]+")


@dataclasses.dataclass(frozen=True)
class QAFeatureConfig:
    """How contexts are cut.

    Args:
        max_length: Positions of a window, special tokens included.
        max_query_length: Pieces that a question may have; the rest is cut off.
        doc_stride: Pieces from the start of a window to that of the next.
        window_labels: Label of an answerable question's window that lacks the answer:
            `exact`, impossible; `original`, possible, as released, though its target
            is [CLS] as in an impossible one.

    Raises:
        InputError: The numbers leave no room, or the label is unknown.
    """

    max_length: int = 512
    max_query_length: int = 64
    doc_stride: int = 128
    window_labels: Literal["exact", "original"] = "exact"

    def __post_init__(self):
        room = self.max_length - self.max_query_length - _SPECIALS
        if room < 1 or self.max_query_length < 1 or self.doc_stride < 1:
            raise InputError(
                "A window has room for the question, three special tokens and a part "
                "of the context, and the stride is 1 or more",
                f"max_length {self.max_length}, max_query_length "
                f"{self.max_query_length}, doc_stride {self.doc_stride}",
                "Raise max_length, or shorten max_query_length",
            )
        if self.window_labels not in ("exact", "original"):
            raise InputError(
                "window_labels is exact or original",
                repr(self.window_labels),
                "Leave it out for exact",
            )


@dataclasses.dataclass(frozen=True, slots=True)
class QAFeature:
    """One input of the model, without padding, and the way back to the context."""

    ids: list[int]
    """[CLS] question [SEP] part of the context [SEP]."""
    segments: list[int]
    """0 up to the first [SEP], 1 beyond it."""
    document_start: int
    """Position of the part's first piece."""
    first_piece: int
    """The number of that piece in the context."""
    max_context: list[bool]
    """For each position: it holds a piece of the context that no other window shows
    with more text on both sides."""
    spans: list[tuple[int, int]]
    """For each piece of the whole context, the characters of its word there (first,
    one beyond the last). All windows of a question share this list."""
    start: int
    """Position where the answer starts; 0 where it is not in this window."""
    end: int
    """Position of the answer's last piece."""
    impossible: int
    """1: this window does not answer the question."""
    query_cut: bool
    """Whether the question lost pieces to `max_query_length`."""

    def piece(self, position: int) -> int | None:
        """Which piece of the context stands at a position; None: none does."""
        last = len(self.ids) - 2  # the final [SEP] is no piece
        if not self.document_start <= position <= last:
            return None
        return position - self.document_start + self.first_piece

    def characters(self, start: int, end: int) -> tuple[int, int]:
        """The characters of the words from position `start` to position `end`."""
        first, last = (p - self.document_start + self.first_piece for p in (start, end))
        return self.spans[first][0], self.spans[last][1]


def split_words(text: str) -> list[tuple[int, int]]:
    """Characters of each word (first, one beyond the last), by the original's rule."""
    return [match.span() for match in _WORD.finditer(text)]


def make_features(
    question: Question,
    tokenizer: Tokenizer,
    settings: QAFeatureConfig = QAFeatureConfig(),
    training: bool = False,
) -> list[QAFeature]:
    """Cuts one question's context into windows.

    Args:
        question: Text and, for training, answers.
        tokenizer: Gives the ids.
        settings: How long the windows are and how they overlap.
        training: Fill in the targets. Of several answers the first one that stands in
            the context where it says is learnt.

    Returns:
        One window or more; the targets are 0 without `training`.

    Raises:
        InputError: In training, none of the answers can be found in the context.
    """
    query = tokenizer.encode(question.question)
    head = query[: settings.max_query_length]
    document = _Document(question.context, tokenizer)
    target = _target(question, document, tokenizer) if training else None
    room = settings.max_length - len(head) - _SPECIALS
    parts = _parts(len(document.ids), room, settings.doc_stride)
    best = _best_parts(parts, len(document.ids))
    cls, sep = (tokenizer.vocabulary.ids[name] for name in (CLS, SEP))
    offset = len(head) + 2
    lacking = question.impossible or settings.window_labels == "exact"
    cut = []
    for number, (first, length) in enumerate(parts):
        start, end = _positions(target, first, length, offset)
        shown = [best[piece] == number for piece in range(first, first + length)]
        cut.append(
            QAFeature(
                ids=[cls, *head, sep, *document.ids[first : first + length], sep],
                segments=[0] * offset + [1] * (length + 1),
                document_start=offset,
                first_piece=first,
                max_context=[False] * offset + shown + [False],
                spans=document.spans,
                start=start,
                end=end,
                impossible=int(training and lacking and not end),
                query_cut=len(query) > len(head),
            )
        )
    return cut


class _Document:
    """The pieces of a context, and which word each belongs to."""

    def __init__(self, context: str, tokenizer: Tokenizer):
        self.words = split_words(context)
        self.ids: list[int] = []
        self.spans: list[tuple[int, int]] = []
        self.first_pieces: list[int] = []  # of each word, and one beyond the last
        for word in self.words:
            self.first_pieces.append(len(self.ids))
            ids = tokenizer.encode(context[slice(*word)])
            self.ids += ids
            self.spans += [word] * len(ids)
        self.first_pieces.append(len(self.ids))


def _target(
    question: Question, document: _Document, tokenizer: Tokenizer
) -> tuple[int, int] | None:
    """First and last piece of the answer; None: there is none."""
    if question.impossible:
        return None
    for answer in question.located:
        found = _answer_pieces(answer, question.context, document, tokenizer)
        if found:
            return found
    raise InputError(
        "A question that is trained on has an answer in its context",
        f"{question.source}, question {question.id} with "
        f"{len(question.answers)} answers, none of which stands there",
        "Correct the answers, or leave such questions out with "
        "electra_tf.tasks.squad.reader.for_training",
    )


def _answer_pieces(
    answer: Answer, context: str, document: _Document, tokenizer: Tokenizer
) -> tuple[int, int] | None:
    """First and last piece of an answer, as tight as pieces allow.

    The words it lies in, then within them the pieces that are the answer's own: of
    "(1895-1943)." only 1895. Where those stand twice in the words, the ones nearest to
    the answer's offset; the original takes the first ones, which in a script without
    spaces, where a word is a whole paragraph, is often another place.
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
    own = tokenizer.encode(text)
    before = context[document.words[first_word][0] : start]
    expected = first + len(tokenizer.encode(before))
    places = [
        place
        for place in range(first, last - len(own) + 2)
        if own and document.ids[place : place + len(own)] == own
    ]
    if not places:
        return first, last
    place = min(places, key=lambda place: abs(place - expected))
    return place, place + len(own) - 1


def _parts(pieces: int, room: int, stride: int) -> list[tuple[int, int]]:
    """First piece and length of each window's part of the context."""
    parts, first = [], 0
    while True:
        length = min(pieces - first, room)
        parts.append((first, length))
        if first + length == pieces:
            return parts
        first += min(length, stride)


def _best_parts(parts: list[tuple[int, int]], pieces: int) -> list[int]:
    """For each piece, the part that shows most of what is around it.

    Most is the larger of the smaller sides, with a hundredth of the part's length
    added, as in BERT; of equals the first.
    """
    best, scores = [0] * pieces, [-1.0] * pieces
    for number, (first, length) in enumerate(parts):
        for piece in range(first, first + length):
            sides = min(piece - first, first + length - 1 - piece)
            score = sides + 0.01 * length
            if score > scores[piece]:
                best[piece], scores[piece] = number, score
    return best


def _positions(
    target: tuple[int, int] | None, first: int, length: int, offset: int
) -> tuple[int, int]:
    """Where the answer is in a window; position 0 where it is not, or not whole."""
    if target and first <= target[0] and target[1] < first + length:
        return target[0] - first + offset, target[1] - first + offset
    return 0, 0
