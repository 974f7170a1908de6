"""Fine-tune a pre-trained checkpoint on a task, with several seeds.

electra-tf finetune --task=rte --data=glue --checkpoint=run \\
    --output=rte --trials=5

Tasks: GLUE (cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, ax; glue for all that
have data), squad1, squad2, chunking, tagging (any CoNLL file, or a table of words and
tags, or of texts and spans), choice (texts with choices) and csv (any table).
Run the same command again to resume a run that was stopped or killed.
"""

from electra_tf import cli, model_names
from electra_tf.config.finetuning import COLUMNS, FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.storage.mirror import local_path, staged, synced
from electra_tf.tasks import registry
from electra_tf.tasks.data import glue

FLAGS = cli.Flags()
_SETTINGS = {
    **{name: f"data.{name}" for name in COLUMNS},
    "early_stopping": "training.early_stopping",
    "keep": "training.keep",
}
FLAGS.choice((*registry.TASK_NAMES, glue.ALL), task="Required: the task.")
FLAGS.strings(
    data="Required: file or folder of the task; for GLUE also tfds:glue.",
    checkpoint="Required: a checkpoint or run of pretrain, a name of `electra-tf "
    "presets`, or a model of another library (Hugging Face folder or hub id, "
    "TensorFlow 1, KerasHub, Model Garden).",
    output="Required: output folder.",
    report="HTML file with curves, scores of classes and the worst mistakes.",
)
FLAGS.counts(1, trials="Number of seeds.")
cli.define_device_flags(FLAGS)
cli.define_config_flags(FLAGS, _SETTINGS, FinetuningConfig)


@cli.resumable("after the last completed epoch")
def main() -> None:
    """Train and evaluate until all trials are done, or until a signal."""
    cli.require(FLAGS, "task", "data", "checkpoint", "output")
    cli.check_paths(FLAGS, "data")
    cli.check_output(FLAGS, "report")
    model_names.check_exists(FLAGS.checkpoint)
    cli.resolve(FLAGS, _SETTINGS, root=FinetuningConfig)
    with cli.starting_tensorflow():
        from electra_tf.runs import finetuning

        _check_column_flags()
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
            lambda base: cli.resolve(FLAGS, _SETTINGS, base, FinetuningConfig),
            devices,
            report,
        )
    print(finetuning.describe_model(FLAGS.task, FLAGS.output))


def _check_column_flags() -> None:
    """Raise an error for flags of columns that the files of the task do not have."""
    known = []
    if FLAGS.task not in (*glue.TASKS, glue.ALL):
        columns = registry.named(FLAGS.task).columns
        known = [f"--{name}" for name in COLUMNS if name in columns]
    given = [f"--{name}" for name in COLUMNS if FLAGS[name].present]
    if wrong := [flag for flag in given if flag not in known]:
        raise InputError(
            f"--task={FLAGS.task} does not have {', '.join(wrong)}; its flags of "
            f"columns: {', '.join(known) or 'none'}"
        )


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
