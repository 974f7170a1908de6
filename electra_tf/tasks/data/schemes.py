"""Conversion between the tags of words and the spans of a sentence."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from electra_tf.errors import InputError

MARKS = "BIES"  # begin, inside and end of several words; S: a span of one word
OUTSIDE = "O"
BIOES = "BIOES"
SCHEMES = ("IOB2", BIOES, "IOB1", "IOE2", "IOE1")  # earlier ones are preferred

STRAY = 0.01  # up to this share of the words, tags that mark no span are errors

OUTSIDE_MARKS = {OUTSIDE, "."}
BEGIN_MARKS = {"B", "S", "[", "]"}
END_MARKS = {*OUTSIDE_MARKS, "E", "S", "[", "]"}
"""Marks after which every mark but an outside one begins a new span."""
_ALL_MARKS = {*MARKS, *BEGIN_MARKS, *OUTSIDE_MARKS}
_SPAN_TAG = re.compile(f"{OUTSIDE}|[{MARKS}]-.+", re.DOTALL)
# Letters of BILOU and BMES, and the marks of BIOES for those that it has not.
_OTHER_LETTERS = {"BILU": {"L": "E", "U": "S"}, "BMES": {"M": "I"}}


class Span(NamedTuple):
    """Consecutive words with one type, such as a noun phrase or a name."""

    first: int  # index of the first word
    last: int  # index of the last word, inclusive
    kind: str  # the type: the text after the first hyphen of the tags; may be empty


def is_span_scheme(tags: Iterable[str]) -> bool:
    """Return whether tags mark spans, as opposed to classes of single words."""
    tags = set(tags)
    return bool(tags) and all(_SPAN_TAG.fullmatch(tag) for tag in tags)


def to_bioes(counts: Mapping[str, int], max_strays: float = 0) -> dict[str, str]:
    """Return the BIOES tag of each tag of BILOU or BMES that BIOES has not.

    Up to `max_strays` words may have other tags. Empty: the tags are of neither scheme.
    `counts`: number of words by tag.
    """
    inside = {tag: count for tag, count in counts.items() if tag != OUTSIDE}
    for letters, marks in _OTHER_LETTERS.items():
        pattern = re.compile(f"[{letters}]-.+", re.DOTALL)
        fitting = [tag for tag in inside if pattern.fullmatch(tag)]
        count = sum(inside[tag] for tag in fitting)
        new = {tag: marks[tag[0]] + tag[1:] for tag in fitting if tag[0] in marks}
        if new and sum(inside.values()) - count <= min(max_strays, count):
            return new
    return {}


def as_span_tags(tags: Sequence[str]) -> list[str]:
    """Return the span tag that each tag of a model stands for.

    Tags of spans stand for themselves, also if they are marks alone, without a type.
    Those of BILOU and BMES stand for those of BIOES. Of other tags, O is outside and
    equal neighbours are one span, as in the scheme IO; without O each word is a span of
    its own, as for parts of speech.
    """
    if new := to_bioes(dict.fromkeys(tags, 1)):
        return [new.get(tag, tag) for tag in tags]
    if is_span_scheme(tags) or {OUTSIDE} < {*tags} <= {OUTSIDE, *MARKS}:
        return list(tags)
    mark = "I" if OUTSIDE in tags else "S"
    return [tag if tag == OUTSIDE else f"{mark}-{tag}" for tag in tags]


def learned_scheme(tags: Iterable[str]) -> str:
    """Return the scheme that a model's tags can write."""
    marks = {tag[0] for tag in tags} - {OUTSIDE}
    if marks <= {"B", "I"}:
        return "IOB2" if "B" in marks else "IOB1"
    return "IOE2" if marks == {"I", "E"} else BIOES


def conlleval_spans(tags: Sequence[str]) -> list[Span]:
    """Return the spans of tags by the rules of conlleval.pl, the CoNLL scorer.

    A span begins at B, S and a bracket, after E, S, a bracket and O, and where the type
    changes. Any other I or E continues it. The rules read IOB1, IOB2, IOE1, IOE2, IO
    and BIOES. The original has no S, and continues a span at a B after an E of its
    type.
    """
    spans: list[Span] = []
    last_mark, last_kind = OUTSIDE, ""
    for index, tag in enumerate(tags):
        mark, kind = split_tag(tag)
        if mark in OUTSIDE_MARKS:
            pass
        elif mark in BEGIN_MARKS or last_mark in END_MARKS or kind != last_kind:
            spans.append(Span(index, index, kind))
        else:
            spans[-1] = spans[-1]._replace(last=index)
        last_mark, last_kind = mark, kind
    return spans


def write_spans(spans: Sequence[Span], length: int, scheme: str = BIOES) -> list[str]:
    """Return spans as tags of a scheme.

    BIOES marks begin, inside and end of several words, and a single word with S. IOB2
    begins each span with B, IOE2 ends each span with E; all other words have I. IOB1
    and IOE1 use B and E only between two adjacent spans of one type.
    """
    tags, previous = [OUTSIDE] * length, None
    ends = {(span.first - 1, span.kind) for span in spans}  # before another span
    for span in spans:
        marks = ["I"] * (span.last + 1 - span.first)
        is_after = previous == (span.first - 1, span.kind)
        previous = span.last, span.kind
        if scheme in (BIOES, "IOB2") or (scheme == "IOB1" and is_after):
            marks[0] = "B"
        if scheme in (BIOES, "IOE2") or (scheme == "IOE1" and previous in ends):
            marks[-1] = "E" if scheme != BIOES or len(marks) > 1 else "S"
        suffix = f"-{span.kind}" if span.kind else ""
        tags[span.first : span.last + 1] = [mark + suffix for mark in marks]
    return tags


def to_scheme(tags: Sequence[str], scheme: str = BIOES) -> list[str]:
    """Convert tags to another scheme; well-formed ones of the scheme do not change."""
    return write_spans(conlleval_spans(tags), len(tags), scheme)


def scheme_of(sentences: Sequence[Sequence[str]]) -> tuple[str, list[int]]:
    """Return the scheme that reproduces the most sentences, and indices of the others.

    In a tie it is the first of `SCHEMES`.
    """
    all_spans = [conlleval_spans(tags) for tags in sentences]
    misfits = {
        scheme: [
            index
            for index, tags in enumerate(sentences)
            if write_spans(all_spans[index], len(tags), scheme) != list(tags)
        ]
        for scheme in SCHEMES
    }
    best = min(SCHEMES, key=lambda scheme: len(misfits[scheme]))
    return best, misfits[best]


def split_tag(tag: str) -> tuple[str, str]:
    """Return mark and type of a tag."""
    mark, _, kind = tag.partition("-")
    if mark not in _ALL_MARKS:
        raise InputError(
            "the tag of a span must be O, or B, I, E or S with a hyphen and a type, "
            f"not {tag!r}"
        )
    return mark, kind
