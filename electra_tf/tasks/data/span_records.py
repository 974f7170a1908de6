"""Texts of JSON with spans of characters, in the forms of tools for annotation.

doccano, Prodigy, Label Studio, spaCy, and data sets with a list of `entities`. A record
is read as a flat one, with text and spans at its top. Files of spaCy 2 have several
records in a value.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from electra_tf.tasks.data.schemes import Span

SPAN_KEYS = ("entities", "spans", "ents", "label", "labels")
"""Usual keys of the spans of a text."""
_TEXT, _ANNOTATIONS = "text", "annotations"
# Keys of a span: start, end, type.
_NAMES = (
    ("start", "start_offset", "start_char", "begin"),
    ("end", "end_offset", "end_char"),
    ("label", "type", "labels", "entity_group", "entity_type", "entity", "tag"),
)
_CONFIGURATION = ("from_name", "to_name")  # of Label Studio, in each result
_RESULT_NAMES = ("start", "end", "labels")  # keys of a span of Label Studio
_REJECTED = ("reject", "ignore")  # answers of Prodigy


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
    layout: str = "record"
    """`pair`: a list of the text and an object; `label_studio`: a task with results."""
    more: tuple[tuple[str, str], ...] = ()
    """Keys of Label Studio's results that name its configuration, with their values."""

    def has_spans(self, record: Any) -> bool:
        """Return whether a record has a value for spans, valid or not."""
        return self._parts(record)[1] is not None

    def text_of(self, record: Any) -> str | None:
        """Return the text of a record; None: it has none."""
        text = self._parts(record)[0]
        return text if isinstance(text, str) else None

    def parse(self, record: Any) -> tuple[str, list[CharacterSpan]]:
        """Return text and spans of a record; raise ValueError if it has none."""
        text, values = self._parts(record)
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

    def write(self, text: str, spans: Sequence[CharacterSpan]) -> Any:
        """Return a record with predicted spans."""
        values: list[Any] = [list(span) for span in spans]
        if self.names:
            values = [dict(zip(self.names, value, strict=True)) for value in values]
            for value in values if self.names[2] == "labels" else ():
                value["labels"] = [value["labels"]]
        if self.layout == "label_studio":
            results = [
                {
                    **dict(self.more),
                    "type": "labels",
                    "value": {"text": text[span.start : span.end], **value},
                }
                for span, value in zip(spans, values, strict=True)
            ]
            return {"data": {self.text: text}, "predictions": [{"result": results}]}
        if self.layout == "pair":
            return [text, {self.spans: values}]
        return {self.text: text, self.spans: values}

    def _parts(self, record: Any) -> tuple[Any, Any]:
        """Return the values of text and spans, None where a record lacks one."""
        flat = _flatten(record, self.layout)
        return flat.get(self.text), flat.get(self.spans)


def read_records(value: Any) -> list[Any]:
    """Return the records of a value of JSON, mostly the value itself.

    A document of spaCy 2 has sentences, each of which becomes lists of words and tags;
    a file of spaCy's annotator is one object with all texts.
    """
    if not isinstance(value, dict):
        return [value]
    paragraphs, annotations = value.get("paragraphs"), value.get(_ANNOTATIONS)
    if "classes" in value and isinstance(annotations, list):
        return [one for one in annotations if one is not None]
    sentences = [
        one.get("sentences") if isinstance(one, dict) else None
        for one in (paragraphs if isinstance(paragraphs, list) else ())
    ]
    if not sentences or not all(isinstance(one, list) for one in sentences):
        return [value]
    return list(filter(None, map(_words_and_tags, itertools.chain(*sentences))))


def _words_and_tags(sentence: Any) -> Any:
    """Return a sentence of spaCy 2 as lists, without white space; None: it is empty."""
    tokens = sentence.get("tokens") if isinstance(sentence, dict) else None
    if not isinstance(tokens, list) or not all(isinstance(t, dict) for t in tokens):
        return sentence
    tokens = [t for t in tokens if str(t.get("orth")).strip()]
    words, tags = ([t.get(key) for t in tokens] for key in ("orth", "ner"))
    # A hyphen is a token that nobody has annotated.
    tags = [None if tag == "-" else tag for tag in tags]
    return {"tokens": words, "ner": tags} if words else None


def text_of(record: Any) -> str | None:
    """Return the text of a pair or of a task of Label Studio; None: it has none."""
    layout = "pair" if isinstance(record, list) else "label_studio"
    flat = _flatten(record, layout)
    texts = {key: value for key, value in flat.items() if isinstance(value, str)}
    return next(iter(texts.values())) if len(texts) == 1 else texts.get(_TEXT)


def is_rejected(record: Any) -> bool:
    """Return whether an annotator of Prodigy rejected or skipped a record."""
    return isinstance(record, dict) and record.get("answer") in _REJECTED


def find_form(
    records: Sequence[Any], text: str | None = None, key: str | None = None
) -> SpanForm | None:
    """Return the form of records, by given or usual keys; None: they have no spans."""
    for record in records:
        if form := _label_studio(record, text):
            return form
        is_pair = isinstance(record, list)
        layout, name = ("pair", _TEXT) if is_pair else ("record", text or _TEXT)
        flat = _flatten(record, layout)
        keys = [k for k in ([key] if key else SPAN_KEYS) if _are_spans(flat.get(k))]
        if len(keys) == 1 and isinstance(flat.get(name), str):
            first = flat[keys[0]][0]
            names = _names(first) if isinstance(first, dict) else None
            return SpanForm(name, keys[0], names, layout)
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


def complete_annotations(record: Any) -> list[list[Any]]:
    """Return the results of the annotations of a task of Label Studio."""
    annotations = record.get(_ANNOTATIONS) if isinstance(record, dict) else None
    return [
        one["result"]
        for one in (annotations if isinstance(annotations, list) else ())
        if isinstance(one, dict)
        and isinstance(one.get("result"), list)
        and not one.get("was_cancelled")
    ]


def _label_studio(record: Any, text: str | None) -> SpanForm | None:
    """Return the form of a task of Label Studio with spans, valid or not."""
    results = _span_results(record)
    flat = _flatten(record, "label_studio")
    texts = [text or _TEXT]
    if text is None and not isinstance(flat.get(_TEXT), str):
        texts = [name for name, value in flat.items() if isinstance(value, str)]
    if not results or len(texts) != 1 or not isinstance(flat.get(texts[0]), str):
        return None
    more = tuple((n, results[0][n]) for n in _CONFIGURATION if n in results[0])
    return SpanForm(texts[0], _ANNOTATIONS, _RESULT_NAMES, "label_studio", more)


def _span_results(record: Any) -> list[dict[str, Any]] | None:
    """Return the spans of the first complete annotation of a task; None: it has none.

    Other results, such as choices and ratings, are no spans.
    """
    for results in complete_annotations(record):
        spans = (one for one in results if isinstance(one, dict))
        return [one for one in spans if one.get("type") == "labels"]
    return None


def _flatten(record: Any, layout: str) -> dict[str, Any]:
    """Return a record with text and spans at its top."""
    if isinstance(record, list) and len(record) == 2 and isinstance(record[1], dict):
        return {_TEXT: record[0], **record[1]}
    if not isinstance(record, dict):
        return {}
    if layout != "label_studio":
        return record
    data, results = record.get("data"), _span_results(record)
    spans = None if results is None else [one.get("value") for one in results]
    return {**(data if isinstance(data, dict) else {}), _ANNOTATIONS: spans}


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
    if isinstance(kind, list) and len(kind) == 1:
        kind = kind[0]
    is_valid = (
        type(start) is int and type(end) is int and isinstance(kind, str) and kind
    )
    return CharacterSpan(start, end, kind) if is_valid else None
