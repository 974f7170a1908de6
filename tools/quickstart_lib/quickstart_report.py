"""Format the results of a quick start as a page and as a summary for a terminal."""

import base64
import html
import io
import math
import pathlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quickstart_model import AFTER, BEFORE, Piece

from electra_tf.training.metric_logger import EVALUATION, TRAIN, read_metrics

CURVES = ("loss", "masked_lm_accuracy", "disc_auc")
_PROPOSAL_COLUMNS = ("sentence", "original word", "before training", "after training")
_TITLES = {BEFORE: "before training", AFTER: "after training"}

Results = Mapping[str, Any]
Curve = Mapping[str, Sequence[Sequence[float]]]


def read_curves(run: pathlib.Path) -> dict[str, Curve]:
    curves: dict[str, dict[str, list]] = {}
    for line in read_metrics(str(run)):
        for name in CURVES:
            if math.isfinite(line.get(name, math.nan)):
                kinds = curves.setdefault(name, {TRAIN: [[], []], EVALUATION: [[], []]})
                steps, values = kinds[line["kind"]]
                steps.append(line["step"])
                values.append(line[name])
    return curves


def classes(results: Results) -> list[tuple[str, str]]:
    task = results["classifier"]
    return [
        ("from the pre-trained weights", f"{task['pretrained']:.1f} %"),
        ("from random weights", f"{task['random']:.1f} %"),
        ("by chance", "50.0 %"),
    ]


def summary(results: Results) -> str:
    lines = [f"  {name:<38}{v:>8.3f}" for name, v in results["metrics"].items()]
    accuracies = [f"  {name:<38}{value:>8}" for name, value in classes(results)]
    titles = "all held-out text:", "accuracy on sentences from held-out files:"
    return "\n".join([titles[0], *lines, "", titles[1], *accuracies])


def next_commands(
    python: str, folder: str, checkpoint: str, config: str, settings: Sequence[str]
) -> str:
    quoted = map(shlex.quote, (python, folder, checkpoint, config))
    python, folder, checkpoint, config = quoted
    return f"""\
the curves in TensorBoard:
  {python.removesuffix("python")}tensorboard --logdir={folder}/run
the classifier on your sentences, one to a line:
  {python} -m electra_tf.predict --model={folder}/classifier_pretrained --input=my.txt
these weights, trained longer:
  {python} -m electra_tf.pretrain --config={config} \
--data={folder}/records --evaluation_data={folder}/heldout \
--init_checkpoint={checkpoint} --model_dir={folder}/longer {shlex.join(settings)}
these weights, evaluated on your text:
  {python} -m electra_tf.build_records --input='my/*.txt' --vocab={folder}/vocab.txt \
--output=my_records --config={config}
  {python} -m electra_tf.evaluate --checkpoint={checkpoint} --data=my_records
a model of your own text: docs/getting-started.md"""


def duration(seconds: Mapping[str, float]) -> str:
    stages = ", ".join(f"{name} {s:.0f} s" for name, s in seconds.items())
    return f"{sum(seconds.values()) / 60:.1f} minutes ({stages})"


_STYLE = """
body { font: 16px/1.6 sans-serif; max-width: 62em; margin: 0 auto; padding: 1em;
       color: #111; background: #fff; overflow-wrap: anywhere }
h1, h2 { line-height: 1.2 }
.curves { display: flex; flex-wrap: wrap; gap: 1em }
.curves img { flex: 1 1 17em; min-width: 0; max-width: 100% }
.text { line-height: 2; margin: 0 0 1em }
.scroll { overflow-x: auto }
table { border-collapse: collapse; margin: 1em 0 }
td, th { border: 1px solid #ccc; padding: .3em .6em; text-align: left;
         vertical-align: top; overflow-wrap: normal }
ins { text-decoration: underline; text-decoration-thickness: 2px }
del, small, .note { color: #555 }
"""


def page(results: Results, seconds: Mapping[str, float]) -> str:
    images = "".join(curve_image(*item) for item in results["curves"].items())
    metrics = [(name, f"{value:.3f}") for name, value in results["metrics"].items()]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>electra_tf: quick start</title><style>{_STYLE}</style></head>
<body>
<h1>An ELECTRA, trained within minutes</h1>
<p>Trained on {html.escape(results["corpus"])}. All numbers are for held-out text.</p>
<h2>Training</h2>
<div class="curves">{images}</div>
{_table([], metrics)}
<h2>Sentences</h2>
<p>Words were masked, and proposals of the trained generator replaced them. The
discriminator assigns each token the probability that it was replaced.</p>
<p class="note">Replaced tokens are underlined; the original ones follow in ‹›. The
redder a token, the higher the discriminator's probability that it was replaced. The
sentences are evenly spaced in the held-out text.</p>
{"".join(map(_sentence, results["sentences"]))}
<h2>Proposals of the generator for the first [MASK]</h2>
{_table(_PROPOSAL_COLUMNS, map(_proposal, results["proposals"]))}
<h2>Fine-tuned classifier</h2>
<p>Is a sentence as written, or were two adjacent words exchanged? Accuracy on sentences
from held-out files:</p>
{_table(["fine-tuned", "accuracy"], classes(results))}
<h2>This run</h2>
<p>{duration(seconds)}</p>
</body></html>
"""


def curve_image(name: str, kinds: Curve) -> str:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(4.5, 3.2), layout="tight")
    marker = "o" if len(kinds[TRAIN][0]) == 1 else None  # a line needs two points
    axis.plot(*kinds[TRAIN], marker=marker, label="training")
    if kinds[EVALUATION][0]:
        axis.plot(*kinds[EVALUATION], "o-", label="held-out text")
    axis.set(title=name, xlabel="step")
    axis.grid(alpha=0.3)
    axis.legend()
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    data = base64.b64encode(file.getvalue()).decode()
    label = html.escape(f"{name} over the steps of training")
    return f'<img alt="{label}" src="data:image/svg+xml;base64,{data}">'


def _table(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [("th", titles)] if titles else []
    rows += [("td", line) for line in lines]
    body = "".join(
        f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in row)}</tr>\n"
        for tag, row in rows
    )
    return f'<div class="scroll"><table>\n{body}</table></div>'


def _proposal(proposal: Results) -> list[str]:
    """Return the masked sentence, the word, and the proposals of both stages."""
    words = [
        ", ".join(f"{word} {value:.2f}" for word, value in proposal[stage])
        for stage in _TITLES
    ]
    return [proposal["masked"], proposal["word"], *words]


def _sentence(stages: Results) -> str:
    return "\n".join(
        f"<small>{title}:</small>\n"
        f'<p class="text">{to_html([Piece(*piece) for piece in stages[stage]])}</p>'
        for stage, title in _TITLES.items()
    )


def to_html(pieces: Sequence[Piece]) -> str:
    """Return coloured spans, with the original pieces struck out."""
    cells = []
    for space, text, original, probability in pieces:
        kind = "span" if original is None else "ins"
        note = "" if original is None else f"<del>‹{html.escape(original)}›</del>"
        # From white for probability 0 to red for 1.
        colour = tuple(round(255 + (c - 255) * probability) for c in (235, 60, 45))
        cells.append(
            f'{html.escape(space)}<{kind} style="background: rgb{colour}"'
            f' title="{probability:.3f}">{html.escape(text)}</{kind}>{note}'
        )
    return "".join(cells)
