"""Texts of JSON with spans of characters, as tools for annotation write them.

A record is an object with a text and a list of spans.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from electra_tf.tasks.data.schemes import Span

SPAN_KEYS = ("entities", "spans", "ents", "label", "labels")
"""Usual keys of the spans of a text."""
# Keys of a span: start, end, type.
_NAMES = (
    ("start", "start_offset", "start_char", "begin"),
    ("end", "end_offset", "end_char"),
    ("label", "type", "entity_group", "entity_type", "entity", "tag"),
)


class CharacterSpan(NamedTuple):
    """Characters of a text with a type."""

    start: int
    end: int  # index after the last character
    kind: str


@dataclasses.dataclass(frozen=True, slots=True)
class SpanForm:
    """The keys of texts and spans in a file, as predictions are written, too."""

    text: str  # key of the text
    spans: str  # key of the list of spans
    names: tuple[str, ...] | None = None  # keys of start, end, type; None: a list

    def has_spans(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has a value for spans, valid or not."""
        return record.get(self.spans) is not None

    def text_of(self, record: Mapping[str, Any]) -> str | None:
        """Return the text of a record; None: it has none."""
        text = record.get(self.text)
        return text if isinstance(text, str) else None

    def parse(self, record: Mapping[str, Any]) -> tuple[str, list[CharacterSpan]]:
        """Return text and spans of a record; raise ValueError if it has none."""
        text, values = record.get(self.text), record.get(self.spans)
        if not isinstance(text, str):
            raise ValueError(f"{self.text!r} is {text!r:.60}, not a text")
        if not isinstance(values, list):
            raise ValueError(f"{self.spans!r} is {values!r:.60}, not a list of spans")
        spans = []
        for value in values:
            span = _span(value)
            if span is None:
                reason = "has no start, end and type"
                raise ValueError(f"{value!r:.60} in {self.spans!r} {reason}")
            place = f"{span.start}:{span.end} is"
            if not 0 <= span.start < span.end <= len(text):
                raise ValueError(f"{place} no span of {len(text):,} characters")
            covered = value.get("text") if isinstance(value, dict) else None
            if covered not in (None, found := text[span.start : span.end]):
                raise ValueError(f"{place} {found!r:.60}, not {covered!r:.60}")
            spans.append(span)
        return text, sorted(spans)

    def write(self, text: str, entities: Iterable[Any]) -> dict[str, Any]:
        """Return a record with the spans of predicted entities."""
        values: list[Any] = [[one.start, one.end, one.type] for one in entities]
        if self.names:
            values = [dict(zip(self.names, value, strict=True)) for value in values]
        return {self.text: text, self.spans: values}


def find_form(
    records: Sequence[Mapping[str, Any]], text: str = "text", key: str | None = None
) -> SpanForm | None:
    """Return the form of records, by given or usual keys; None: they have no spans."""
    for record in records:
        keys = [k for k in ([key] if key else SPAN_KEYS) if _are_spans(record.get(k))]
        if len(keys) == 1 and isinstance(record.get(text), str):
            first = record[keys[0]][0]
            names = _names(first) if isinstance(first, dict) else None
            return SpanForm(text, keys[0], names)
    return None


def to_word_spans(
    spans: Sequence[CharacterSpan], text: str, offsets: Sequence[tuple[int, int]]
) -> list[Span]:
    """Return the words of each span; raise ValueError if there are none.

    A span may have characters around its words that belong to no word, such as spaces.
    """
    found: list[Span] = []
    for span in spans:
        words = [
            n for n, (s, e) in enumerate(offsets) if s < span.end and e > span.start
        ]
        name = f"{text[span.start : span.end]!r:.60} ({span.start}:{span.end}, "
        name += f"{span.kind!r})"
        if not words:
            raise ValueError(f"{name} has no word")
        for word in (words[0], words[-1]):
            start, end = offsets[word]
            if start < span.start or end > span.end:
                part = f"a part of the word {text[start:end]!r:.60}"
                raise ValueError(f"{name} has {part}")
        if found and found[-1].last >= words[0]:
            raise ValueError(f"{name} overlaps the span before it")
        found.append(Span(words[0], words[-1], span.kind))
    return found


def _are_spans(values: Any) -> bool:
    """Return whether a value is a list of one span or more."""
    return isinstance(values, list) and bool(values) and None not in map(_span, values)


def _names(value: dict[str, Any]) -> tuple[str, ...]:
    """Return the keys of start, end and type of a span, empty if there is none."""
    found = {key for key in value if value[key] is not None}
    return tuple(next((key for key in keys if key in found), "") for keys in _NAMES)


def _span(value: Any) -> CharacterSpan | None:
    if isinstance(value, dict):
        value = [value.get(name) for name in _names(value)]
    if not isinstance(value, list) or len(value) != 3:
        return None
    start, end, kind = value
    is_valid = (
        type(start) is int and type(end) is int and isinstance(kind, str) and kind
    )
    return CharacterSpan(start, end, kind) if is_valid else None
