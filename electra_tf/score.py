"""Score lines of text with a pre-trained model, or re-rank n-best lists.

echo 'The cat sat on the mat.' | electra-tf score --checkpoint=run

A score is the sum over the tokens of a line; larger is better. The objective that the
model was trained with selects the rule, which is printed. With --nbest, a line is
id, tab, hypothesis, and optionally a tab and the score of the first pass.
"""

import math
import sys

from absl import flags

from electra_tf import cli, model_names
from electra_tf.errors import InputError
from electra_tf.runs import nbest
from electra_tf.storage.mirror import local_path, staged

FLAGS = cli.Flags()
FLAGS.strings(
    checkpoint="Required: a checkpoint or run of pretrain, a name of `electra-tf "
    "presets`, or a pre-trained model of another library.",
    input="A file, also .gz or .xz. Default: standard input.",
    output="A file, which is replaced. Default: standard output.",
)
FLAGS.choice(nbest.NBEST_FORMATS, "text", format="Format of the output.")
FLAGS.switches(nbest="Read n-best lists and write the best hypothesis of each id.")
FLAGS.define(
    flags.DEFINE_float,
    1.0,
    {"weight": "With --nbest: factor of the score, added to that of the first pass."},
)
FLAGS.counts(32, batch_size="Rows that are computed together.")


def main() -> None:
    """Print the rule, then write the scores."""
    cli.require(FLAGS, "checkpoint")
    if FLAGS["weight"].present and not FLAGS.nbest:
        raise InputError("--weight must be used with --nbest")
    if not math.isfinite(FLAGS.weight):
        raise InputError(f"--weight must be a finite number, not {FLAGS.weight}")
    cli.check_paths(FLAGS, "input")
    cli.check_output("output", FLAGS.output)
    model_names.check_exists(FLAGS.checkpoint)
    source = local_path(FLAGS.input)
    with cli.starting_tensorflow():
        from electra_tf.runs import scoring
    scorer = scoring.TextScorer.from_preset(FLAGS.checkpoint, FLAGS.batch_size)
    print(f"rule: {scoring.RULES[scorer.rule]}", file=sys.stderr)
    if FLAGS.nbest:
        lines = nbest.rerank(scorer, source, FLAGS.weight, FLAGS.format)
    else:
        lines = nbest.score_lines(scorer, source, FLAGS.format)
    with staged(FLAGS.output) as output:
        cli.write_lines(lines, output)
    for line in scorer.unknown.lines("input"):
        print(line, file=sys.stderr)


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
