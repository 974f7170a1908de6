"""Read texts or n-best lists, score them, and write the scores."""

import itertools
import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from electra_tf.errors import InputError
from electra_tf.tasks.data.conll import COLUMN_SUFFIXES
from electra_tf.tasks.data.files import STANDARD_INPUT, opened
from electra_tf.text.delimited import Lines
from electra_tf.text.files import ENCODING_REMEDY, inner_suffix
from electra_tf.text.rows import JSON_SUFFIXES, begins_json

if TYPE_CHECKING:  # `score` needs the formats before TensorFlow
    from electra_tf.runs.scoring import TextScorer

NBEST_FORMATS = ("text", "jsonl")
_OTHER = (".csv", ".tsv", ".html", ".htm", ".xml", *JSON_SUFFIXES, *COLUMN_SUFFIXES)


class Hypothesis(NamedTuple):
    """A line of an n-best list."""

    id: str
    text: str
    first: float
    """Score of the first pass, such as that of a speech recogniser."""


def score_lines(
    scorer: "TextScorer", source: str | None, form: str = "text"
) -> Iterator[str]:
    """Score each line of a file; yield a line for each."""
    kind = inner_suffix(source) if source else ""
    if kind in _OTHER:
        raise InputError(f"--input {source!r} must be lines of text, not a {kind} file")
    iterator = _lines(source)
    while lines := list(itertools.islice(iterator, scorer.window)):
        places, texts = zip(*lines, strict=True)
        scores = scorer.score(texts, places.__getitem__)
        for text, (score, tokens) in zip(texts, scores, strict=True):
            if form == "text":
                yield f"{score:.4f}\t{text}"
            else:
                values = {"text": text, "score": score, "tokens": tokens}
                yield json.dumps(values | {"rule": scorer.rule}, ensure_ascii=False)


def rerank(
    scorer: "TextScorer", source: str | None, weight: float, form: str = "text"
) -> Iterator[str]:
    """Choose the best hypothesis of each n-best list.

    Yield a line for each id, in the order of their first lines.
    """
    lines = [(place, _parse(place, line)) for place, line in _lines(source)]
    scores = scorer.score((h.text for _, h in lines), lambda i: lines[i][0])
    lists: dict[str, list[dict[str, Any]]] = {}
    for (_, hypothesis), (score, _) in zip(lines, scores, strict=True):
        total = hypothesis.first + weight * score
        values = {"text": hypothesis.text, "total": total}
        values |= {"first": hypothesis.first, "score": score}
        lists.setdefault(hypothesis.id, []).append(values)
    for name, hypotheses in lists.items():
        # `sorted` is stable: of equal totals, the first line wins.
        ranked = sorted(hypotheses, key=lambda h: -h["total"])
        if form == "text":
            yield f"{name}\t{ranked[0]['text']}\t{ranked[0]['total']:.4f}"
        else:
            values = {"id": name, "rule": scorer.rule, "hypotheses": ranked}
            yield json.dumps(values, ensure_ascii=False)


def _lines(source: str | None) -> Iterator[tuple[str, str]]:
    """Yield place and text of each line."""
    with opened(source) as file:
        lines = Lines(file)
        for number, text in enumerate(lines, 1):
            place = f"{source or STANDARD_INPUT}, line {number}"
            if invalid := lines.invalid(text):
                raise InputError(f"{place} must be UTF-8: {invalid}; {ENCODING_REMEDY}")
            if number == 1 and begins_json(text):
                raise InputError(
                    f"{place} begins JSON, and --input must be lines of text: "
                    f"{text!r:.60}"
                )
            yield place, text.rstrip("\r\n")


def _parse(place: str, line: str) -> Hypothesis:
    fields = line.split("\t")
    try:
        first = float(fields[2]) if len(fields) == 3 else 0.0
    except ValueError:
        first = math.nan
    if len(fields) not in (2, 3) or not math.isfinite(first):
        raise InputError(
            f"{place} of an n-best list must be id, tab, text, and optionally a tab "
            f"and a number, not {line[:80]!r}"
        )
    return Hypothesis(fields[0], fields[1], first)
