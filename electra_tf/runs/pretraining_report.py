"""Report of a run of pre-training as one HTML file: curves and replaced tokens."""

import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from electra_tf.kernels.rng import EVALUATION, make_rng
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.runs.experiment import Experiment
from electra_tf.runs.html_report import Lines, charts, table, write_page
from electra_tf.text.pipeline import evaluation_batches
from electra_tf.text.record_set import RecordSet, reraise_bad_records
from electra_tf.training.checkpoint import assign, open_checkpoint
from electra_tf.training.metric_logger import EVALUATION as HELD_OUT
from electra_tf.training.metric_logger import TRAIN, read_metrics

_ROWS = 12
_LINES = {TRAIN: "training", HELD_OUT: "held out"}
# In the order in which a person looks at them. The first of a run are always visible.
_CURVES = {
    "disc_auc": "Discriminator: AUC",
    "disc_loss": "Discriminator: loss",
    "main_lm_loss": "Main network: loss",
    "masked_lm_loss": "Masked LM: loss",
    "masked_lm_accuracy": "Masked LM: accuracy",
    "main_lm_accuracy": "Main network: accuracy",
    "loss": "Total loss",
    "cloze_loss": "Cloze loss",
    "disc_precision": "Discriminator: precision",
    "disc_recall": "Discriminator: recall",
    "learning_rate": "Learning rate",
    "gradient_norm": "Gradient norm",
    "tokens_per_second": "Tokens per second",
}
_FIRST = 3
_LEGEND = (
    "Tokens that the generator replaced are underlined; the original ones follow in "
    "‹›. The redder a token, the higher the discriminator's probability that it was "
    "replaced."
)


def write_pretraining_report(
    path: str, run: str, records: RecordSet, more: Iterable[str] = ()
) -> None:
    """Write curves of a run's metrics and replaced tokens of its newest checkpoint.

    Args:
        path: HTML file.
        run: Run directory.
        records: Records from which rows are shown.
        more: Further parts of the page, as HTML.
    """
    checkpoint = open_checkpoint(run)
    experiment = Experiment.from_checkpoint(checkpoint)
    parts = list(_curves(read_metrics(run)))
    if experiment.config.objective.detects_samples:
        pretrainer = Pretrainer(experiment.config, experiment.special_tokens)
        variables = {v.path: v for v in pretrainer.trainable_variables}
        assign(variables, checkpoint.weights(), checkpoint.path)
        parts += _replaced_tokens(experiment, pretrainer, records)
    title = f"Pre-training: {checkpoint.step:,} steps of {run}"
    write_page(path, title, [*parts, *more])


def _curves(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield charts of training and held-out metrics, and a table of the newest."""
    kinds = {label: [x for x in lines if x["kind"] == k] for k, label in _LINES.items()}
    kinds = {label: lines for label, lines in kinds.items() if lines}
    curves: dict[str, Lines] = {}
    for name in _CURVES:
        by_kind = {
            label: [(line["step"], line[name]) for line in of_kind if name in line]
            for label, of_kind in kinds.items()
        }
        if any(by_kind.values()):
            curves[name] = by_kind
    first, rest = list(curves)[:_FIRST], list(curves)[_FIRST:]
    yield "<h2>Curves, by step</h2>"
    yield charts({name: curves[name] for name in first}, _CURVES)
    yield f"<details><summary>{len(rest)} more curves, and the newest values</summary>"
    yield charts({name: curves[name] for name in rest}, _CURVES)
    yield _newest({label: of_kind[-1] for label, of_kind in kinds.items()})
    yield "</details>"


def _newest(lines: Mapping[str, Mapping[str, float]]) -> str:
    hidden = "step", "kind", "time", "seconds_left"
    names = dict.fromkeys(name for line in lines.values() for name in line)
    rows = []
    for name in (name for name in names if name not in hidden):
        values = [line.get(name, math.nan) for line in lines.values()]
        cells = [f"{value:,.4g}" if math.isfinite(value) else "" for value in values]
        rows.append([_CURVES.get(name, ""), name, *cells])
    header = ["", "", *(f"{label}, step {x['step']:,}" for label, x in lines.items())]
    return table(header, rows, ("name", "name"))


def _replaced_tokens(
    experiment: Experiment, pretrainer: Pretrainer, records: RecordSet
) -> Iterator[str]:
    """Yield rows with the generator's samples, coloured by the discriminator."""
    with reraise_bad_records(records):
        batch = next(iter(evaluation_batches(records, min(_ROWS, records.total))))
    objective = pretrainer.objective
    rng = make_rng(experiment.config.evaluation.seed, EVALUATION, 0, 0)
    masked = objective.mask(batch, rng)
    corrupted, probability_BL = objective.detect(masked, rng)
    tokens = np.array(experiment.tokenizer.vocabulary.tokens)
    yield f'<h2>Replaced tokens</h2><p class="note">{_LEGEND}</p>'
    for row, length in enumerate(batch.input_mask_BL.numpy().sum(1)):
        shown = tokens[corrupted.corrupted_ids_BL[row].numpy()]
        original = tokens[batch.input_ids_BL[row].numpy()]
        shares = probability_BL[row].numpy()
        pieces = (_token(shown[i], original[i], shares[i]) for i in range(length))
        yield f'<p class="row" dir="auto">{"".join(pieces)}</p>'


def _token(shown: str, original: str, share: float) -> str:
    space = "" if shown.startswith("##") else " "
    style = f"background: rgba(var(--bad), {0.75 * share:.3f})"
    tag = "span" if shown == original else "ins"
    text = html.escape(shown.removeprefix("##"))
    note = "" if shown == original else f"<del>‹{html.escape(original)}›</del>"
    return f'{space}<{tag} style="{style}" title="{share:.3f}">{text}</{tag}>{note}'
