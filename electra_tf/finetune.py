"""Fine-tune a pre-trained checkpoint on a task, with several seeds.

python -m electra_tf.finetune --task=rte --data=glue --checkpoint=run \\
    --output=rte --trials=5

Tasks: GLUE's (cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, ax; glue for all that
have data), squad1, squad2, chunking, tagging (any column file) and csv (any table).
Run the same command again to resume a run that was stopped or killed.
"""

import signal
import sys

from absl import flags

from electra_tf import cli
from electra_tf.config.finetuning import FinetuningConfig
from electra_tf.errors import InputError
from electra_tf.runs import finetuning
from electra_tf.training import strategy

FLAGS = flags.FlagValues()
SETTINGS = {
    "text_columns": "data.text_columns",
    "label_column": "data.label_column",
    "score_column": "data.score_column",
    "early_stopping": "training.early_stopping",
    "keep": "training.keep",
    "on_error": "data.on_error",
}
_OF_TABLES = ("text_columns", "label_column", "score_column")
flags.DEFINE_enum(
    "task", None, finetuning.NAMES, "Required: what is to be learnt.",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_string(
    "data", None, "Required: the task's file or folder, or tfds:NAME.",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_string(
    "checkpoint", None, "Required: what pretrain wrote.", flag_values=FLAGS
)
flags.DEFINE_string("output", None, "Required: a folder.", flag_values=FLAGS)
flags.DEFINE_integer(
    "trials", 1, "Seeds to train with.", lower_bound=1, flag_values=FLAGS
)
cli.define_device_flags(FLAGS, strategy.NAMES)
cli.define_config_flags(FLAGS, SETTINGS, FinetuningConfig)


def main() -> None:
    """Train and measure until all trials are done, or until a signal."""
    try:
        _finetune()
    except KeyboardInterrupt as stop:
        number = signal.SIGTERM if isinstance(stop, cli.Terminated) else signal.SIGINT
        print(
            f"stopped by {signal.Signals(number).name}; run the same command again to "
            "resume after the last finished epoch, or to begin again before the first",
            flush=True,
        )
        sys.exit(0 if number == signal.SIGTERM else 128 + number)


def _finetune() -> None:
    cli.require(FLAGS, "task", "data", "checkpoint", "output")
    given = [f"--{name}" for name in _OF_TABLES if FLAGS[name].present]
    if given and FLAGS.task != "csv":
        raise InputError(
            "Columns are told for --task=csv; other tasks know theirs",
            f"{', '.join(given)} with --task={FLAGS.task}",
            "Leave them out, or name --task=csv",
        )
    devices = strategy.choose(FLAGS.strategy, FLAGS.tpu, FLAGS.cpu_replicas)
    finetuning.run_finetuning(
        FLAGS.task,
        FLAGS.data,
        FLAGS.checkpoint,
        FLAGS.output,
        FLAGS.trials,
        lambda base: cli.resolve(FLAGS, SETTINGS, base, FinetuningConfig),
        devices,
    )


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
