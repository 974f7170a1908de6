"""Write the predictions of a fine-tuned model to a file or to standard output."""

from collections.abc import Iterable, Sequence

from electra_tf import durable_files, sources
from electra_tf.tasks import evaluation, prediction_inputs, predictions
from electra_tf.tasks.load import load


def run_prediction(
    path: str,
    source: str | None,
    output: str | None,
    overwrite: bool,
    text_columns: Sequence[str] | None,
    form: str,
    nbest: int | None,
) -> None:
    """Load a model and write its predictions."""
    prediction_inputs.check_input(source)
    prediction_inputs.check_output(source, output, overwrite)
    found = sources.open(path)
    model = load(found)
    stored = evaluation.stored_columns(found.path, model).text_columns
    items = prediction_inputs.read_items(model, source, text_columns, stored)
    _write_lines(predictions.predict_items(model, items, form, nbest), output)


def _write_lines(lines: Iterable[str], output: str | None) -> None:
    """Write lines to a file, which appears when it is complete, or to stdout."""
    if output is None:
        for line in lines:
            print(line)
        return
    with durable_files.replacing(output) as file:
        for line in lines:
            print(line, file=file)
