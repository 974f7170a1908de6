"""Draw curves and sentences for a page and for a terminal."""

import base64
import html
import io
import math
import pathlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from quickstart_model import Piece

from electra_tf.training.metric_logger import EVALUATION, TRAIN, read_metrics

CURVES = ("loss", "masked_lm_accuracy", "disc_auc")
COLUMNS = 88
_BLOCKS = " ▁▂▃▄▅▆▇█"

Curve = Mapping[str, Sequence[Sequence[float]]]


def read_curves(run: pathlib.Path) -> dict[str, Curve]:
    """Return [steps, values] by metric and kind from a run's `metrics.jsonl`."""
    curves: dict[str, dict[str, list]] = {}
    for line in read_metrics(str(run)):
        for name in CURVES:
            if math.isfinite(line.get(name, math.nan)):
                kinds = curves.setdefault(name, {TRAIN: [[], []], EVALUATION: [[], []]})
                steps, values = kinds[line["kind"]]
                steps.append(line["step"])
                values.append(line[name])
    return curves


def curve_image(name: str, kinds: Curve) -> str:
    """Return a plot of a metric over the steps as an `<img>` with inline data."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(4.5, 3.2))
    marker = "o" if len(kinds[TRAIN][0]) == 1 else None  # a line needs two points
    axis.plot(*kinds[TRAIN], marker=marker, label="training")
    if kinds[EVALUATION][0]:
        axis.plot(*kinds[EVALUATION], "o-", label="held-out text")
    axis.set(title=name, xlabel="step")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.tight_layout()
    with io.BytesIO() as file:
        figure.savefig(file, format="svg", metadata={"Date": None})
        data = base64.b64encode(file.getvalue()).decode()
    pyplot.close(figure)
    label = html.escape(f"{name} over the steps of training")
    return f'<img alt="{label}" src="data:image/svg+xml;base64,{data}">'


def plot(
    steps: Sequence[int], values: Sequence[float], width: int = 64, height: int = 5
) -> list[str]:
    """Return a curve drawn with characters."""
    low, high = min(values), max(values)
    columns = np.interp(np.linspace(steps[0], steps[-1], width), steps, values)
    # Heights in eighths of a line. The lowest value has one eighth.
    eighths = 1 + np.round((columns - low) / ((high - low) or 1) * (8 * height - 1))
    lines = []
    for label, below in zip(
        [f"{high:.3f}", *[""] * (height - 2), f"{low:.3f}"],
        range(8 * (height - 1), -1, -8),
        strict=True,
    ):
        filled = np.clip(eighths - below, 0, 8).astype(int)
        lines.append(f"{label:>9} {''.join(_BLOCKS[k] for k in filled)}".rstrip())
    first, last = f"step {steps[0]:,}", f"step {steps[-1]:,}"
    return [*lines, f"{'':9} {first}{last:>{max(width - len(first), 8)}}"]


def colour(probability: float) -> tuple[int, int, int]:
    """Return a colour from white for probability 0 to red for 1."""
    red = (235, 60, 45)
    return tuple(round(255 + (c - 255) * probability) for c in red)


def mean_probabilities(pieces: Sequence[Piece]) -> str:
    """Return the mean probabilities of replaced and of other pieces as text."""
    replaced = [p.probability for p in pieces if p.original is not None]
    others = [p.probability for p in pieces if p.original is None]
    means = (f"{statistics.fmean(p):.2f}" if p else "-" for p in (replaced, others))
    return "mean probability of replaced tokens {}, of others {}".format(*means)


_NO_SPACE_BEFORE, _NO_SPACE_AFTER = set(".,;:!?)]}'%/-_"), set("([{'/-_")


class Cell(NamedTuple):
    """Wordpiece with its column in a line."""

    column: int
    text: str
    note: str
    """Text after it: the original piece if it was replaced, and its probability."""
    piece: Piece

    @property
    def end(self) -> int:
        return self.column + len(self.text) + len(self.note)


def layout(
    pieces: Sequence[Piece], width: int, plain: bool = False
) -> Iterator[list[Cell]]:
    """Break pieces into lines. Continuations and punctuation get no space before."""
    line: list[Cell] = []
    before = ""
    for piece in pieces:
        text = piece.text.removeprefix("##") or piece.text
        note = "" if piece.original is None else f"‹{piece.original}›"
        if plain:
            note += f"[{min(piece.probability, 0.99):.2f}]".replace("[0", "[")
        attached = text != piece.text or text in _NO_SPACE_BEFORE
        gap = 0 if not line or attached or before in _NO_SPACE_AFTER else 1
        cell = Cell(line[-1].end + gap if line else 0, text, note, piece)
        if cell.end > width and line:
            yield line
            line, cell = [], cell._replace(column=0)
        line.append(cell)
        before = text
    yield line


def to_terminal(pieces: Sequence[Piece], coloured: bool) -> list[str]:
    """Return lines with coloured backgrounds or with probabilities in brackets."""
    paint = _paint if coloured else lambda cell: cell.text
    return [
        "".join(f"{gap}{paint(cell)}{cell.note}" for gap, cell in _spaced(line))
        for line in layout(pieces, COLUMNS, plain=not coloured)
    ]


def to_html(pieces: Sequence[Piece]) -> str:
    """Return coloured spans, with the original pieces struck out."""
    line = next(layout(pieces, width=10**9))
    return "".join(gap + _span(cell) for gap, cell in _spaced(line))


def join_pieces(pieces: Sequence[str]) -> str:
    """Join pieces to text."""
    line = next(layout([Piece(piece, None, 0.0) for piece in pieces], width=10**9))
    return "".join(gap + cell.text for gap, cell in _spaced(line))


def _spaced(line: list[Cell]) -> Iterator[tuple[str, Cell]]:
    """Yield the cells with the space before each."""
    end = 0
    for cell in line:
        yield " " * (cell.column - end), cell
        end = cell.end


def _paint(cell: Cell) -> str:
    r, g, b = colour(cell.piece.probability)
    underline = "" if cell.piece.original is None else "4;"
    return f"\x1b[{underline}38;2;0;0;0;48;2;{r};{g};{b}m{cell.text}\x1b[0m"


def _span(cell: Cell) -> str:
    kind = "span" if cell.piece.original is None else "ins"
    note = f"<del>{html.escape(cell.note)}</del>" if cell.note else ""
    return (
        f'<{kind} style="background: rgb{colour(cell.piece.probability)}"'
        f' title="{cell.piece.probability:.3f}">{html.escape(cell.text)}</{kind}>{note}'
    )
