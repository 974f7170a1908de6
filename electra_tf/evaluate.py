"""A checkpoint and held-out records -> its metrics, the same ones each time.

python -m electra_tf.evaluate --checkpoint=run --data=heldout
"""

import json
import math
import sys

from absl import flags
from tqdm import tqdm

from electra_tf import cli
from electra_tf.experiment import Experiment
from electra_tf.pretraining import metrics
from electra_tf.text.record_set import explaining
from electra_tf.training import strategy
from electra_tf.training.checkpoint import open_checkpoint
from electra_tf.training.state import restore_weights

FLAGS = flags.FlagValues()
flags.DEFINE_string(
    "checkpoint", None, "Required: a checkpoint, or a run's folder.", flag_values=FLAGS
)
flags.DEFINE_string(
    "data", None, "Required: the records to measure on.", flag_values=FLAGS
)
flags.DEFINE_integer(
    "batches", None, "How many batches at most; all unless given.", lower_bound=1,
    flag_values=FLAGS,
)  # fmt: skip
flags.DEFINE_string("output", None, "A file for the JSON.", flag_values=FLAGS)
cli.define_device_flags(FLAGS, strategy.NAMES)


def main() -> None:
    """Measures, and prints a table and a line of JSON."""
    cli.require(FLAGS, "checkpoint", "data")
    devices = strategy.choose(FLAGS.strategy, FLAGS.tpu, FLAGS.cpu_replicas)
    checkpoint = open_checkpoint(FLAGS.checkpoint)
    experiment = Experiment.of(checkpoint)
    found = experiment.open(FLAGS.data)
    pretrainer = experiment.pretrainer(devices)
    restore_weights(pretrainer, checkpoint)
    with explaining(found):
        measure = experiment.evaluation(pretrainer, devices, found, FLAGS.batches)
        print(f"compiling, then measuring {measure.count:,} batches", file=sys.stderr)
        # A bar on a terminal, nothing elsewhere.
        with tqdm(total=measure.count, unit="batch", disable=None) as bar:
            values = metrics.read(measure(bar.update))
    rows = min(found.total, experiment.config.input.batch_size * measure.count)
    report = {"checkpoint": checkpoint.path, "step": checkpoint.step, "records": rows}
    report |= {k: v if math.isfinite(v) else None for k, v in values.items()}
    print(f"{checkpoint.path}, step {checkpoint.step:,}, on {rows:,} records")
    for name, value in values.items():
        print(f"  {name:<28}{value:>10.5f}" if math.isfinite(value) else f"  {name}: -")
    line = json.dumps(report, allow_nan=False)
    print(line)
    if FLAGS.output:
        with open(FLAGS.output, "w", encoding="utf-8") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
