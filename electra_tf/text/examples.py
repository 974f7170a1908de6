"""Pack documents into pairs of segments, by the rules of the original.

Sentences (the lines of a document) are collected until they fill a row, then split into
a segment A and, with a probability of 0.9, a segment B from the same text. There is no
next-sentence objective. See google-research/electra, build_pretraining_dataset.py.
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
    """Two segments of one row, without [CLS] and [SEP]; B may be empty."""

    segment_a: Wordpieces
    segment_b: Wordpieces


def original_order(
    documents: Iterable[list[Wordpieces]], max_length: int, rng: random.Random
) -> Iterator[Example]:
    """Pack sentences as the released builder does, with the same random draws.

    A short sentence may be added to segment A after B has started. Wordpieces that do
    not fit are discarded. [CLS] and [SEP] do not count towards the target length.
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
    first_target = (target - 3) // 2  # length of A; the others are B
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
    """Pack sentences in the order of the text, without discarding any.

    Lengths and the share of single segments are those of the original. A sentence
    that does not fit continues in the next example.
    """
    for document in documents:
        remaining = [sentence for sentence in reversed(document) if sentence]
        while remaining:
            # SHORTEST_TARGET leaves room for special tokens and two wordpieces.
            yield _pop_example(remaining, _next_target(max_length, rng), rng)


def _pop_example(
    remaining: list[Wordpieces], target: int, rng: random.Random
) -> Example:
    """Remove one example from `remaining`, the sentences in reverse order."""
    single = rng.random() < SINGLE_SEGMENT_SHARE
    room = target - (2 if single else 3)
    first_target = room if single else max(1, room // 2)
    first = second = ""
    while remaining and room > 0:
        sentence = remaining.pop()
        fits = not first or len(first) + len(sentence) <= first_target
        # As in the original, a sentence across the border belongs to A or B at random.
        in_first = fits or (len(first) < first_target and rng.random() < 0.5)
        if single or (in_first and not second):
            first += sentence[:room]
        else:
            second += sentence[:room]
        if sentence[room:]:
            remaining.append(sentence[room:])
        room -= min(room, len(sentence))
    return Example(first, second)


ORDERS: dict[str, Callable[..., Iterator[Example]]] = {
    "original": original_order,
    "document": document_order,
}
