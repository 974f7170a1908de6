"""Texts of JSON with spans of characters, in the forms of tools for annotation.

doccano, Prodigy, Label Studio, spaCy, and data sets with a list of `entities`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from electra_tf.tasks.data.schemes import Span

SPAN_KEYS = ("entities", "spans", "ents", "label", "labels")
"""Usual keys of the spans of a text."""
_TEXT = "text"
_STARTS = ("start", "start_offset", "start_char", "begin")
_ENDS = ("end", "end_offset", "end_char")
_TYPES = ("label", "type", "labels", "entity_group", "entity_type", "entity", "tag")
_REJECTED = ("reject", "ignore")  # answers of Prodigy


class CharacterSpan(NamedTuple):
    """Characters of a text with a type."""

    start: int
    end: int
    """Index after the last character."""
    kind: str


@dataclasses.dataclass(frozen=True, slots=True)
class SpanForm:
    """The keys of texts and spans in a file, as predictions are written, too."""

    text: str
    """Key of the text."""
    spans: str
    """Key of the list of spans."""
    names: tuple[str, str, str] | None = None
    """Keys of start, end and type of a span; None: a span is a list of them."""
    layout: str = "record"
    """`pair`: a list of the text and an object; `label_studio`: a task with results."""
    more: tuple[tuple[str, str], ...] = ()
    """Keys of Label Studio's results that name its configuration, with their values."""

    def has_spans(self, record: Any) -> bool:
        """Return whether a record has a text and a list of spans, valid or not."""
        text, values = self._parts(record)
        return isinstance(text, str) and isinstance(values, list)

    def parse(self, record: Any) -> tuple[str, list[CharacterSpan]]:
        """Return text and spans of a record; raise ValueError if it has none."""
        text, values = self._parts(record)
        if not isinstance(text, str):
            raise ValueError(f"{self.text!r} is {text!r:.60}, not a text")
        if not isinstance(values, list):
            raise ValueError(f"{self.spans!r} is {values!r:.60}, not a list of spans")
        spans = []
        for value in values:
            names = self.names or _names(value)
            span = _span(value, names)
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

    def write(self, text: str, spans: Sequence[CharacterSpan]) -> Any:
        """Return a record with predicted spans."""
        if self.layout == "label_studio":
            results = [
                {
                    **dict(self.more),
                    "type": "labels",
                    "value": {"start": s, "end": e, "text": text[s:e], "labels": [k]},
                }
                for s, e, k in spans
            ]
            return {"data": {self.text: text}, "predictions": [{"result": results}]}
        values: list[Any] = [list(span) for span in spans]
        if self.names:
            values = [dict(zip(self.names, value, strict=True)) for value in values]
            for value in values if self.names[2] == "labels" else ():
                value["labels"] = [value["labels"]]
        if self.layout == "pair":
            return [text, {self.spans: values}]
        return {self.text: text, self.spans: values}

    def _parts(self, record: Any) -> tuple[Any, Any]:
        """Return the values of text and spans, None where a record lacks one."""
        if self.layout == "pair" and isinstance(record, list) and len(record) == 2:
            record = {self.text: record[0], **_dict(record[1])}
        record = _dict(record)
        if self.layout != "label_studio":
            return record.get(self.text), record.get(self.spans)
        results = _span_results(record)
        values = None if results is None else [one.get("value") for one in results]
        return _dict(record.get("data")).get(self.text), values


def is_rejected(record: Any) -> bool:
    """Return whether an annotator of Prodigy rejected or skipped a record."""
    return isinstance(record, dict) and record.get("answer") in _REJECTED


def find_form(
    records: Sequence[Any], text: str | None = None, key: str | None = None
) -> SpanForm | None:
    """Return the form of records with spans of characters; None: they have none.

    Args:
        records: The values of a file.
        text: Key of the text; None: `text`.
        key: Key of the spans; None: the only usual one with spans.
    """
    for record in records:
        if form := _label_studio(record, text):
            return form
        pair = isinstance(record, list) and len(record) == 2
        flat = _dict(record[1] if pair else record)
        keys = [k for k in ([key] if key else SPAN_KEYS) if _are_spans(flat.get(k))]
        if len(keys) == 1 and (pair or isinstance(flat.get(text or _TEXT), str)):
            names = _names(flat[keys[0]][0])
            layout = "pair" if pair else "record"
            return SpanForm(text or _TEXT, keys[0], names, layout)
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


def to_character_spans(
    spans: Sequence[Span], offsets: Sequence[tuple[int, int]]
) -> list[CharacterSpan]:
    """Return the characters of spans of words."""
    return [
        CharacterSpan(offsets[first][0], offsets[last][1], kind)
        for first, last, kind in spans
    ]


def _label_studio(record: Any, text: str | None) -> SpanForm | None:
    """Return the form of a task of Label Studio with results; None: another record."""
    record = _dict(record)
    data = {k: v for k, v in _dict(record.get("data")).items() if isinstance(v, str)}
    names = [text] if text else [_TEXT] if _TEXT in data else list(data)
    results = _span_results(record)
    if not results or len(names) != 1:
        return None
    more = tuple((k, v) for k, v in results[0].items() if k in ("from_name", "to_name"))
    labels = ("start", "end", "labels")
    return SpanForm(names[0], "annotations", labels, "label_studio", more)


def complete_annotations(record: Any) -> list[list[Any]]:
    """Return the results of the annotations of a task of Label Studio."""
    annotations = _dict(record).get("annotations")
    return [
        one["result"]
        for one in (annotations if isinstance(annotations, list) else ())
        if isinstance(_dict(one).get("result"), list) and not one.get("was_cancelled")
    ]


def _span_results(record: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the spans of the first complete annotation; None: there is none."""
    for results in complete_annotations(record):
        return [one for one in results if _dict(one).get("type") == "labels"]
    return None


def _are_spans(values: Any) -> bool:
    """Return whether a value is a list of one span or more."""
    if not isinstance(values, list) or not values:
        return False
    return all(_span(value, _names(value)) is not None for value in values)


def _names(value: Any) -> tuple[str, str, str] | None:
    """Return the keys of start, end and type of a span that is an object."""
    keys = [
        next((key for key in choices if key in _dict(value)), None)
        for choices in (_STARTS, _ENDS, _TYPES)
    ]
    return tuple(keys) if None not in keys else None


def _span(value: Any, names: tuple[str, str, str] | None) -> CharacterSpan | None:
    if names is not None and isinstance(value, dict):
        value = [value.get(name) for name in names]
    if not isinstance(value, list) or len(value) != 3:
        return None
    start, end, kind = value
    if isinstance(kind, list) and len(kind) == 1:
        kind = kind[0]
    if type(start) is not int or type(end) is not int or not isinstance(kind, str):
        return None
    return CharacterSpan(start, end, kind) if kind else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
