"""Pre-train a model on records, with checkpoints.

python -m electra_tf.pretrain --config=configs/small.yaml --data=records \\
    --model_dir=run

Run the same command again to resume a run that was stopped or killed. A greater
--set training.steps=N lengthens a finished run.
"""

import contextlib
import signal
import sys
from typing import NoReturn

from absl import flags

from electra_tf import cli
from electra_tf.runs import pretraining
from electra_tf.runs.experiment import Experiment
from electra_tf.training import strategy
from electra_tf.training.run_directory import run_lock

FLAGS = flags.FlagValues()
for _name, _text in {
    "data": "Required: the records, a folder of build_records or globs of files.",
    "model_dir": "Required, but not for --dry_run: the run's folder, new or begun.",
    "evaluation_data": "Records of held-out text, to measure on while it trains.",
    "vocab": "The vocabulary, where it is not in --data.",
    "init_checkpoint": "A checkpoint, or a run, whose weights a new run begins with.",
}.items():
    flags.DEFINE_string(_name, None, _text, flag_values=FLAGS)
flags.DEFINE_bool(
    "dry_run",
    False,
    "Print the resolved config, sizes, memory and time, and train nothing.",
    flag_values=FLAGS,
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
        given = FLAGS.model_dir, FLAGS.init_checkpoint
        print(pretraining.plan(experiment, devices, found, *given))
        return
    chief = strategy.is_chief(devices)
    with run_lock(FLAGS.model_dir) if chief else contextlib.nullcontext():
        ended, last = pretraining.run_pretraining(
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
