"""What a quick start shows at its end.

The curves, a few sentences in which words were replaced and judged, what to do next.
"""

import html
import math
import os
import pathlib
import shlex
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
CURVES = ("loss", "masked_lm_accuracy", "disc_auc")
SENTENCES = 3
COLUMNS = 88
LEGEND = (
    "Tokens that the generator put in are underlined; the text's own follow in ‹›. "
    "The redder,\nthe surer the discriminator is that a token was replaced."
)
PLAIN_LEGEND = (
    "Tokens that the generator put in stand before ‹›, which hold the text's own.\n"
    "[.93] is the discriminator's probability that the token before was replaced."
)
BLOCKS = " ▁▂▃▄▅▆▇█"


class Piece(NamedTuple):
    """A word piece as the discriminator reads it."""

    text: str
    original: str | None
    """What stood there, where the generator put in something else."""
    probability: float
    """That it was replaced, says the discriminator."""


def find(
    run: pathlib.Path, checkpoint: pathlib.Path, heldout: pathlib.Path
) -> dict[str, Any]:
    """All that is shown, as JSON."""
    from electra_tf.training.reports import EVALUATION, TRAIN, read_metrics

    curves: dict[str, dict[str, list]] = {}
    for line in read_metrics(str(run)):
        for name in CURVES:
            if math.isfinite(line.get(name, math.nan)):
                kinds = curves.setdefault(name, {TRAIN: [[], []], EVALUATION: [[], []]})
                steps, values = kinds[line["kind"]]
                steps.append(line["step"])
                values.append(line[name])
    lines = heldout.read_text(encoding="utf-8").splitlines()
    return {"curves": curves, "sentences": judge(str(checkpoint), lines)}


def judge(path: str, lines: Sequence[str]) -> list[list[Piece]]:
    """Masks, samples and judges as an evaluation does."""
    import tensorflow as tf

    from electra_tf.experiment import Experiment
    from electra_tf.kernels.noise import EVALUATION, noise_of
    from electra_tf.pretraining.losses import guess
    from electra_tf.pretraining.objectives.common import text
    from electra_tf.pretraining.sampling import corrupt
    from electra_tf.training.checkpoint import open_checkpoint
    from electra_tf.training.state import restore_weights
    from electra_tf.training.strategy import choose

    checkpoint = open_checkpoint(path)
    experiment = Experiment.of(checkpoint)
    pretrainer = experiment.pretrainer(choose("one_device"))
    restore_weights(pretrainer, checkpoint)
    objective = pretrainer.objective
    batch = rows(lines, experiment)
    noise = noise_of(experiment.config.training.seed, EVALUATION, 0)
    masked = objective.mask(batch, noise)
    logits_BMV = objective.model.generator(
        masked.masked_ids_BL, **text(masked), positions=masked.positions_BM
    )
    guessed = guess(logits_BMV, masked.labels_BM)
    sampled_BM = objective.sampled(logits_BMV, guessed, masked.labels_BM, noise)
    corrupted = corrupt(masked, sampled_BM)
    ids_BL = corrupted.corrupted_ids_BL
    judged_BL = tf.sigmoid(objective.model.discriminator(ids_BL, **text(masked)))

    tokens = experiment.tokenizer.vocabulary.tokens
    sentences = []
    for read, own, judged, mask in zip(
        *(t.numpy() for t in (ids_BL, batch.input_ids_BL, judged_BL, batch[1])),
        strict=True,
    ):
        inner = slice(1, mask.sum() - 1)  # without [CLS] and [SEP]
        triples = zip(read[inner], own[inner], judged[inner].tolist(), strict=True)
        sentences.append(
            [
                Piece(tokens[new], tokens[old] if new != old else None, probability)
                for new, old, probability in triples
            ]
        )
    return sentences


def rows(lines: Sequence[str], experiment: Any) -> Any:
    """A batch of a few lines of text, [CLS] line [SEP] each."""
    import numpy as np
    import tensorflow as tf

    from electra_tf.batch import Batch
    from electra_tf.text.vocab import CLS, SEP

    tokenizer = experiment.tokenizer
    special = tokenizer.vocabulary.ids
    encoded = list(map(tokenizer.encode, lines))
    length = experiment.config.records.max_length
    fitting = [ids for ids in encoded if length / 2 <= len(ids) <= min(length - 2, 60)]
    fitting = fitting or [max(encoded, key=len)[: length - 2]]
    chosen = fitting[:: max(1, len(fitting) // SENTENCES)][:SENTENCES]
    shape = (len(chosen), length)
    ids_BL, mask_BL = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    for row, pieces in enumerate(chosen):
        ids_BL[row, : len(pieces) + 2] = [special[CLS], *pieces, special[SEP]]
        mask_BL[row, : len(pieces) + 2] = 1
    segments_BL = np.zeros_like(ids_BL)
    return Batch(*map(tf.constant, (ids_BL, mask_BL, segments_BL)))


def draw(found: dict[str, Any], folder: pathlib.Path) -> None:
    """Writes `curves.png`, `replaced.png` and `replaced.html`."""
    import matplotlib

    matplotlib.use("Agg")
    sentences = [[Piece(*piece) for piece in pieces] for pieces in found["sentences"]]
    page = to_html(sentences)
    (folder / "replaced.html").write_text(page, encoding="utf-8")
    _draw_curves(found["curves"], str(folder / "curves.png"))
    _draw_sentences(sentences, str(folder / "replaced.png"))


def told(found: dict[str, Any], coloured: bool) -> str:
    """Curves and sentences for a terminal."""
    parts = []
    for name, kinds in found["curves"].items():
        held_out = kinds["evaluation"][1]
        parts.append(f"{name}" + (f", held-out {held_out[-1]:.3f}" if held_out else ""))
        parts += [*plot(*kinds["train"]), ""]
    for pieces in found["sentences"]:
        pieces = [Piece(*piece) for piece in pieces]
        parts += [*to_terminal(pieces, coloured), judgement(pieces), ""]
    return "\n".join([*parts, LEGEND if coloured else PLAIN_LEGEND])


def judgement(pieces: Sequence[Piece]) -> str:
    """How sure the discriminator is of what was replaced, and of the rest."""
    new = [p.probability for p in pieces if p.original is not None]
    old = [p.probability for p in pieces if p.original is None]
    means = (f"{statistics.fmean(part):.2f}" if part else "-" for part in (new, old))
    return "mean probability of the replaced {}, of the others {}".format(*means)


def plot(
    steps: Sequence[int], values: Sequence[float], width: int = 64, height: int = 5
) -> list[str]:
    """A curve in characters."""
    import numpy as np

    low, high = min(values), max(values)
    columns = np.interp(np.linspace(steps[0], steps[-1], width), steps, values)
    # In eighths of a line; the lowest value is one of them.
    eighths = 1 + np.round((columns - low) / ((high - low) or 1) * (8 * height - 1))
    lines = []
    for label, below in zip(
        [f"{high:.3f}", *[""] * (height - 2), f"{low:.3f}"],
        range(8 * (height - 1), -1, -8),
        strict=True,
    ):
        filled = np.clip(eighths - below, 0, 8).astype(int)
        lines.append(f"{label:>9} {''.join(BLOCKS[k] for k in filled)}".rstrip())
    first, last = f"step {steps[0]:,}", f"step {steps[-1]:,}"
    return [*lines, f"{'':9} {first}{last:>{max(width - len(first), 8)}}"]


def colour(probability: float) -> tuple[int, int, int]:
    """From white, surely the text's own, to red, surely replaced."""
    red = (235, 60, 45)
    return tuple(round(255 + (c - 255) * probability) for c in red)


_NO_SPACE_BEFORE, _NO_SPACE_AFTER = set(".,;:!?)]}'%/-_"), set("([{'/-_")


class Cell(NamedTuple):
    """A piece at its place in a line."""

    column: int
    text: str
    note: str
    """What stands behind it: what it replaced, if anything."""
    piece: Piece

    @property
    def end(self) -> int:
        return self.column + len(self.text) + len(self.note)


def layout(
    pieces: Sequence[Piece], width: int, plain: bool = False
) -> Iterator[list[Cell]]:
    """Lines of text; `##` and signs take no space before them."""
    line: list[Cell] = []
    before = ""
    for piece in pieces:
        text = piece.text.removeprefix("##") or piece.text
        note = "" if piece.original is None else f"‹{piece.original}›"
        if plain:
            note += f"[{min(piece.probability, 0.99):.2f}]".replace("[0", "[")
        glued = text != piece.text or text in _NO_SPACE_BEFORE
        gap = 0 if not line or glued or before in _NO_SPACE_AFTER else 1
        cell = Cell(line[-1].end + gap if line else 0, text, note, piece)
        if cell.end > width and line:
            yield line
            line, cell = [], cell._replace(column=0)
        line.append(cell)
        before = text
    yield line


def to_terminal(pieces: Sequence[Piece], coloured: bool) -> list[str]:
    """Lines with coloured backgrounds, or with the probabilities in brackets."""
    paint = _painted if coloured else lambda cell: cell.text
    return [
        "".join(f"{gap}{paint(cell)}{cell.note}" for gap, cell in _spaced(line))
        for line in layout(pieces, COLUMNS, plain=not coloured)
    ]


def _spaced(line: list[Cell]) -> Iterator[tuple[str, Cell]]:
    """The cells with the space before each."""
    end = 0
    for cell in line:
        yield " " * (cell.column - end), cell
        end = cell.end


def _painted(cell: Cell) -> str:
    r, g, b = colour(cell.piece.probability)
    underline = "" if cell.piece.original is None else "4;"
    return f"\x1b[{underline}38;2;0;0;0;48;2;{r};{g};{b}m{cell.text}\x1b[0m"


def to_html(sentences: Sequence[Sequence[Piece]]) -> str:
    """A page that needs nothing beside it."""
    blocks = []
    for pieces in sentences:
        line = next(layout(pieces, width=10**9))
        spans = "".join(gap + _span(cell) for gap, cell in _spaced(line))
        blocks.append(f"<p>{spans}</p>\n<small>{judgement(pieces)}</small>")
    body = "\n".join(blocks)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Replaced tokens</title>
<style>
body {{ font: 18px/2 sans-serif; max-width: 50em; margin: 2em auto; color: #000;
       background: #fff }}
ins {{ text-decoration: underline }} del, small {{ color: #666 }}
</style>
<h1>Replaced tokens</h1>
<p>{LEGEND}</p>
{body}
</html>
"""


def _span(cell: Cell) -> str:
    kind = "span" if cell.piece.original is None else "ins"
    own = f"<del>{html.escape(cell.note)}</del>" if cell.note else ""
    return (
        f'<{kind} style="background: rgb{colour(cell.piece.probability)}"'
        f' title="{cell.piece.probability:.3f}">{html.escape(cell.text)}</{kind}>{own}'
    )


def next_commands(
    python: str, folder: str, checkpoint: str, configs: str, steps: int
) -> str:
    """What one may want to type next; paths as one would type them."""
    quoted = map(shlex.quote, (python, folder, checkpoint, configs))
    python, folder, checkpoint, configs = quoted
    tensorboard = f"{python.removesuffix('python')}tensorboard"
    return f"""\
the curves in TensorBoard:
  {tensorboard} --logdir={folder}/run
these weights, trained longer:
  {python} -m electra_tf.pretrain --config={configs}/tiny.yaml \
--data={folder}/records --evaluation_data={folder}/heldout \
--init_checkpoint={checkpoint} --model_dir={folder}/longer --set training.steps={steps}
these weights, measured on your text:
  {python} -m electra_tf.build_records --input='my/*.txt' --vocab={folder}/vocab.txt \
--output=my_records --config={configs}/tiny.yaml
  {python} -m electra_tf.evaluate --checkpoint={checkpoint} --data=my_records
the paper's small model on your text:
  {python} -m electra_tf.build_vocab --input='my/*.txt' --output=vocab.txt
  {python} -m electra_tf.build_records --input='my/*.txt' --vocab=vocab.txt \
--output=records --max_length=128
  {python} -m electra_tf.pretrain --config={configs}/small.yaml --data=records \
--model_dir=run"""


def _draw_curves(curves: dict[str, Any], path: str) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(curves), figsize=(4.5 * len(curves), 3.5))
    for axis, (name, kinds) in zip(axes, curves.items(), strict=True):
        alone = "o" if len(kinds["train"][0]) == 1 else None  # a line needs two points
        axis.plot(*kinds["train"], marker=alone, label="training")
        if kinds["evaluation"][0]:
            axis.plot(*kinds["evaluation"], "o-", label="held-out text")
        axis.set(title=name, xlabel="step")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_sentences(sentences: Sequence[Sequence[Piece]], path: str) -> None:
    from matplotlib import pyplot

    size, lines = 11, []
    for pieces in sentences:
        lines += [*layout(pieces, COLUMNS), []]
    # A character of the monospaced font that comes with matplotlib is 0.602 em wide.
    figure = pyplot.figure(
        figsize=((COLUMNS + 2) * 0.602 * size / 72, 0.3 * len(lines))
    )
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(-1, COLUMNS + 1), ylim=(len(lines) - 0.5, -1))
    axis.axis("off")
    style = {"family": "DejaVu Sans Mono", "size": size, "va": "baseline"}
    for row, line in enumerate(lines):
        for cell in line:
            end = cell.column + len(cell.text)
            red = [part / 255 for part in colour(cell.piece.probability)]
            axis.fill_between(
                [cell.column, end], row + 0.25, row - 0.6, color=red, lw=0
            )
            axis.text(cell.column, row, cell.text, **style)
            axis.text(end, row, cell.note, color="#666", **style)
            if cell.note:
                axis.plot([cell.column, end], [row + 0.15] * 2, color="black", lw=1)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
