"""Report of a fine-tuned model as one HTML file: curves, classes, worst mistakes.

The file has no script and loads nothing. Elements are built as a tree, which escapes
every text.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as ET

from electra_tf import durable_files
from electra_tf.tasks.class_report import ClassReport, confused_pairs, has_matrix
from electra_tf.tasks.score import Mistake, ScoredSplit

Points = Sequence[tuple[float, float]]

_MAX_TEXT = 2000  # characters of a text
_MAX_PAIRS = 30
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 380, 210, 48, 24, 10  # of a chart
_STYLE = """
:root { color-scheme: light dark; --line: light-dark(#ccc, #444);
  --ink: light-dark(#1a5fb4, #78aeed); --good: 26, 130, 80; --bad: 200, 60, 40 }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto;
  padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.25rem; margin-top: 2.5rem }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .5rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--line); text-align: right;
  vertical-align: top; white-space: nowrap }
th { font-weight: 600 }
.name { text-align: left; overflow-wrap: break-word; max-width: 22rem;
  white-space: normal }
.text { text-align: left; overflow-wrap: anywhere; white-space: pre-wrap;
  min-width: 18rem }
.total { border-top: 2px solid var(--line) }
.charts { display: flex; flex-wrap: wrap; gap: 1rem }
figure { margin: 0 } figcaption { font-weight: 600 }
svg text { font-size: 11px; fill: currentColor }
svg line { stroke: var(--line) }
svg polyline { fill: none; stroke: var(--ink); stroke-width: 2 }
svg circle { fill: var(--ink) }
.note { opacity: .75 }
"""


@dataclasses.dataclass(frozen=True)
class Section:
    """Results on one task."""

    title: str
    header: Sequence[str]
    """Names of the columns of `rows`."""
    rows: Sequence[Sequence[Any]]
    """Scores, a row for each trial or score."""
    splits: Mapping[str, tuple[ClassReport | None, Sequence[Mistake]]]
    """Scores of classes, and the worst mistakes, by labelled split."""
    curves: Mapping[str, Points] = dataclasses.field(default_factory=dict)
    """Values over training steps, by name."""
    note: str = ""


def write_report(path: str, title: str, sections: Iterable[Section]) -> None:
    """Write a report as one HTML file."""
    attributes = (
        {"charset": "utf-8"},
        {"http-equiv": "Content-Security-Policy", "content": _POLICY},
        {"name": "viewport", "content": "width=device-width, initial-scale=1"},
    )
    style = _element("style", _STYLE)
    metas = (ET.Element("meta", one) for one in attributes)
    head = _element("head", *metas, _element("title", title), style)
    body = _element("body", _element("h1", title))
    for section in sections:
        body.extend(_section(section))
    page = ET.tostring(_element("html", head, body), "unicode", method="html")
    with durable_files.replacing(path, errors="backslashreplace") as file:
        file.write(f"<!DOCTYPE html>\n{page}\n")


def write_evaluation(
    path: str, report: Mapping[str, Any], splits: Mapping[str, ScoredSplit]
) -> None:
    """Write what `evaluate_model` returned as HTML."""
    scores = {n: v for n, v in report.items() if isinstance(v, float)}
    counts = ", ".join(f"{name} {n:,}" for name, n in report["examples"].items())
    section = Section(
        title=report["task"],
        header=["score", ""],
        rows=[[name, f"{value:.2f}"] for name, value in scores.items()],
        splits={name: (one.classes, one.mistakes) for name, one in splits.items()},
        note=f"Examples: {counts}.",
    )
    write_report(path, f"Evaluation on {report['data']}", [section])


def _element(tag: str, *children: Any, **attributes: Any) -> ET.Element:
    """Create an element; children are elements or texts, `class_` is its class."""
    names = {n.rstrip("_"): str(v) for n, v in attributes.items() if v != ""}
    element, last = ET.Element(tag, names), None
    for child in children:
        if isinstance(child, ET.Element):
            element.append(child)
            last = child
        elif last is None:
            element.text = (element.text or "") + str(child)
        else:
            last.tail = (last.tail or "") + str(child)
    return element


def _section(section: Section) -> list[ET.Element]:
    parts = [_element("h2", section.title)]
    if section.note:
        parts.append(_element("p", section.note, class_="note"))
    rows = [[(str(cell), "name") if n == 0 else (str(cell), "")
             for n, cell in enumerate(row)] for row in section.rows]  # fmt: skip
    parts.append(_table(section.header, rows))
    charts = [_chart(name, points) for name, points in section.curves.items() if points]
    if charts:
        parts += [
            _element("h3", "Training, by step"),
            _element("div", *charts, class_="charts"),
        ]
    for name, (classes, mistakes) in section.splits.items():
        if classes:
            parts.append(_element("h3", f"Classes of {name}, in percent"))
            parts += [_classes(classes), *_confusion(classes)]
        parts += _mistakes(name, mistakes)
    return parts


def _table(
    header: Sequence[str], rows: Iterable[Sequence[Any]], names: int = 1
) -> ET.Element:
    """Create a table of rows of cells (text, class), or of elements."""
    head = [
        _element("th", name, class_="name" if n < names else "")
        for n, name in enumerate(header)
    ]
    body = [
        _element(
            "tr",
            *(
                cell
                if isinstance(cell, ET.Element)
                else _element("td", cell[0], class_=cell[1], dir=cell[1] and "auto")
                for cell in row
            ),
        )
        for row in rows
    ]
    table = _element("table", _element("tr", *head), *body)
    return _element("div", table, class_="scroll")


def _classes(report: ClassReport) -> ET.Element:
    def row(name: str, rates: Mapping[str, float], more: str = "") -> list[Any]:
        cells = [f"{rates[rate]:.2f}" for rate in ("precision", "recall", "f1")]
        numbers = [(cell, more) for cell in (*cells, f"{rates['support']:,}")]
        return [(name, f"name {more}"), *numbers]

    rows = [row(name, rates) for name, rates in report["classes"].items()]
    averages, more = report["averages"], "total"
    if "accuracy" in report:
        support = averages["macro avg"]["support"]
        cells = ("accuracy", "name total"), ("", more), ("", more)
        rows.append(
            [*cells, (f"{report['accuracy']:.2f}", more), (f"{support:,}", more)]
        )
        more = ""
    for name, rates in averages.items():
        rows.append(row(name, rates, more))
        more = ""
    return _table(["class", "precision", "recall", "f1", "support"], rows)


def _confusion(report: ClassReport) -> list[ET.Element]:
    confusion = report["confusion"]
    if not confusion:  # of texts with several classes
        return []
    of = "" if "accuracy" in report else " of words"
    if not has_matrix(confusion):
        rows = [
            [(gold, "name"), (predicted, "name"), (f"{count:,}", ""),
             (f"{100 * count / sum(confusion[gold].values()):.0f}", "")]
            for count, gold, predicted in confused_pairs(confusion)[:_MAX_PAIRS]
        ]  # fmt: skip
        header = ["gold", "predicted", "count", "percent of gold"]
        title = f"Most confused classes{of}"
        return [_element("h3", title), _table(header, rows, names=2)]
    rows = []
    for gold, counts in confusion.items():
        total = sum(counts.values()) or 1
        row: list[Any] = [(gold, "name")]
        for predicted in confusion:
            count = counts.get(predicted, 0)
            color = "--good" if gold == predicted else "--bad"
            style = f"background: rgba(var({color}), {0.6 * count / total:.3f})"
            row.append(_element("td", f"{count:,}", style=style))
        rows.append(row)
    title = f"Confusion matrix{of}: rows gold, columns predicted"
    return [_element("h3", title), _table(["", *confusion], rows)]


def _mistakes(split: str, mistakes: Sequence[Mistake]) -> list[ET.Element]:
    title = _element("h3", f"Worst mistakes on {split}")
    if not mistakes:
        return [title, _element("p", "None.")]
    rows = [
        [
            (_shorten(mistake.text), "text"),
            (mistake.gold, "name"),
            (mistake.predicted, "name"),
            (f"{mistake.size:.3f}" if mistake.size else "", ""),
        ]
        for mistake in mistakes
    ]
    header = ["text", "gold", "predicted", mistakes[0].measure]
    return [title, _table(header, rows, names=3)]


def _shorten(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]} … ({len(text):,} characters)"


def _chart(name: str, points: Points) -> ET.Element:
    """Draw values over steps, those that are finite."""
    points = [(x, y) for x, y in points if math.isfinite(y)]
    svg = _element("svg", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", width=_WIDTH, role="img")
    figure = _element("figure", _element("figcaption", name), svg)
    if not points:
        svg.append(_element("text", "no finite value", x=_LEFT, y=_HEIGHT // 2))
        return figure
    xs, ys = zip(*points, strict=True)
    low, high = min(ys), max(ys)
    if low == high:
        low, high = min(low, 0.0), max(high, 0.0)
    y_ticks, x_ticks = _ticks(low, high), _ticks(0, max(xs))
    low, high = y_ticks[0], y_ticks[-1]

    def x_of(x: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - 10) * x / (max(xs) or 1), 1)

    def y_of(y: float) -> float:
        height = _HEIGHT - _BOTTOM - _TOP
        return round(_TOP + height * (high - y) / ((high - low) or 1), 1)

    for tick in y_ticks:
        y = y_of(tick)
        svg.append(_element("line", x1=_LEFT, x2=_WIDTH - 10, y1=y, y2=y))
        label = _element("text", f"{tick:g}", x=_LEFT - 5, y=y + 4)
        label.set("text-anchor", "end")
        svg.append(label)
    for tick in (tick for tick in x_ticks if tick <= max(xs)):
        label = _element("text", f"{tick:g}", x=x_of(tick), y=_HEIGHT - 6)
        label.set("text-anchor", "middle")
        svg.append(label)
    line = " ".join(f"{x_of(x)},{y_of(y)}" for x, y in points)
    svg.append(_element("polyline", points=line))
    for x, y in points if len(points) <= 20 else ():
        tip = _element("title", f"step {x:g}: {y:.5g}")
        svg.append(_element("circle", tip, cx=x_of(x), cy=y_of(y), r=3))
    return figure


def _ticks(low: float, high: float) -> list[float]:
    """Return about four round numbers from just below `low` to just above `high`."""
    width = (high - low) or abs(high) or 1.0
    power = 10 ** math.floor(math.log10(width / 4))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= width / 4)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(n * step, 12) for n in range(first, max(last, first + 1) + 1)]
