"""Score texts with a pre-trained model.

echo 'The cat sat on the mat.' | electra-tf score --checkpoint=run

--input is lines of text, or a table (.csv, .tsv, .jsonl, .json, .parquet) with a column
`text`. A score is the sum over the tokens of a text; larger is better. The objective
that the model was trained with selects the rule, which is printed.
"""

import sys

from electra_tf import cli, model_names
from electra_tf.storage.mirror import local_path, staged

FLAGS = cli.Flags()
FLAGS.strings(
    checkpoint="Required: a checkpoint or run of pretrain, a name of `electra-tf "
    "presets`, or a pre-trained model of another library.",
    input="A file, also .gz or .xz. Default: standard input, as with -.",
    output="A file. Default: standard output, as with -.",
)
FLAGS.switches(overwrite="Replace the --output file.")
FLAGS.choice(("text", "jsonl"), "text", format="Format of the output.")
FLAGS.counts(32, batch_size="Rows that are computed together.")


def main() -> None:
    """Print the rule, then write the scores."""
    cli.require(FLAGS, "checkpoint")
    cli.check_paths(FLAGS, "input")
    cli.check_output(FLAGS, "output")
    model_names.check_exists(FLAGS.checkpoint)
    source = local_path(FLAGS.input)
    with cli.starting_tensorflow():
        from electra_tf.runs import scoring
    scorer = scoring.TextScorer.from_preset(FLAGS.checkpoint, FLAGS.batch_size)
    print(f"rule: {scoring.RULES[scorer.rule]}", file=sys.stderr)
    lines = scoring.score_lines(scorer, source, FLAGS.format)
    with staged(FLAGS.output) as output:
        cli.write_lines(lines, output)
    for line in scorer.unknown.lines("input"):
        print(line, file=sys.stderr)


if __name__ == "__main__":
    cli.run(main, FLAGS, __doc__)
