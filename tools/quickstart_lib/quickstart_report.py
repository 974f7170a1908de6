"""Format the results of a quick start as a page and as a summary for a terminal."""

import html
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import quickstart_pictures as pictures
from quickstart_model import AFTER, BEFORE, Piece

NUM_SHOWN = 3  # sentences on the terminal; the page has all
LEGEND = (
    "Replaced tokens are underlined; the original ones follow in ‹›. The redder a "
    "token,\nthe higher the discriminator's probability that it was replaced."
)
PLAIN_LEGEND = (
    "Replaced tokens are followed by the original ones in ‹›.\n"
    "[.93] is the discriminator's probability that the token was replaced."
)
QUESTION = (
    "Is a sentence as written, or were two adjacent words exchanged? Accuracy on "
    "sentences from held-out files:"
)
_PROPOSAL_COLUMNS = ("sentence", "original word", "before training", "after training")
_METRICS = ("masked_lm_loss", "masked_lm_accuracy", "disc_loss", "disc_auc")
_TITLES = {BEFORE: "before training", AFTER: "after training"}

Results = Mapping[str, Any]


def ratio(means: Mapping[str, float]) -> float:
    """Return the ratio of the probabilities of replaced and other tokens."""
    return means["replaced"] / means["others"]


def scores(results: Results) -> dict[str, list[float]]:
    """Return the metrics on all held-out text, before and after training."""
    means = [results["means"][stage] for stage in _TITLES]
    return {
        "disc_auc": [m["disc_auc"] for m in means],
        "probability, replaced tokens": [m["replaced"] for m in means],
        "probability, other tokens": [m["others"] for m in means],
        "ratio": list(map(ratio, means)),
    }


def classes(results: Results) -> list[tuple[str, str]]:
    """Return the classifier's accuracies as text."""
    task = results["classifier"]
    return [
        ("from the pre-trained weights", f"{task['pretrained']:.1f} %"),
        ("from random weights", f"{task['random']:.1f} %"),
        ("by chance", "50.0 %"),
    ]


# ---- For a terminal.


def summary(results: Results, coloured: bool) -> str:
    """Return the results as text for a terminal."""
    parts = []
    for name, kinds in results["curves"].items():
        held_out = kinds["evaluation"][1]
        parts.append(f"{name}" + (f", held-out {held_out[-1]:.3f}" if held_out else ""))
        parts += [*pictures.plot(*kinds["train"]), ""]
    for stages in results["sentences"][:NUM_SHOWN]:
        for stage, title in _TITLES.items():
            pieces = _pieces(stages[stage])
            lines = pictures.to_terminal(pieces, coloured)
            parts += [f"{title}, {pictures.mean_probabilities(pieces)}:", *lines]
        parts.append("")
    parts += [LEGEND if coloured else PLAIN_LEGEND, ""]
    for proposal in results["proposals"][:NUM_SHOWN]:
        parts += [*_proposal_lines(proposal), ""]
    parts += [f"{'all held-out text':<32}{'before':>10}{'after':>10}"]
    parts += [
        f"  {name:<30}" + "".join(f"{v:>10.3f}" for v in values)
        for name, values in scores(results).items()
    ]
    metrics = "  ".join(f"{name} {results['metrics'][name]:.3f}" for name in _METRICS)
    parts += [f"  evaluate: {metrics}", "", QUESTION]
    parts += [f"  {name:<38}{value:>8}" for name, value in classes(results)]
    return "\n".join(parts)


def _proposal_lines(proposal: Results) -> Iterable[str]:
    yield _masked(proposal)
    yield f"  original word: {proposal['pieces'][proposal['place']]}"
    for stage, title in _TITLES.items():
        words = ", ".join(f"{word} {value:.2f}" for word, value in proposal[stage])
        yield f"  proposed {title}: {words}"


def _masked(proposal: Results) -> str:
    pieces = list(proposal["pieces"])
    pieces[proposal["place"]] = "[MASK]"
    return pictures.join_pieces(pieces)


def _pieces(values: Sequence[Sequence[Any]]) -> list[Piece]:
    return [Piece(*piece) for piece in values]


def next_commands(
    python: str,
    folder: str,
    checkpoint: str,
    config: str,
    steps: int,
    sets: Sequence[str],
) -> str:
    """Return commands to continue with."""
    quoted = map(shlex.quote, (python, folder, checkpoint, config))
    python, folder, checkpoint, config = quoted
    small = config.replace("tiny.yaml", "small.yaml")
    tensorboard = f"{python.removesuffix('python')}tensorboard"
    return f"""\
the curves in TensorBoard:
  {tensorboard} --logdir={folder}/run
the classifier on your sentences, one to a line:
  {python} -m electra_tf.predict --model={folder}/classifier_pretrained --input=my.txt
these weights, trained longer:
  {python} -m electra_tf.pretrain --config={config} \
--data={folder}/records --evaluation_data={folder}/heldout \
--init_checkpoint={checkpoint} --model_dir={folder}/longer \
{shlex.join(sets)} --set training.steps={steps}
these weights, evaluated on your text:
  {python} -m electra_tf.build_records --input='my/*.txt' --vocab={folder}/vocab.txt \
--output=my_records --config={config}
  {python} -m electra_tf.evaluate --checkpoint={checkpoint} --data=my_records
the paper's small model on your text:
  {python} -m electra_tf.build_vocab --input='my/*.txt' --output=vocab.txt
  {python} -m electra_tf.build_records --input='my/*.txt' --vocab=vocab.txt \
--output=records --max_length=128
  {python} -m electra_tf.pretrain --config={small} --data=records \
--model_dir=run"""


def duration(seconds: Mapping[str, float]) -> str:
    """Return the minutes of all stages and the seconds of each as text."""
    stages = ", ".join(f"{name} {s:.0f} s" for name, s in seconds.items())
    return f"{sum(seconds.values()) / 60:.1f} minutes ({stages})"


# ---- The page.

_STYLE = """
* { box-sizing: border-box }
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
td.number { text-align: right; white-space: nowrap }
ins { text-decoration: underline; text-decoration-thickness: 2px }
del, small, .note { color: #555 }
"""


def page(results: Results, seconds: Mapping[str, float]) -> str:
    """Return a self-contained HTML page.

    Args:
        results: Results of all stages.
        seconds: Seconds of each stage.
    """
    facts = [(name, f"{value}") for name, value in results["metrics"].items()]
    images = (pictures.curve_image(*item) for item in results["curves"].items())
    numbers = (
        [name, *(f"{v:.3f}" for v in vs)] for name, vs in scores(results).items()
    )
    body = f"""<h1>An ELECTRA, trained within minutes</h1>
<p>Trained on {html.escape(results["corpus"])}. All numbers are for held-out text.</p>
<h2>Training</h2>
<div class="curves">{"".join(images)}</div>
<h2>Before and after training, on all held-out text</h2>
<p>The trained generator replaced words. The discriminator assigns each token the
probability that it was replaced.</p>
{_table(["", "before", "after"], numbers)}
<h2>Sentences</h2>
<p class="note">{html.escape(LEGEND)} The sentences are evenly spaced in the held-out
text.</p>
{"".join(map(_sentence, results["sentences"]))}
<h2>Proposals of the generator for a masked word</h2>
{_table(_PROPOSAL_COLUMNS, map(_proposal, results["proposals"]))}
<h2>Fine-tuned classifier</h2>
<p>{html.escape(QUESTION)}</p>
{_table(["fine-tuned", "accuracy"], classes(results))}
<h2>This run</h2>
<p>{duration(seconds)}</p>
{_table([], facts)}"""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>electra_tf: quick start</title><style>{_STYLE}</style></head>
<body>
{body}
</body></html>
"""


def _table(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return an HTML table of text cells."""
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(map(_cell, line))}</tr>\n" for line in lines)
    head = f"<tr>{head}</tr>\n" if titles else ""
    return f'<div class="scroll"><table>\n{head}{body}</table></div>'


def _cell(value: str) -> str:
    is_number = value.removesuffix(" %").replace(".", "", 1).isdigit()
    return f"<td{' class=number' * is_number}>{html.escape(value)}</td>"


def _sentence(stages: Results) -> str:
    blocks = []
    for stage, title in _TITLES.items():
        pieces = _pieces(stages[stage])
        blocks.append(
            f"<small>{title}: {pictures.mean_probabilities(pieces)}</small>\n"
            f'<p class="text">{pictures.to_html(pieces)}</p>'
        )
    return "\n".join(blocks)


def _proposal(proposal: Results) -> list[str]:
    words = [
        ", ".join(f"{word} {value:.2f}" for word, value in proposal[stage])
        for stage in _TITLES
    ]
    return [_masked(proposal), proposal["pieces"][proposal["place"]], *words]
