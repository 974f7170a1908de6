"""Measure a checkpoint on held-out records, or score a fine-tuned model or predictions.

python -m electra_tf.evaluate --checkpoint=run --data=heldout

Score a fine-tuned model on labelled data of its task:

python -m electra_tf.evaluate --model=sst2 --data=dev.tsv

Score predictions of any system by the official rules:

python -m electra_tf.evaluate --task=squad2 --data=dev-v2.0.json \\
    --predictions=predictions.json --na_prob=null_odds.json
"""

import json
import sys

from absl import flags

from electra_tf import cli
from electra_tf.errors import InputError
from electra_tf.runs import evaluation
from electra_tf.tasks import inference, score_file, task_evaluation
from electra_tf.training import strategy

FLAGS = flags.FlagValues()
flags.DEFINE_string(
    "data", None, "Required: the records to measure on, or a task's labelled file "
    "(for --model also a folder with dev and test).",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_string(
    "checkpoint", None, "A checkpoint, or a run's folder.", flag_values=FLAGS
)
flags.DEFINE_string(
    "model", None, "The --output of finetune, or a .keras file.", flag_values=FLAGS
)
flags.DEFINE_list(
    "text_columns", None,
    "--model: the columns of a table with the texts; those of training unless given.",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_string(
    "label_column", None,
    "--model: the column of the label or the score; that of training unless given.",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_integer(
    "batches", None, "How many batches at most; all unless given.", lower_bound=1,
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_enum(
    "task", None, score_file.NAMES, "Score predictions.", flag_values=FLAGS
)
flags.DEFINE_string("predictions", None, "Their file.", flag_values=FLAGS)
flags.DEFINE_string(
    "na_prob", None, "SQuAD 2: odds of no answer, JSON by id.", flag_values=FLAGS
)
flags.DEFINE_string("output", None, "A file for the JSON.", flag_values=FLAGS)
cli.define_device_flags(FLAGS, strategy.NAMES)


# The flags that each of the three ways takes beside --data and --output.
_WAYS = {
    "task": ("predictions", "na_prob"),
    "model": ("text_columns", "label_column"),
    "checkpoint": ("batches", "strategy", "tpu", "cpu_replicas"),
}


def main() -> None:
    """Measure, and print a table and a line of JSON, or the JSON alone."""
    way = next((name for name in _WAYS if FLAGS[name].value), "checkpoint")
    cli.require(FLAGS, "predictions" if way == "task" else way, "data")
    taken = {way, *_WAYS[way]}
    every = [*_WAYS, *(name for names in _WAYS.values() for name in names)]
    if given := [n for n in every if FLAGS[n].present and n not in taken]:
        raise InputError(
            "--task must be used with --predictions, --model with a fine-tuned model, "
            "--checkpoint with a pre-trained one, each with its own flags",
            f"--{given[0]} with --{way}",
            f"Leave out --{given[0]}; --{way} takes "
            + ", ".join(f"--{name}" for name in _WAYS[way]),
        )
    if way == "task":
        report = score_file.score_predictions(
            FLAGS.task, FLAGS.data, FLAGS.predictions, FLAGS.na_prob, _tell
        )
        text = json.dumps(report, indent=2)
    elif way == "model":
        model = inference.load(FLAGS.model)
        columns = task_evaluation.Columns(
            tuple(FLAGS.text_columns or ()), FLAGS.label_column
        )
        report = task_evaluation.evaluate_model(
            model, FLAGS.model, FLAGS.data, columns, _tell
        )
        print(task_evaluation.format_report(report))
        text = json.dumps(report, allow_nan=False)
    else:
        devices = strategy.choose(FLAGS.strategy, FLAGS.tpu, FLAGS.cpu_replicas)
        report = evaluation.evaluate_checkpoint(
            FLAGS.checkpoint, FLAGS.data, FLAGS.batches, devices
        )
        text = json.dumps(report, allow_nan=False)
    print(text)
    if FLAGS.output:
        with open(FLAGS.output, "w", encoding="utf-8") as file:
            file.write(text + "\n")


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
