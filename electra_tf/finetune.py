"""Fine-tune a pre-trained checkpoint on a task, with several seeds.

electra-tf finetune --task=rte --data=glue --checkpoint=run \\
    --output=rte --trials=5

Tasks: GLUE (cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, ax; glue for all that
have data), squad1, squad2, chunking, tagging (any CoNLL file, or JSON of words and
tags, or of texts and spans) and csv (any table).
Run the same command again to resume a run that was stopped or killed.
"""

from absl import flags

from electra_tf import cli, model_names
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.storage.mirror import local_path, staged, synced
from electra_tf.tasks.score_files import NAMES

FLAGS = flags.FlagValues()
SETTINGS = {
    "text_columns": "data.text_columns",
    "label_column": "data.label_column",
    "label_separator": "data.label_separator",
    "score_column": "data.score_column",
    "spans_column": "data.spans_column",
    "split_column": "data.split_column",
    "tag_names": "data.tag_names",
    "early_stopping": "training.early_stopping",
    "keep": "training.keep",
    "on_error": "data.on_error",
}
_COLUMN_FLAGS = {  # tasks that have a flag
    "text_columns": ("csv", "chunking", "tagging"),
    "label_column": ("csv", "chunking", "tagging"),
    "label_separator": ("csv",),
    "score_column": ("csv",),
    "spans_column": ("chunking", "tagging"),
    "split_column": ("csv",),
    "tag_names": ("chunking", "tagging"),
}
flags.DEFINE_enum(
    "task", None, (*NAMES, "csv", "glue"), "Required: the task.", flag_values=FLAGS
)
cli.define(
    FLAGS,
    flags.DEFINE_string,
    None,
    data="Required: file or folder of the task, or tfds:NAME.",
    checkpoint="Required: a checkpoint or run of pretrain, a name of `electra-tf "
    "presets`, or a model of another library (Hugging Face folder or hub id, "
    "TensorFlow 1, KerasHub, Model Garden).",
    output="Required: output folder.",
    report="HTML file with curves, scores of classes and the worst mistakes.",
)
flags.DEFINE_integer("trials", 1, "Number of seeds.", lower_bound=1, flag_values=FLAGS)
cli.define_device_flags(FLAGS)
cli.define_config_flags(FLAGS, SETTINGS, FinetuningConfig)


def main() -> None:
    """Train and evaluate until all trials are done, or until a signal."""
    try:
        _finetune()
    except KeyboardInterrupt as interrupt:
        number = cli.signal_of(interrupt)
        cli.exit_on_signal(number, "after the last completed epoch")


def _finetune() -> None:
    cli.require(FLAGS, "task", "data", "checkpoint", "output")
    _check_column_flags()
    cli.check_paths(FLAGS, "data")
    cli.check_output("report", FLAGS.report)
    model_names.check_exists(FLAGS.checkpoint)
    cli.resolve(FLAGS, SETTINGS, root=FinetuningConfig)
    with cli.starting_tensorflow():
        from electra_tf.runs import finetuning
        from electra_tf.training import strategy
    devices = strategy.choose(FLAGS.strategy, FLAGS.tpu, FLAGS.cpu_replicas)
    with (
        staged(FLAGS.report) as report,
        synced(FLAGS.output, last=(finetuning.RESULTS,)) as output,
    ):
        finetuning.run_finetuning(
            FLAGS.task,
            local_path(FLAGS.data),
            FLAGS.checkpoint,
            output,
            FLAGS.trials,
            lambda published: cli.resolve(FLAGS, SETTINGS, published, FinetuningConfig),
            devices,
            report,
        )
    print(finetuning.describe_model(FLAGS.task, FLAGS.output))


def _check_column_flags() -> None:
    """Raise an error for flags of another task."""
    wrong = [
        name
        for name, tasks in _COLUMN_FLAGS.items()
        if FLAGS[name].present and FLAGS.task not in tasks
    ]
    if wrong:
        names = ", ".join(f"--{name}" for name in wrong)
        tasks = _COLUMN_FLAGS[wrong[0]]
        raise InputError(
            f"{names} must be used with "
            + " or ".join(f"--task={task}" for task in tasks),
            f"--task={FLAGS.task}",
            f"Remove {names}, or set --task={tasks[0]}",
        )


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
