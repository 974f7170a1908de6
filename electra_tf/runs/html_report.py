"""Reports as one HTML file; of a fine-tuned model: curves, classes, worst mistakes.

The file has no script and loads nothing.
"""

import dataclasses
import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from electra_tf import durable_files
from electra_tf.tasks.class_report import (
    RATES,
    ClassReport,
    class_row,
    confused_pairs,
    describe_baseline,
    has_matrix,
    total_rows,
)
from electra_tf.tasks.score import Mistake, ScoredSplit

Points = Sequence[tuple[float, float]]
Lines = Mapping[str, Points]
"""Points of the lines of one chart, by the line's name."""

_MAX_TEXT = 2000  # characters of a text
_MAX_PAIRS = 30
_NARROW = 8  # classes of a matrix whose names fit side by side
# Of a chart; half a label of the x axis is right of the last step.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM, _TOP = 345, 210, 52, 24, 24, 10
_TITLES = {
    "loss": "Loss",
    "accuracy": "Accuracy",
    "subset_accuracy": "Accuracy of whole sets",
    "mcc": "Matthews correlation",
    "f1": "F1",
    "macro_f1": "F1, mean of the classes",
    "micro_f1": "F1 of all labels",
    "spearman": "Spearman correlation",
    "pearson": "Pearson correlation",
    "mse": "Mean squared error",
    "exact_match": "Exact match",
}
_STYLE = """
:root { color-scheme: light dark; --line: light-dark(#ccc, #444);
  --line0: light-dark(#1a5fb4, #78aeed); --line1: light-dark(#c64600, #ffa348);
  --good: 26, 130, 80; --bad: 200, 60, 40 }
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
.matrix td, .matrix th { padding: .2rem .4rem }
.matrix .name, .matrix th { max-width: 11rem; white-space: normal;
  overflow-wrap: break-word }
.many th:not(:first-child) { writing-mode: vertical-rl; text-align: left }
.total { border-top: 2px solid var(--line) }
.charts { display: flex; flex-wrap: wrap; gap: 1rem }
figure { margin: 0 } figcaption { font-weight: 600 }
figcaption code { font-weight: 400; opacity: .75 }
figcaption span { font-weight: 400; margin-right: .6rem }
.line0 { color: var(--line0) } .line1 { color: var(--line1) }
summary { cursor: pointer; margin: 1rem 0 .5rem }
svg text { font-size: 11px; fill: currentColor }
svg line { stroke: var(--line) }
svg polyline { fill: none; stroke: currentColor; stroke-width: 2 }
svg circle { fill: currentColor }
.note { opacity: .75 }
.row { line-height: 2; overflow-wrap: anywhere }
.row ins { text-decoration: underline 2px } .row del { opacity: .6 }
"""
_PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy"
content="default-src 'none'; style-src 'unsafe-inline'"><meta
name="generator" content="electra_tf"><meta name="viewport"
content="width=device-width, initial-scale=1"><title>{title}</title>
<style>{style}</style></head><body><h1>{title}</h1>
{body}
</body></html>
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
    curves: Mapping[str, Lines] = dataclasses.field(default_factory=dict)
    """Lines over training steps, by the name of the chart."""
    note: str = ""


def write_report(path: str, title: str, sections: Iterable[Section]) -> None:
    """Write a report as one HTML file."""
    write_page(path, title, (part for one in sections for part in _section(one)))


def write_page(path: str, title: str, parts: Iterable[str]) -> None:
    """Write parts of HTML as one file that loads nothing."""
    body = "\n".join(parts)
    page = _PAGE.format(title=html.escape(title), style=_STYLE, body=body)
    with durable_files.replacing(path, errors="backslashreplace") as file:
        file.write(page)


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


def _section(section: Section) -> Iterator[str]:
    yield f"<h2>{html.escape(section.title)}</h2>"
    if section.note:
        yield f'<p class="note">{html.escape(section.note)}</p>'
    yield table(section.header, section.rows)
    titles = {name: _TITLES.get(name.partition("_")[2], "") for name in section.curves}
    if drawn := charts(section.curves, {**titles, "loss": _TITLES["loss"]}):
        yield f"<h3>Training, by step</h3>{drawn}"
    for name, (classes, mistakes) in section.splits.items():
        if classes:
            yield f"<h3>Classes of {html.escape(name)}, in percent</h3>"
            yield _classes(classes)
            if baseline := describe_baseline(classes):
                yield f"<p>{html.escape(baseline)}</p>"
            yield from _confusion(classes)
        yield f"<h3>Worst mistakes on {html.escape(name)}</h3>"
        if not mistakes:
            yield "<p>None.</p>"
            continue
        header = ["text", "gold", "predicted", mistakes[0].measure]
        rows = [
            [_shorten(m.text), m.gold, m.predicted, f"{m.size:.3f}" if m.size else ""]
            for m in mistakes
        ]
        yield table(header, rows, ("text", "name", "name"))


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    kinds: Sequence[str] = ("name",),
    styles: Mapping[tuple[int, int], str] | None = None,
    totals: Sequence[int] = (),
    look: str = "",
) -> str:
    """Return a table whose first columns are texts, of the classes `kinds`.

    `styles` are those of cells by row and column; a line is above the rows `totals`.
    `look`: classes of the table.
    """
    lines = []
    for number, row in enumerate([header, *rows], -1):
        tag, cells = "th" if number < 0 else "td", []
        for column, cell in enumerate(row):
            kind = kinds[column] if column < len(kinds) else ""
            names = f"{kind} total".strip() if number in totals else kind
            attributes = f' class="{names}"' if names else ""
            attributes += ' dir="auto"' if kind and number >= 0 else ""
            if style := (styles or {}).get((number, column)):
                attributes += f' style="{style}"'
            cells.append(f"<{tag}{attributes}>{html.escape(str(cell))}</{tag}>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    names = f' class="{look}"' if look else ""
    return f'<div class="scroll"><table{names}>{"".join(lines)}</table></div>'


def _classes(report: ClassReport) -> str:
    rows = [class_row(*one) for one in report["classes"].items()]
    header = ["class", *RATES]
    return table(header, rows + total_rows(report), totals=[len(rows)])


def _confusion(report: ClassReport) -> Iterator[str]:
    confusion = report["confusion"]
    if not confusion:  # of texts with several classes
        return
    of = "" if "accuracy" in report else " of words"
    sums = {gold: sum(counts.values()) or 1 for gold, counts in confusion.items()}
    if not has_matrix(confusion):
        rows = [
            [gold, predicted, f"{count:,}", f"{100 * count / sums[gold]:.0f}"]
            for count, gold, predicted in confused_pairs(confusion)[:_MAX_PAIRS]
        ]
        yield f"<h3>Most confused classes{of}</h3>"
        header = ["gold", "predicted", "count", "percent of gold"]
        yield table(header, rows, ("name", "name"))
        return
    rows, styles = [], {}
    for number, (gold, counts) in enumerate(confusion.items()):
        rows.append([gold, *(f"{counts.get(name, 0):,}" for name in confusion)])
        for column, predicted in enumerate(confusion, 1):
            color = "--good" if gold == predicted else "--bad"
            share = 0.6 * counts.get(predicted, 0) / sums[gold]
            styles[number, column] = f"background: rgba(var({color}), {share:.3f})"
    yield f"<h3>Confusion matrix{of}: rows gold, columns predicted</h3>"
    look = "matrix many" if len(confusion) > _NARROW else "matrix"
    yield table(["", *confusion], rows, styles=styles, look=look)


def _shorten(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]} … ({len(text):,} characters)"


def charts(curves: Mapping[str, Lines], titles: Mapping[str, str] | None = None) -> str:
    """Draw values over steps, a chart for each name that has points.

    `titles`: what a person calls the values, by their names.
    """
    drawn = []
    for name, lines in curves.items():
        if lines := {label: points for label, points in lines.items() if points}:
            title = html.escape((titles or {}).get(name, ""))
            code = f"<code>{html.escape(name)}</code>"
            drawn.append(_chart(f"{title} {code}".strip(), lines))
    return f'<div class="charts">{"".join(drawn)}</div>' if drawn else ""


@dataclasses.dataclass(frozen=True)
class _Axes:
    """Scales of a chart: steps from 0 to `last`, values between the `ticks`."""

    last: float
    ticks: Sequence[float]

    def place(self, x: float, y: float) -> tuple[float, float]:
        low, high = self.ticks[0], self.ticks[-1]
        right = (_WIDTH - _LEFT - _RIGHT) * x / (self.last or 1)
        down = (_HEIGHT - _BOTTOM - _TOP) * (high - y) / ((high - low) or 1)
        return round(_LEFT + right, 1), round(_TOP + down, 1)


def _chart(caption: str, lines: Lines) -> str:
    """Draw lines over steps, where they are finite."""
    finite = [[(x, y) for x, y in line if math.isfinite(y)] for line in lines.values()]
    points = [point for line in finite for point in line]
    parts = [] if points else [f'<text x="{_LEFT}" y="99">no finite value</text>']
    if points:
        xs, ys = zip(*points, strict=True)
        low, high = min(ys), max(ys)
        if low == high:
            low, high = min(low, 0.0), max(high, 0.0)
        axes = _Axes(max(xs), _ticks(low, high))
        parts += _grid(axes)
        for number, line in enumerate(finite):
            parts.append(f'<g class="line{number}">{"".join(_line(line, axes))}</g>')
    names = enumerate(map(html.escape, lines))
    legend = "".join(f'<span class="line{n}">{name}</span>' for n, name in names)
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}"'
    svg = f'<svg {size} role="img">{"".join(parts)}</svg>'
    return f"<figure><figcaption>{caption}<br>{legend}</figcaption>{svg}</figure>"


def _grid(axes: _Axes) -> Iterator[str]:
    """Yield the labels of both axes, and a line for each value."""
    for tick in axes.ticks:
        _, y = axes.place(0, tick)
        yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        yield _label(f"{tick:g}", _LEFT - 5, y + 4, "end")
    for tick in _ticks(0, axes.last):
        if tick <= axes.last:
            x, _ = axes.place(tick, axes.ticks[0])
            yield _label(f"{tick:g}", x, _HEIGHT - 6, "middle")


def _line(points: Points, axes: _Axes) -> Iterator[str]:
    """Yield a line, with circles if its points are few."""
    places = " ".join("{},{}".format(*axes.place(x, y)) for x, y in points)
    yield f'<polyline points="{places}"/>'
    for x, y in points if len(points) <= 20 else ():
        circle = '<circle cx="{}" cy="{}" r="3">'.format(*axes.place(x, y))
        yield f"{circle}<title>step {x:g}: {y:.5g}</title></circle>"


def _label(text: str, x: float, y: float, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'


def _ticks(low: float, high: float) -> list[float]:
    """Return about four round numbers from just below `low` to just above `high`."""
    width = (high - low) or abs(high) or 1.0
    power = 10 ** math.floor(math.log10(width / 4))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= width / 4)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(n * step, 12) for n in range(first, max(last, first + 1) + 1)]
