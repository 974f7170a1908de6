"""Documents -> packed segment pairs, as the original's dataset builder makes them.

Sentences (the lines of a document) are gathered until they fill a row, then split into
a segment A and, nine times in ten, a segment B from the same run of text. There is no
next-sentence objective. google-research/electra, build_pretraining_dataset.py.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from electra_tf.text.tokenizer import Wordpieces

SINGLE_SEGMENT_SHARE = 0.1
RANDOM_LENGTH_SHARE = 0.05
SHORTEST_TARGET = 5
_NO_LIMIT = 100_000


class Example(NamedTuple):
    """The two segments of one row, without [CLS] and [SEP]; B may be empty."""

    segment_a: Wordpieces
    segment_b: Wordpieces


def original_order(
    documents: Iterable[list[Wordpieces]], max_length: int, rng: random.Random
) -> Iterator[Example]:
    """Packs as the released builder does, draw for draw and quirk for quirk.

    A short sentence may be put back into segment A after B has begun; what does not fit
    is discarded; [CLS] and [SEP] do not count towards the target length.

    Args:
        documents: Pieces of the sentences of each document.
        max_length: Positions of a row, special tokens included.
        rng: Drawn from in the original's order.

    Yields:
        Examples of at most `max_length` positions.
    """
    sentences: list[Wordpieces] = []
    length, target = 0, max_length
    for document in documents:
        for sentence in document:
            sentences.append(sentence)
            length += len(sentence)
            if length >= target:
                yield _split_original(sentences, max_length, target, rng)
                sentences, length = [], 0
                target = _next_target(max_length, rng)
        if length:
            yield _split_original(sentences, max_length, target, rng)
            sentences, length = [], 0
            target = _next_target(max_length, rng)


def _split_original(
    sentences: list[Wordpieces], max_length: int, target: int, rng: random.Random
) -> Example:
    first_target = (target - 3) // 2
    if rng.random() < SINGLE_SEGMENT_SHARE:
        first_target = _NO_LIMIT
    first = second = ""
    for sentence in sentences:
        if (
            not first
            or len(first) + len(sentence) < first_target
            or (not second and len(first) < first_target and rng.random() < 0.5)
        ):
            first += sentence
        else:
            second += sentence
    first = first[: max_length - 2]
    return Example(first, second[: max(0, max_length - len(first) - 3)])


def _next_target(max_length: int, rng: random.Random) -> int:
    if rng.random() < RANDOM_LENGTH_SHARE:
        return rng.randint(SHORTEST_TARGET, max_length)
    return max_length


def document_order(
    documents: Iterable[list[Wordpieces]], max_length: int, rng: random.Random
) -> Iterator[Example]:
    """Packs so that the examples, read one after another, are the text itself.

    Lengths and the share of single segments are the original's, but no sentence is
    moved and none discarded: one that does not fit goes on in the next example.

    Args:
        documents: Pieces of the sentences of each document.
        max_length: Positions of a row, special tokens included.
        rng: Decides lengths and segment borders.

    Yields:
        Examples of at most `max_length` positions.
    """
    for document in documents:
        waiting = [sentence for sentence in reversed(document) if sentence]
        while waiting:
            # SHORTEST_TARGET leaves room for special tokens and two pieces.
            yield _take(waiting, _next_target(max_length, rng), rng)


def _take(waiting: list[Wordpieces], target: int, rng: random.Random) -> Example:
    """Removes one example's worth from the end of `waiting` (the text's front)."""
    single = rng.random() < SINGLE_SEGMENT_SHARE
    room = target - (2 if single else 3)
    first_target = room if single else max(1, room // 2)
    first = second = ""
    while waiting and room > 0:
        sentence = waiting.pop()
        fits = not first or len(first) + len(sentence) <= first_target
        # As in the original, half of the sentences across the border belong to A.
        in_first = fits or (len(first) < first_target and rng.random() < 0.5)
        if single or (in_first and not second):
            first += sentence[:room]
        else:
            second += sentence[:room]
        if sentence[room:]:
            waiting.append(sentence[room:])
        room -= min(room, len(sentence))
    return Example(first, second)


ORDERS: dict[str, Callable[..., Iterator[Example]]] = {
    "original": original_order,
    "document": document_order,
}
