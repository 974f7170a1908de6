"""Score a fine-tuned model on labelled data of its task."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from electra_tf.errors import InputError
from electra_tf.tasks import registry
from electra_tf.tasks.class_report import format_class_report
from electra_tf.tasks.data.files import Notify, print_note
from electra_tf.tasks.examples import EncodedExamples
from electra_tf.tasks.input_warnings import InputCounter
from electra_tf.tasks.score import ScoredSplit
from electra_tf.tasks.task_data import Labelled
from electra_tf.tasks.text_model import TextModel


def evaluate_model(
    model: TextModel,
    task: str | None,
    data: str,
    columns: Mapping[str, Any] | None = None,
    log: Notify = print_note,
    training_rows: np.ndarray | None = None,
) -> tuple[dict[str, Any], dict[str, ScoredSplit]]:
    """Score a model on labelled data: a file, or a folder with dev and test.

    `columns` replace the model's. A note counts texts that are among `training_rows`.
    Return a report, and the splits by name. The report has task, data, examples of each
    split, scores by name, with the split's as prefix if there are several, the reports
    of `classes`, and the `threshold` of the model's decisions, where there are any.
    """
    declaration = registry.of(model)
    reading = declaration.reading(model, task, columns or {}, log)
    found = declaration.labelled_data(model, task, data, reading)
    if not found.splits:
        raise InputError(f"{data!r} must have labels, and has none")
    report: dict[str, Any] = {"task": found.name, "data": data}
    report["examples"] = {split: len(part) for split, part in found.splits.items()}
    report |= declaration.decision_settings(model)
    scored = {}
    for split, part in found.splits.items():
        examples = model.examples(part.items)
        if training_rows is not None and (count := examples.num_equal(training_rows)):
            log(
                f"warning: the model was trained on the texts of {count:,} of the "
                f"{len(part):,} examples of {split}, which are scored too: scores of "
                "new texts may be lower"
            )
        scored[split] = one = score_split(model, found, split, examples)
        for line in InputCounter(model, examples).lines(split):
            log(line)
        if one.degenerate:
            log(f"DEGENERATE: the model {one.degenerate} on {split}")
    for split, one in scored.items():
        prefix = f"{split}_" if len(scored) > 1 else ""
        for key, value in one.scores.items():
            report[prefix + key] = value
    classes = {split: one.classes for split, one in scored.items()}
    classes = {split: rates for split, rates in classes.items() if rates}
    return report | ({"classes": classes} if classes else {}), scored


def score_split(
    model: TextModel, data: Labelled, name: str, examples: EncodedExamples
) -> ScoredSplit:
    """Predict for a split, whose examples are given."""
    task, split = registry.of(model), data.splits[name]
    outputs = model.outputs_of(examples)
    details = model.decode_details(split.items, examples, outputs)
    return ScoredSplit(task, model, split, details, data.metrics, data.bounds)


def format_report(report: Mapping[str, Any]) -> str:
    """Format a report: the data, a line for each score, and the tables of classes."""
    counts = ", ".join(f"{name} {n:,}" for name, n in report["examples"].items())
    lines = [f"{report['task']}: {report['data']}, examples: {counts}"]
    for name, value in report.items():
        if isinstance(value, float):
            lines.append(f"  {name:<28}{value:>12.5f}")
    for name, classes in report.get("classes", {}).items():
        lines += [f"{name}:", format_class_report(classes)]
    return "\n".join(lines)
