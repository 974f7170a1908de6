"""Encode sentences of words for a tagger, and join its predictions to tags."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from electra_tf.errors import InputError, format_list
from electra_tf.tasks.conll import Sentence
from electra_tf.tasks.schemes import (
    MARKS,
    OUTSIDE,
    is_span_scheme,
    learned_scheme,
    to_scheme,
)
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CLS, SEP, UNKNOWN

_SPECIAL = 2  # [CLS] and [SEP]


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedInput:
    """One input: [CLS], the wordpieces of consecutive words, [SEP]; not padded."""

    ids: list[int]
    segments: list[int]
    """Segment ids, the same at all positions."""
    tags: list[int]
    """Tag id at the first wordpiece of each word; 0 elsewhere and without labels."""
    tagged: list[int]
    """1 at the first wordpiece of each word, 0 elsewhere."""
    words: range
    """Indices of the words in the sentence."""
    cut: int
    """Number of dropped wordpieces of a word that is longer than an input."""


def tag_vocabulary(sentences: Iterable[Sentence]) -> tuple[str, ...]:
    """Return the tags that a model predicts.

    Each type of span gets all four BIOES tags: a type that is a single word in these
    sentences may have several words in another file.

    Returns:
        Sorted tags; BIOES tags if the tags mark spans (see `is_span_scheme`).
    """
    all_tags = [_require_tags(sentence) for sentence in sentences]
    vocabulary = {tag for tags in all_tags for tag in tags}
    if not vocabulary:
        raise InputError(
            "Training data of a tagger must have sentences with tags",
            f"{len(all_tags)} sentences without tags",
            "Name the file and the column of the tags",
        )
    if is_span_scheme(vocabulary):
        kinds = {tag.partition("-")[2] for tag in vocabulary - {OUTSIDE}}
        vocabulary = {f"{mark}-{kind}" for mark in MARKS for kind in kinds}
        vocabulary.add(OUTSIDE)
    return tuple(sorted(vocabulary))


def features(
    sentence: Sentence,
    tokenizer: Tokenizer,
    tag_ids: Mapping[str, int] | None,
    max_length: int,
    segment: int = 0,
) -> list[TaggedInput]:
    """Pack a sentence into one input, or into several where it is too long for one.

    The first wordpiece of a word represents it; [UNK] represents a word without
    wordpieces. A long sentence is split between words, so each word gets a tag
    (the original drops the words that do not fit). A word longer than an input keeps
    its first wordpieces; `cut` is the number of dropped ones.

    Args:
        sentence: Words and, for `tag_ids`, tags.
        tokenizer: Applied to each word.
        tag_ids: Tag ids by tag; if the tags mark spans, the sentence's tags are
            converted to BIOES first. None if there are no labels.
        max_length: Positions of an input, with [CLS] and [SEP]; 3 or more.
        segment: The segment id of all positions: 0, or the original's 1.

    Returns:
        Inputs with the words in order, each word once.
    """
    if max_length <= _SPECIAL:
        raise InputError(
            "max_length must be 3 or more, as [CLS] and [SEP] take two positions",
            f"{max_length}",
            "Set a greater data.max_length",
        )
    room, ids = max_length - _SPECIAL, tokenizer.vocabulary.ids
    pieces = [tokenizer.encode(word) or [ids[UNKNOWN]] for word in sentence.words]
    gold = [0] * len(pieces)
    if tag_ids is not None:
        gold = _gold_ids(sentence, tag_ids)
    inputs = []
    for words in _split_words(list(map(len, pieces)), room):
        row, tags, tagged = _columns(pieces, gold, words)
        cut = max(0, len(row) - room)
        row = [ids[CLS], *row[:room], ids[SEP]]
        tags, tagged = [0, *tags[:room], 0], [0, *tagged[:room], 0]
        inputs.append(TaggedInput(row, [segment] * len(row), tags, tagged, words, cut))
    return inputs


def join(
    inputs: Sequence[TaggedInput],
    predicted: Sequence[Sequence[int]],
    tags: Sequence[str],
) -> list[str]:
    """Join the predictions for the inputs of one sentence.

    Returns:
        One tag for each word of the sentence.
    """
    joined: list[str] = []
    parts = [part.words for part in inputs]
    starts = [0, *(part.stop for part in parts)]
    if len(parts) != len(predicted) or [p.start for p in parts] != starts[:-1]:
        raise InputError(
            "The inputs must be all inputs of one sentence, in order, each with a "
            "prediction",
            f"inputs of the words {[(p.start, p.stop) for p in parts]} and "
            f"{len(predicted)} predictions",
            "Pass the inputs that features() returned for one sentence",
        )
    for part, ids in zip(inputs, predicted, strict=True):
        positions = [index for index, is_first in enumerate(part.tagged) if is_first]
        joined += [tags[int(ids[position])] for position in positions]
    return joined


def _columns(
    pieces: list[list[int]], gold: list[int], words: range
) -> tuple[list[int], list[int], list[int]]:
    """Return wordpiece ids, and at each first wordpiece the tag id and 1."""
    row, tags, tagged = [], [], []
    for word in words:
        rest = [0] * (len(pieces[word]) - 1)
        row += pieces[word]
        tags += [gold[word], *rest]
        tagged += [1, *rest]
    return row, tags, tagged


def _split_words(lengths: list[int], room: int) -> list[range]:
    """Return runs of as many words as fit; a word longer than `room` is alone."""
    parts, start, used = [], 0, 0
    for word, length in enumerate(lengths):
        if word > start and used + length > room:
            parts.append(range(start, word))
            start, used = word, 0
        used += length
    return [*parts, range(start, len(lengths))] if lengths else []


def _gold_ids(sentence: Sentence, tag_ids: Mapping[str, int]) -> list[int]:
    """Return the ids of a sentence's tags."""
    tags = _require_tags(sentence)
    scheme = None
    if is_span_scheme(tag_ids) and is_span_scheme(tags):
        scheme = learned_scheme(tag_ids)
        tags = to_scheme(tags, scheme)
    for word, tag in enumerate(tags):
        if tag not in tag_ids:
            is_own = tag == sentence.tags[word]
            converted = "" if is_own else f" ({tag!r} in {scheme})"
            raise InputError(
                f"A tag must be one of the {len(tag_ids)} tags of the model: "
                f"{format_list(sorted(tag_ids))}",
                f"{sentence.source}:{sentence.line_of(word)} with "
                f"{sentence.tags[word]!r}{converted}",
                "Correct it, or train with data that has this tag",
            )
    return [tag_ids[tag] for tag in tags]


def _require_tags(sentence: Sentence) -> tuple[str, ...]:
    """Return the tags of a sentence, or raise if it has none."""
    if sentence.tags is None:
        raise InputError(
            "Sentences for training and scoring must have tags",
            f"{sentence.source}:{sentence.line} without tags",
            "Name the column of the tags",
        )
    return sentence.tags
