"""Evaluate a checkpoint, or score a fine-tuned model.

electra-tf evaluate --checkpoint=run --data=heldout

Score a fine-tuned model on labelled data of its task:

electra-tf evaluate --model=sst2 --data=dev.tsv
"""

from typing import Any

from electra_tf import cli, model_names
from electra_tf.config.finetuning import COLUMNS, FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.storage.mirror import local_path, staged
from electra_tf.tasks.data.table import json_text

FLAGS = cli.Flags()
FLAGS.strings(
    data="Required: records, or labelled data of a task (for --model also a folder "
    "with dev and test).",
    checkpoint="A checkpoint or run of pretrain, a name of `electra-tf presets`, or a "
    "pre-trained model of another library.",
    model="The --output of finetune, or a .keras file.",
    output="File for the JSON report.",
    report="With --model: HTML file with scores of classes and the worst mistakes.",
    save_predictions="With --model: CSV file for the texts with labels, predictions "
    "and probabilities.",
)
FLAGS.switches(overwrite="Replace --output, --report and --save_predictions.")
FLAGS.counts(batches="With --checkpoint: batches to evaluate, at most. Default: all.")
_COLUMNS = (*COLUMNS, "missing_text")
_SETTINGS = {name: f"data.{name}" for name in _COLUMNS}
cli.define_setting_flags(FLAGS, _SETTINGS, FinetuningConfig, "as --model was trained")
cli.define_device_flags(FLAGS)

# The flags of each mode, besides --data and --output. The mode is itself a flag.
_MODES = {
    "model": (*_COLUMNS, "save_predictions", "report"),
    "checkpoint": ("batches", "strategy", "tpu", "cpu_replicas"),
}


def main() -> None:
    """Print a table of scores, then the scores as JSON."""
    mode = _mode()
    cli.check_paths(FLAGS, "data")
    for flag in ("report", "save_predictions", "output"):
        cli.check_output(FLAGS, flag)
    for flag in ("model", "checkpoint"):
        model_names.check_exists(FLAGS[flag].value)
    text = json_text(_score_model(mode))
    print(text)
    if FLAGS.output:
        with staged(FLAGS.output) as output:
            cli.write_lines([text], output)


def _score_model(mode: str) -> dict[str, Any]:
    with cli.starting_tensorflow():
        from electra_tf import sources
        from electra_tf.runs.evaluation import evaluate_checkpoint
        from electra_tf.runs.html_report import write_evaluation
        from electra_tf.tasks import evaluation
        from electra_tf.tasks.load import load
        from electra_tf.tasks.predictions import csv_lines
        from electra_tf.training import strategy
    if mode == "checkpoint":  # its records are fetched where they are opened
        devices = strategy.choose(FLAGS.strategy, FLAGS.tpu, FLAGS.cpu_replicas)
        return evaluate_checkpoint(FLAGS.checkpoint, FLAGS.data, FLAGS.batches, devices)
    data, source = local_path(FLAGS.data), sources.open_source(FLAGS.model)
    model = load(source)
    columns = {name: FLAGS[name].value for name in _COLUMNS}
    report, splits = evaluation.evaluate_model(
        model,
        source.task,
        data,
        columns,
        training_rows=source.training_rows,
    )
    if FLAGS.save_predictions:
        with staged(FLAGS.save_predictions) as path:
            cli.write_lines(csv_lines(model, splits), path)
    print(evaluation.format_report(report))
    if FLAGS.report:
        with staged(FLAGS.report) as path:
            write_evaluation(path, report, splits)
    return report


def _mode() -> str:
    """Return the mode that the flags select; raise an error for flags of another."""
    mode = next((name for name in _MODES if FLAGS[name].value), "checkpoint")
    cli.require(FLAGS, mode, "data")
    for name in (*_MODES, *(flag for flags_ in _MODES.values() for flag in flags_)):
        if FLAGS[name].present and name not in (mode, *_MODES[mode]):
            known = ", ".join(f"--{flag}" for flag in _MODES[mode])
            raise InputError(f"--{name} must not be used with --{mode}, as {known} are")
    return mode


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
