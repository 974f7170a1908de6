"""Tags of words <-> spans of a sentence: BIO and its relatives, BIOES."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from electra_tf.errors import InputError

MARKS = "BIES"
"""Begin, inside and end of a span of several words; a span of a single one."""
OUTSIDE = "O"
BIOES = "BIOES"
SCHEMES = ("IOB2", BIOES, "IOB1", "IOE2", "IOE1")
"""Ways to write spans as tags; `scheme_of` prefers earlier ones."""

_OUT = {OUTSIDE, "."}
# A span begins at the first kind of mark, and after the second kind.
_BEGINS = {"B", "S", "[", "]"}
_ENDS = {*_OUT, "E", "S", "[", "]"}
_KNOWN = {*MARKS, *_BEGINS, *_OUT}
_SPAN_TAG = re.compile(f"{OUTSIDE}|[{MARKS}]-.+", re.DOTALL)


class Span(NamedTuple):
    """Consecutive words that make up one thing."""

    first: int
    """Index of its first word."""
    last: int
    """Index of its last word, which belongs to it."""
    kind: str
    """What stands behind the mark of its tags; "" where there is nothing."""


Decoder = Callable[[Sequence[str]], list[Span]]
"""From the tags of a sentence to its spans, in order: `chunks` or `original_spans`."""


def is_span_scheme(tags: Iterable[str]) -> bool:
    """Whether tags mark spans (chunks, names) or stand for the words themselves.

    Args:
        tags: All tags of a data set.

    Returns:
        True if each is `O` or B, I, E or S with a hyphen and a type; False also where
        there are none.
    """
    tags = set(tags)
    return bool(tags) and all(_SPAN_TAG.fullmatch(tag) for tag in tags)


def conlleval_spans(tags: Sequence[str]) -> list[Span]:
    """Reads tags by the rules of conlleval.pl, the CoNLL tasks' scorer.

    A span begins at B, S and a bracket, after E, S, a bracket and O, and wherever the
    type is another one than before; any other I or E continues it. So IOB1, IOB2,
    IOE1, IOE2, IO and BIOES are all read right. S is not the script's own, but reads
    as in the copies of it that know S; and the script, which has B and E in no scheme
    together, sees no border between E and B of one type, where here is one.

    Args:
        tags: Of one sentence; a type is what follows the first hyphen.

    Returns:
        The spans, in order.

    Raises:
        InputError: A tag has none of the marks B, I, E, S, O, `[`, `]` and `.`.
    """
    spans: list[Span] = []
    last_mark, last_kind = OUTSIDE, ""
    for index, tag in enumerate(tags):
        mark, kind = _parts(tag)
        if mark in _OUT:
            pass
        elif mark in _BEGINS or last_mark in _ENDS or kind != last_kind:
            spans.append(Span(index, index, kind))
        else:
            spans[-1] = spans[-1]._replace(last=index)
        last_mark, last_kind = mark, kind
    return spans


def original_spans(tags: Sequence[str]) -> list[Span]:
    """Reads tags as the original does, who asks less of them than conlleval.

    A span begins at B, at S and after O, and goes on until the next of these or O: an
    I or E continues it, even of another type or after E or S. Its type is that of its
    last tag (google-research/electra, finetune/tagging/tagging_utils.py).

    Args:
        tags: Of one sentence.

    Returns:
        The spans, in order.

    Raises:
        InputError: As for `chunks`.
    """
    spans: list[Span] = []
    inside = False
    for index, tag in enumerate(tags):
        mark, kind = _parts(tag)
        if mark in _OUT:
            inside = False
            continue
        first = spans[-1].first if inside and mark not in _BEGINS else index
        if first < index:
            spans.pop()
        spans.append(Span(first, index, kind))
        inside = True
    return spans


def bioes(spans: Iterable[Span], length: int) -> list[str]:
    """Writes spans as tags: B, I and E for several words, S for a single one.

    Args:
        spans: Of one sentence, none over another.
        length: Words of the sentence.

    Returns:
        One tag for each word, O outside of spans.
    """
    tags = [OUTSIDE] * length
    for first, last, kind in spans:
        marks = "S" if first == last else f"B{'I' * (last - first - 1)}E"
        ending = f"-{kind}" if kind else ""
        tags[first : last + 1] = [mark + ending for mark in marks]
    return tags


def write_spans(spans: Sequence[Span], length: int, scheme: str) -> list[str]:
    """Write spans as tags of a scheme.

    IOB2 begins each span with B, IOE2 ends each with E; all other words have I. IOB1
    and IOE1 use B and E only between two adjacent spans of one type.

    Args:
        spans: Of one sentence, in order, without overlaps.
        length: Words of the sentence.
        scheme: One of `SCHEMES`.

    Returns:
        One tag for each word, O outside of spans.

    Raises:
        InputError: `scheme` is none of `SCHEMES`.
    """
    if scheme == BIOES:
        return bioes(spans, length)
    if scheme not in SCHEMES:
        raise InputError(
            f"The scheme of tags must be one of {', '.join(SCHEMES)}",
            repr(scheme),
            "Pass one of them",
        )
    tags = [OUTSIDE] * length
    for place, (first, last, kind) in enumerate(spans):
        ending = f"-{kind}" if kind else ""
        tags[first : last + 1] = [f"I{ending}"] * (last + 1 - first)
        if scheme in ("IOB1", "IOB2"):
            adjoins = place > 0 and _adjoin(spans[place - 1], spans[place])
            if adjoins or scheme == "IOB2":
                tags[first] = f"B{ending}"
        else:
            adjoins = place + 1 < len(spans) and _adjoin(*spans[place : place + 2])
            if adjoins or scheme == "IOE2":
                tags[last] = f"E{ending}"
    return tags


def to_scheme(
    tags: Sequence[str], scheme: str, decode: Decoder = conlleval_spans
) -> list[str]:
    """Write the tags of a sentence in another scheme.

    Args:
        tags: In any scheme that `decode` reads.
        scheme: One of `SCHEMES`.
        decode: The rules that find the spans.

    Returns:
        One tag for each word, which mark the same spans.

    Raises:
        InputError: A tag marks no span, or `scheme` is none of `SCHEMES`.
    """
    return write_spans(decode(tags), len(tags), scheme)


def scheme_of(
    sentences: Sequence[Sequence[str]], decode: Decoder = conlleval_spans
) -> tuple[str, list[int]]:
    """Find the scheme that tags of spans are written in.

    Args:
        sentences: The tags of each sentence.
        decode: The rules that find the spans.

    Returns:
        The scheme that reproduces the most sentences, the first such of `SCHEMES`, and
        the indices of the sentences that it writes in another way.

    Raises:
        InputError: A tag marks no span.
    """
    spans = [decode(tags) for tags in sentences]
    misfits = {
        scheme: [
            index
            for index, (found, tags) in enumerate(zip(spans, sentences, strict=True))
            if write_spans(found, len(tags), scheme) != list(tags)
        ]
        for scheme in SCHEMES
    }
    best = min(SCHEMES, key=lambda scheme: len(misfits[scheme]))
    return best, misfits[best]


def _adjoin(left: Span, right: Span) -> bool:
    """Whether no word and no difference of types separates two spans."""
    return left.last + 1 == right.first and left.kind == right.kind


def to_bioes(tags: Sequence[str], decode: Decoder = conlleval_spans) -> list[str]:
    """Writes the tags of a sentence again, in the scheme that the model learns.

    Args:
        tags: In any of the schemes that `decode` reads.
        decode: Whose rules tell where spans are.

    Returns:
        BIOES tags of the same spans; tags that are BIOES already stay as they are.
    """
    return bioes(decode(tags), len(tags))


def _parts(tag: str) -> tuple[str, str]:
    mark, _, kind = tag.partition("-")
    if mark not in _KNOWN:
        raise InputError(
            "The tag of a span is O, or one of B, I, E, S with a hyphen and a type",
            repr(tag),
            "Look whether the tags' column is the right one, or score them as tags of "
            "words",
        )
    return mark, kind
