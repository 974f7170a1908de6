"""Report of a run of pre-training as one HTML file: curves and replaced tokens."""

import html
import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from electra_tf.kernels.rng import EVALUATION, make_rng
from electra_tf.pretraining.pretrainer import Pretrainer
from electra_tf.runs.experiment import Experiment
from electra_tf.runs.html_report import Points, charts, table, write_page
from electra_tf.text.pipeline import evaluation_batches
from electra_tf.text.record_set import RecordSet, reraise_bad_records
from electra_tf.training.checkpoint import assign, open_checkpoint
from electra_tf.training.metric_logger import EVALUATION as HELD_OUT
from electra_tf.training.metric_logger import TRAIN, read_metrics

_ROWS = 12
_TITLES = {TRAIN: "Training, by step", HELD_OUT: "Held-out records, by step"}
_CURVES = (
    *("loss", "masked_lm_loss", "disc_loss", "masked_lm_accuracy", "disc_auc"),
    *("disc_precision", "disc_recall", "learning_rate", "gradient_norm"),
    "tokens_per_second",
)
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
    lines, parts = read_metrics(run), []
    for kind, title in _TITLES.items():
        of_kind = [line for line in lines if line["kind"] == kind]
        if of_kind:
            parts.append(f"<h2>{title}</h2>")
            curves: dict[str, Points] = {
                name: [(line["step"], line[name]) for line in of_kind if name in line]
                for name in _CURVES
            }
            parts += [charts(curves), _newest(of_kind[-1])]
    if experiment.config.objective.detects_samples:
        pretrainer = Pretrainer(experiment.config, experiment.special_tokens)
        variables = {v.path: v for v in pretrainer.trainable_variables}
        assign(variables, checkpoint.weights(), checkpoint.path)
        parts += _replaced_tokens(experiment, pretrainer, records)
    title = f"Pre-training: {checkpoint.step:,} steps of {run}"
    write_page(path, title, [*parts, *more])


def _newest(line: Mapping[str, float]) -> str:
    hidden = "step", "kind", "time", "seconds_left"
    shown = {n: v for n, v in line.items() if n not in hidden and math.isfinite(v)}
    rows = [[name, f"{value:,.4g}"] for name, value in shown.items()]
    return table([f"step {line['step']:,}", ""], rows)


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
