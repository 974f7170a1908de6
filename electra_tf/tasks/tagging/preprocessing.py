"""Sentences of words -> inputs for a tagger, and its predictions -> tags of words."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from electra_tf.errors import InputError, listed
from electra_tf.tasks.data.conll import Sentence
from electra_tf.tasks.tagging.schemes import (
    MARKS,
    OUTSIDE,
    Decoder,
    conlleval_spans,
    is_span_scheme,
    to_bioes,
)
from electra_tf.text.tokenizer import Tokenizer
from electra_tf.text.vocab import CLS, SEP, UNKNOWN

_SPECIAL = 2  # [CLS] and [SEP]


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedInput:
    """[CLS], the pieces of consecutive words of one sentence, [SEP]; not padded."""

    ids: list[int]
    segments: list[int]
    """Segment ids; one number at all positions."""
    tags: list[int]
    """The tag's id at the first piece of each word, 0 elsewhere and without labels."""
    tagged: list[int]
    """1 at the first piece of each word, 0 elsewhere."""
    words: range
    """Which words of the sentence these are."""
    cut: int
    """Pieces left out of a word that is longer than a whole input; mostly 0."""


def tag_vocabulary(
    sentences: Iterable[Sentence],
    decode: Decoder = conlleval_spans,
    seen_only: bool = False,
) -> tuple[str, ...]:
    """Collects the tags that a model is to tell apart.

    Args:
        sentences: With tags.
        decode: Whose rules tell where spans are.
        seen_only: Keep to tags that occur, as the original does, who looks through
            train, dev and test files for them. Else each type of span gets all four
            of its tags: a type met as a single word may be longer in another file.

    Returns:
        Sorted; BIOES tags where tags mark spans (see `is_span_scheme`).

    Raises:
        InputError: There are no tags.
    """
    all_tags = [_tags(sentence) for sentence in sentences]
    found = {tag for tags in all_tags for tag in tags}
    if not found:
        raise InputError(
            "Training data of a tagger holds sentences with tags",
            f"{len(all_tags)} sentences with none",
            "Name the file and the column of the tags",
        )
    if is_span_scheme(found):
        found = {tag for tags in all_tags for tag in to_bioes(tags, decode)}
        if not seen_only:
            kinds = {tag.partition("-")[2] for tag in found - {OUTSIDE}}
            found = {f"{mark}-{kind}" for mark in MARKS for kind in kinds}
            found.add(OUTSIDE)
    return tuple(sorted(found))


def features(
    sentence: Sentence,
    tokenizer: Tokenizer,
    tag_ids: Mapping[str, int] | None,
    max_length: int,
    segment: int = 0,
    decode: Decoder = conlleval_spans,
) -> list[TaggedInput]:
    """Packs a sentence into one input, or several where it is too long for one.

    A word is represented by its first piece (the original's rule), one without any
    piece by [UNK]. The original drops the words that do not fit, from the gold tags
    too; here a sentence is parted between words, so each gets a tag. A word longer
    than a whole input keeps its first pieces, and `cut` tells how many it lost.

    Args:
        sentence: Its words and, for `tag_ids`, tags.
        tokenizer: Applied to each word.
        tag_ids: From tag to id; if these are tags of spans, the sentence's are put
            into BIOES first. None: only to predict.
        max_length: Positions of an input, with [CLS] and [SEP]; 3 or more.
        segment: The segment id of all positions: 0, or the original's 1.
        decode: Whose rules tell where spans are.

    Returns:
        Inputs that hold the words in order, each word once.

    Raises:
        InputError: A tag is not in `tag_ids`, the sentence has none, or `max_length`
            leaves no place for a word.
    """
    if max_length <= _SPECIAL:
        raise InputError(
            "An input has three positions or more, as [CLS] and [SEP] take two",
            f"a length of {max_length}",
            "Set a greater one",
        )
    room, ids = max_length - _SPECIAL, tokenizer.vocabulary.ids
    pieces = [tokenizer.encode(word) or [ids[UNKNOWN]] for word in sentence.words]
    gold = [0] * len(pieces)
    if tag_ids is not None:
        gold = _gold(sentence, tag_ids, decode)
    inputs = []
    for words in _parts(list(map(len, pieces)), room):
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
    """Puts together what was predicted for the parts of one sentence.

    Args:
        inputs: What `features` made of it.
        predicted: For each input a tag's id for each position; padding may follow.
        tags: Names by id, as `tag_vocabulary` gives them.

    Returns:
        One tag for each word of the sentence.

    Raises:
        InputError: The inputs are not all parts of a sentence, in order, or there are
            not as many predictions.
    """
    joined: list[str] = []
    parts = [part.words for part in inputs]
    starts = [0, *(part.stop for part in parts)]
    if len(parts) != len(predicted) or [p.start for p in parts] != starts[:-1]:
        raise InputError(
            "A sentence's tags are joined from all of its parts, in order",
            f"parts of the words {[(p.start, p.stop) for p in parts]} and "
            f"{len(predicted)} predictions",
            "Give what features() returned for one sentence",
        )
    for part, ids in zip(inputs, predicted, strict=True):
        places = [place for place, is_first in enumerate(part.tagged) if is_first]
        joined += [tags[int(ids[place])] for place in places]
    return joined


def _columns(
    pieces: list[list[int]], gold: list[int], words: range
) -> tuple[list[int], list[int], list[int]]:
    """Ids of the words' pieces and, at their first ones, tags and ones."""
    row, tags, tagged = [], [], []
    for word in words:
        rest = [0] * (len(pieces[word]) - 1)
        row += pieces[word]
        tags += [gold[word], *rest]
        tagged += [1, *rest]
    return row, tags, tagged


def _parts(lengths: list[int], room: int) -> list[range]:
    """Runs of words, each as long as fits; one that fits nowhere is by itself."""
    parts, start, used = [], 0, 0
    for word, length in enumerate(lengths):
        if word > start and used + length > room:
            parts.append(range(start, word))
            start, used = word, 0
        used += length
    return [*parts, range(start, len(lengths))] if lengths else []


def _gold(sentence: Sentence, tag_ids: Mapping[str, int], decode: Decoder) -> list[int]:
    tags, known = _tags(sentence), set(tag_ids)
    are_spans = is_span_scheme(known)
    if are_spans and is_span_scheme(tags):
        tags = to_bioes(tags, decode)
    for word, tag in enumerate(tags):
        if tag not in known:
            told = "" if tag == sentence.tags[word] else f" ({tag!r} in BIOES)"
            raise InputError(
                f"A tag is one of the {len(known)} that the model knows: "
                f"{listed(sorted(known))}",
                f"{sentence.source}:{sentence.line + word} with "
                f"{sentence.tags[word]!r}{told}",
                "Correct it, or train with data that holds this tag",
            )
    return [tag_ids[tag] for tag in tags]


def _tags(sentence: Sentence) -> tuple[str, ...]:
    if sentence.tags is None:
        raise InputError(
            "Sentences to train and to score with have tags",
            f"{sentence.source}:{sentence.line} without",
            "Name the column of the tags",
        )
    return sentence.tags
