"""Pre-training records -> a pre-trained model, checkpoint by checkpoint.

python -m electra_tf.pretrain --config=configs/small.yaml --data=records \\
    --model_dir=run

The same command goes on where a run was stopped or killed.
"""

import contextlib
import signal
import sys
from typing import NoReturn

from absl import flags

from electra_tf import cli, runs
from electra_tf.experiment import Experiment
from electra_tf.training import strategy
from electra_tf.training.run_folder import holding

FLAGS = flags.FlagValues()
flags.DEFINE_string("data", None, "Required: the records.", flag_values=FLAGS)
flags.DEFINE_string("model_dir", None, "Required: the run's folder.", flag_values=FLAGS)
flags.DEFINE_string(
    "evaluation_data", None, "Held-out records to measure on.", flag_values=FLAGS
)
flags.DEFINE_string(
    "vocab", None, "The vocabulary, where it is not in --data.", flag_values=FLAGS
)
flags.DEFINE_string(
    "init_checkpoint", None, "A checkpoint whose weights a new run begins with.",
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_bool(
    "dry_run", False, "Tell sizes, cost and time, then stop.", flag_values=FLAGS
)
cli.define_device_flags(FLAGS, strategy.NAMES)
cli.define_config_flags(FLAGS, {})


def main() -> None:
    """Trains until the last step or until a signal, which may come before the first."""
    try:
        _pretrain()
    except KeyboardInterrupt as stop:
        number = signal.SIGTERM if isinstance(stop, cli.Terminated) else signal.SIGINT
        _stop(number, "from its newest checkpoint, or begins anew without one")


def _pretrain() -> None:
    cli.require(FLAGS, "data", *([] if FLAGS.dry_run else ["model_dir"]))
    devices = strategy.choose(FLAGS.strategy, FLAGS.tpu, FLAGS.cpu_replicas)
    experiment = Experiment.resolve(
        FLAGS.data, FLAGS.vocab, lambda stored: cli.resolve(FLAGS, {}, stored)
    )
    found, held_out = experiment.open(FLAGS.data), None
    if FLAGS.evaluation_data:
        held_out = experiment.open(FLAGS.evaluation_data)
    if FLAGS.dry_run:
        runs.check(experiment, found, FLAGS.model_dir, FLAGS.init_checkpoint)
        print(experiment.describe(experiment.pretrainer(devices), devices))
        return
    chief = strategy.is_chief(devices)
    with holding(FLAGS.model_dir) if chief else contextlib.nullcontext():
        ended, last = runs.train(
            experiment, devices, FLAGS.model_dir, found, held_out, FLAGS.init_checkpoint
        )
    if ended:
        _stop(ended, f"from {last}")
    print(f"trained; the checkpoint is {last}")


def _stop(number: int, where: str) -> NoReturn:
    print(f"stopped by {signal.Signals(number).name}; the same command goes on {where}")
    sys.exit(0 if number == signal.SIGTERM else 128 + number)


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
