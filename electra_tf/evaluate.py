"""A checkpoint and held-out records -> its metrics, the same ones each time.

python -m electra_tf.evaluate --checkpoint=run --data=heldout

Or a task's predictions and its labelled file -> the official scores.

python -m electra_tf.evaluate --task=squad2 --data=dev-v2.0.json \\
    --predictions=predictions.json --na_prob=null_odds.json
"""

import json
import sys

from absl import flags

from electra_tf import cli, measuring
from electra_tf.errors import InputError
from electra_tf.tasks import judge
from electra_tf.training import strategy

FLAGS = flags.FlagValues()
flags.DEFINE_string(
    "data", None, "Required: the records to measure on, or a task's labelled file.",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_string(
    "checkpoint", None, "A checkpoint, or a run's folder.", flag_values=FLAGS
)
flags.DEFINE_integer(
    "batches", None, "How many batches at most; all unless given.", lower_bound=1,
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_enum("task", None, judge.NAMES, "Score predictions.", flag_values=FLAGS)
flags.DEFINE_string("predictions", None, "Their file.", flag_values=FLAGS)
flags.DEFINE_string(
    "na_prob", None, "SQuAD 2: odds of no answer, JSON by id.", flag_values=FLAGS
)
flags.DEFINE_string("output", None, "A file for the JSON.", flag_values=FLAGS)
cli.define_device_flags(FLAGS, strategy.NAMES)


def main() -> None:
    """Measures, and prints a table and a line of JSON, or the JSON alone."""
    wanted = "predictions" if FLAGS.task else "checkpoint"
    cli.require(FLAGS, wanted, "data")
    idle = {"predictions", "na_prob"}
    if FLAGS.task:
        idle = {"checkpoint", "batches", "strategy", "tpu", "cpu_replicas"}
    if given := [name for name in sorted(idle) if FLAGS[name].present]:
        raise InputError(
            "--task scores predictions, --checkpoint measures a pre-trained model",
            f"--{given[0]} {'with' if FLAGS.task else 'without'} --task",
            "Drop it",
        )
    if FLAGS.task:
        report = judge.judge(
            FLAGS.task, FLAGS.data, FLAGS.predictions, FLAGS.na_prob, _tell
        )
        text = json.dumps(report, indent=2)
    else:
        devices = strategy.choose(FLAGS.strategy, FLAGS.tpu, FLAGS.cpu_replicas)
        report = measuring.measure(FLAGS.checkpoint, FLAGS.data, FLAGS.batches, devices)
        text = json.dumps(report, allow_nan=False)
    print(text)
    if FLAGS.output:
        with open(FLAGS.output, "w", encoding="utf-8") as file:
            file.write(text + "\n")


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
